"""Elementwise ops on any device: expressions simplified by what is known, operands that broadcast, and operands in blocks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mnnx.backends import elementwise
from mnnx.backends.backend import Layouts, Specs
from mnnx.backends.blocked import can_block
from mnnx.backends.elementwise import Expression
from mnnx.schema.ops import arithmetic
from mnnx.schema.ops.base import Op, Spec

#: a ** b for constant exponents that need no call of pow.
_POWERS = {1.0: "a", 2.0: "a * a", 3.0: "a * a * a", 4.0: "(a * a) * (a * a)", 0.5: "sqrt(a)", -1.0: "1 / a", -2.0: "1 / (a * a)"}

#: Ops that make infinities or NaN of some small numbers: not for lanes past the last channel, which hold any.
_UNSAFE = (
    arithmetic.Acos, arithmetic.Acosh, arithmetic.Asin, arithmetic.Atanh, arithmetic.Cosh, arithmetic.Div, arithmetic.Exp, arithmetic.Log,
    arithmetic.Mod, arithmetic.Pow, arithmetic.Reciprocal, arithmetic.Sinh, arithmetic.Sqrt, arithmetic.Tan,
)  # fmt: skip


def _keeps_finite(op: Op, inputs: Specs) -> bool:
    if isinstance(op, (arithmetic.Div, arithmetic.Pow)):
        value = inputs[1].value
        if value is None or value.size != 1:
            return False
        return abs(value.item()) > 1e-3 if isinstance(op, arithmetic.Div) else value.item() in (1, 2, 3)
    return not isinstance(op, _UNSAFE)


def expression_of(op: Op, inputs: Specs) -> Expression | None:
    """The op's expression, simplified where an input's value is known."""
    found = elementwise.expression(op, inputs)
    if isinstance(op, arithmetic.Pow) and inputs[1].value is not None and inputs[1].size == 1 and inputs[0].dtype.kind == "f":
        text = _POWERS.get(float(inputs[1].value.reshape(())))
        if text is not None and inputs[1].dtype == inputs[0].dtype:
            return Expression(text, "ab", found.compute)
    return found


def blocked_ways(op: Op, compute: np.dtype, inputs: Specs, outputs: Specs, lanes: int) -> Sequence[Layouts]:
    """How an elementwise op that is computed in `compute` runs with blocked operands (see `Execution.layouts`)."""
    out = outputs[0]
    if not can_block(out) or compute != out.dtype or (out.shape[1] % lanes and not _keeps_finite(op, inputs)):
        return ()
    operands = [0 if spec is None else _operand_layout(spec, out, lanes) for spec in inputs]
    return () if None in operands or lanes not in operands else [Layouts(tuple(operands), (lanes,))]


def _operand_layout(spec: Spec, out: Spec, lanes: int) -> int | None:
    """The layout that an input must have where the result is blocked; None where there is none."""
    if spec.size == 1 and spec.rank <= 1:
        return 0
    channels = spec.shape[1 - out.rank] if spec.rank >= out.rank - 1 else 1
    if spec.dtype != out.dtype:
        return None
    if spec.value is not None or channels < out.shape[1]:
        return 0
    return lanes if spec.rank == out.rank else None


def collapse(shape: tuple[int, ...], inputs: list[tuple[int, ...]]) -> tuple[list[int], list[list[int]]]:
    """The fewest dims in which inputs of these shapes broadcast to `shape`: their sizes, and per input the elements from one index of
    each dim to the next (0: broadcast). At least one dim."""
    steps = [[0] * len(shape) for _ in inputs]
    for mine, dims in zip(steps, inputs, strict=True):
        stride = 1
        for axis in range(-1, -len(dims) - 1, -1):
            mine[axis] = stride if dims[axis] > 1 else 0
            stride *= dims[axis]
    sizes: list[int] = []
    merged: list[list[int]] = [[] for _ in inputs]
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        if sizes and all(done[-1] == mine[axis] * size for done, mine in zip(merged, steps, strict=True)):
            sizes[-1] *= size
            for done, mine in zip(merged, steps, strict=True):
                done[-1] = mine[axis]
        else:
            sizes.append(size)
            for done, mine in zip(merged, steps, strict=True):
                done.append(mine[axis])
    return (sizes, merged) if sizes else ([1], [[1] for _ in inputs])
