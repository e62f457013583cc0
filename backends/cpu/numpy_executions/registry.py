"""Ops computed with NumPy: the long tail, constant folding, and shapes that depend on data.

    @numpy_execution(Relu)
    def relu(op, x): return np.maximum(x, 0)

The function gets the op and one ndarray per input (None: left out; lists for sequences), must not write to them (one of another package
gets arrays that can't be written to), and returns one value, or a tuple with one entry per output (None: not computed), of the dtypes and
shapes that the op's `infer` gives; a list holds no views of input arrays. It raises RuleError (through `require`) where a VALUE breaks a
rule of the op, such as an index out of range.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from mnnx.schema.ops.base import Op
from mnnx.schema.ops.families import Families

_FUNCTIONS: Families[Callable[..., Any]] = Families(__package__, "NumPy executions")


def numpy_execution(*op_classes: type[Op]):
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        is_ours = str(getattr(function, "__module__", "")).startswith("mnnx.")
        _FUNCTIONS.register(op_classes, function if is_ours else _with_read_only_inputs(function))
        return function

    return register


def _with_read_only_inputs(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with views of its inputs that can't be written to, for these may be the constants of all sessions."""

    @functools.wraps(function)
    def run(op: Op, *inputs: Any) -> Any:
        return function(op, *map(_read_only, inputs))

    return run


def _read_only(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        value = value.view()
        value.flags.writeable = False
    elif isinstance(value, list):
        value = [_read_only(item) for item in value]
    return value


def find(op_class: type[Op]) -> Callable[..., Any] | None:
    """The NumPy execution of an op, or None."""
    found = _FUNCTIONS.find(op_class)
    if found is None:
        from mnnx.backends import elementwise

        if op_class in elementwise.TABLE:
            return elementwise.evaluate
    return found


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
