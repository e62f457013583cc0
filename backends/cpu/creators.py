"""The CPU's factory of native executions: `executions/<family>.py` registers them, where <family> is the file that defines the op."""

from __future__ import annotations

import importlib
import importlib.util

from mnnx.backends.backend import Creator, Creators, Support
from mnnx.backends.cpu.numpy_executions.registry import family
from mnnx.schema.ops.base import Op

creator = Creators()
_LOADED: set[str] = set()


def find(op_class: type[Op]) -> tuple[Creator, Support] | None:
    """How to make native executions of an op class, and the check whether that serves given Specs; None where there is none."""
    _load(family(op_class))
    found = creator.find(op_class)
    if found is None:
        from mnnx.backends import elementwise

        if op_class in elementwise.TABLE:
            from mnnx.backends.cpu.executions import elementwise as native

            return native.create, native.supports
    return found


def _load(name: str) -> None:
    if name not in _LOADED:
        module = f"{__package__}.executions.{name}"
        if importlib.util.find_spec(module):
            importlib.import_module(module)
        _LOADED.add(name)
