"""Ops computed with NumPy: the long tail, constant folding, and shapes that depend on data.

    @numpy_execution(Relu)
    def relu(op, x): return np.maximum(x, 0)

The function gets the op and one ndarray per input (None: left out; lists for sequences), must not write to them, and returns one
value, or a tuple with one entry per output (None: not computed), of the dtypes and shapes that the op's `infer` gives; a list holds no
views of input arrays. It raises RuleError (through `require`) where a VALUE breaks a rule of the op, such as an index out of range.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np

from mnnx.schema.ops.base import Op

_FUNCTIONS: dict[type[Op], Callable[..., Any]] = {}
_LOADED: set[str] = set()


def numpy_execution(*op_classes: type[Op]):
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for op_class in op_classes:
            if op_class in _FUNCTIONS:
                raise ValueError(f"two NumPy executions for {op_class.name}")
            _FUNCTIONS[op_class] = function
        return function

    return register


def family(op_class: type[Op]) -> str:
    """The file that defines the op; its NumPy execution stands in the file of the same name in this folder."""
    return op_class.__module__.rpartition(".")[2]


def find(op_class: type[Op]) -> Callable[..., Any] | None:
    """The NumPy execution of an op, or None."""
    name = family(op_class)
    if name not in _LOADED:
        _LOADED.add(name)
        module = f"{__package__}.{name}"
        if importlib.util.find_spec(module):
            importlib.import_module(module)
    if op_class not in _FUNCTIONS:
        from mnnx.backends import elementwise

        if op_class in elementwise.TABLE:
            return elementwise.evaluate
    return _FUNCTIONS.get(op_class)


def run(op: Op, inputs: list[Any]) -> tuple[Any, ...]:
    """The outputs of `op` on host values. Raises KeyError where the op has no NumPy execution."""
    function = find(type(op))
    if function is None:
        raise KeyError(op.name)
    outputs = function(op, *inputs)
    return tuple(map(_text, outputs)) if isinstance(outputs, tuple) else (_text(outputs),)


def _text(value: Any) -> Any:
    """Texts as an array of objects: NumPy makes one of its own type of text where it takes a single one out of such an array."""
    return value.astype(object) if isinstance(value, np.ndarray) and value.dtype.kind == "U" else value
