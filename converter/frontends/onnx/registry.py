"""Importer functions by ONNX op, one per op, all opsets handled inside.

    @importer("Unsqueeze")
    def unsqueeze(node: OnnxNode, data: Value, axes: Value | None = None):
        if axes is None:  # opset 1 … 12
            axes = node.constant(node.attribute("axes", tuple[int, ...]), "int64")
        return node.add(Unsqueeze(), data, axes)

It gets the node and one argument per ONNX input (None: left out), and returns either an Op, which then takes the node's own inputs as
they are, or the Value (a tuple of Values, one per output) that the node's outputs become. What can't be expressed: `node.fail(…)`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

from mnnx.errors import ConversionError
from mnnx.schema import plugins
from mnnx.schema.ops.base import Op, is_redefinition

#: (domain, op type) → importer; the domain "ai.onnx" is "".
IMPORTERS: dict[tuple[str, str], Callable[..., Any]] = {}
#: The same of users' modules, which may be imported before ours are.
_OF_USERS: dict[tuple[str, str], Callable[..., Any]] = {}


def importer(*op_types: str, domain: str = ""):
    """Registers the importer of ONNX ops of a domain. Raises ValueError for an op that has one."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        table = IMPORTERS if _is_own(function) else _OF_USERS
        for op_type in op_types:
            key = (domain, op_type)
            if key in table and not is_redefinition(table[key], function):
                raise ValueError(f"two importers for {domain}::{op_type}")
            table[key] = function
        return function

    return register


def _is_own(function: Callable[..., Any]) -> bool:
    return function.__module__.startswith(f"{__package__}.")


def direct(*op_classes: type[Op], domain: str = "") -> None:
    """Registers ops that ONNX writes as we do in every opset: the same name, inputs, and attributes with the same names and defaults."""
    for op_class in op_classes:
        importer(op_class.name.rpartition("::")[2], domain=domain)(_direct(op_class))


def _direct(op_class: type[Op]) -> Callable[..., Op]:
    def import_directly(node, *_inputs) -> Op:
        return node.op(op_class)

    import_directly.op_class = op_class
    return import_directly


def written_as(domain: str, op_type: str) -> str | None:
    """The canonical name of the op that an ONNX op is imported as where it is `direct`, else None."""
    op_class = getattr(load_all().get((domain, op_type)), "op_class", None)
    return None if op_class is None else op_class.name


def load_all() -> dict[tuple[str, str], Callable[..., Any]]:
    """All importers, those of users included. Raises ConversionError where one of these is of an op that has one of ours."""
    import mnnx.converter.frontends.onnx as package

    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    for group in ("mnnx.ops", "mnnx.importers"):
        plugins.load(group)
    for (domain, op_type), function in _OF_USERS.items():
        if _is_own(IMPORTERS.setdefault((domain, op_type), function)):
            raise ConversionError(
                f"{function.__module__}.{function.__qualname__} is an importer of {domain or 'ai.onnx'}::{op_type}, which mnnx imports "
                'itself; give it an op of a domain of your own: @mnnx.importer("Name", domain="com.example")'
            )
        IMPORTERS[domain, op_type] = function
    return IMPORTERS
