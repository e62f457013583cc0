"""Reductions and ArgMax on the CPU: float32 over neighbouring axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mnnx.backends.backend import Execution, Layouts, Specs, Tensors
from mnnx.backends.blocked import blocked_shape, can_block
from mnnx.backends.cpu.arguments import arguments, float32_bits
from mnnx.backends.cpu.creators import creator
from mnnx.backends.cpu.kernel import kernel
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops import reduction as ops
from mnnx.schema.ops.base import Op

_FLOAT32 = np.dtype("float32")
#: What of blocked images, over all pixels, is one vector per block.
_WHOLE = {ops.ReduceMean: "sum", ops.ReduceSum: "sum", ops.ReduceMax: "max"}


def split(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, int, int] | None:
    """`shape` as [outer, n, inner] with n the axes' elements; None where other dims than those of size 1 stand between the axes."""
    dims = [(size, axis in axes) for axis, size in enumerate(shape) if size != 1]
    reduced = [i for i, (_, inside) in enumerate(dims) if inside]
    if not reduced:
        return math.prod(shape), 1, 1
    first, last = reduced[0], reduced[-1] + 1
    if last - first != len(reduced):
        return None
    sizes = [size for size, _ in dims]
    return math.prod(sizes[:first]), math.prod(sizes[first:last]), math.prod(sizes[last:])


def supports(op: Op, inputs: Specs, outputs: Specs) -> str | None:
    if inputs[0].dtype != _FLOAT32:
        return f"no kernel for {inputs[0].dtype}"
    parts = split(inputs[0].shape, op.axes(*inputs))
    if parts is None:
        return "no kernel for axes that lie apart"
    return None if parts[1] else "no kernel for empty axes"


@creator(
    ops.ReduceSum, ops.ReduceMean, ops.ReduceProd, ops.ReduceMax, ops.ReduceMin, ops.ReduceL1, ops.ReduceL2, ops.ReduceSumSquare,
    ops.ReduceLogSum, supports=supports,
)  # fmt: skip
def create(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    outer, n, inner = split(inputs[0].shape, op.axes(*inputs))
    return ReductionExecution(op, backend, outer, n, inner)


class ReductionExecution(Execution):
    """One number per [outer, inner] of [outer, n, inner]."""

    def __init__(self, op: Op, backend, outer: int, n: int, inner: int):
        super().__init__(op, backend)
        self.sizes = (outer, n, inner)

    def layouts(self, inputs: Specs, outputs: Specs, lanes: int) -> Sequence[Layouts]:
        x, y = inputs[0], outputs[0]
        if type(self.op) not in _WHOLE or not can_block(x) or sorted(self.op.axes(*inputs)) != list(range(2, x.rank)):
            return ()
        rest = (0,) * (len(inputs) - 1)
        if self.op.keepdims:
            return [Layouts((lanes, *rest), (lanes,))]
        return [Layouts((lanes, *rest), (0,))] if y.shape[1] % lanes == 0 else ()

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        outer, n, inner = self.sizes
        if outer * inner == 0:
            return
        if inputs[0].layout:
            self._record_blocked(*inputs[:1], *outputs)
            return
        function = kernel("reduction.rows" if inner == 1 else "reduction.columns", kind=self.op.name.removeprefix("Reduce"))
        self.backend.commands.record(
            function, arguments(inputs[0], outputs[0], outer, n, inner), self.backend.chunks(outer * n * inner / 8)
        )

    def _record_blocked(self, x: DeviceTensor, y: DeviceTensor) -> None:
        rows, n, combine = math.prod(blocked_shape(x.shape, x.layout)[:2]), self.sizes[1], _WHOLE[type(self.op)]
        factor = 1.0 / n if isinstance(self.op, ops.ReduceMean) else 1.0
        block = arguments(x, y, rows, n, float32_bits(factor))
        self.backend.commands.record(
            kernel("blocked_pooling.whole", lanes=x.layout, combine=combine), block, min(rows, self.backend.chunks(rows * n))
        )


def supports_arg(op: Op, inputs: Specs, outputs: Specs) -> str | None:
    return None if inputs[0].dtype == _FLOAT32 else f"no kernel for {inputs[0].dtype}"


@creator(ops.ArgMax, ops.ArgMin, supports=supports_arg)
def create_arg(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    shape = inputs[0].shape
    axis = op.axis % len(shape)
    return ArgReductionExecution(op, backend, math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))


class ArgReductionExecution(ReductionExecution):
    """ArgMax and ArgMin: the int64 index of that number."""

    def layouts(self, inputs: Specs, outputs: Specs, lanes: int) -> Sequence[Layouts]:
        return ()

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        outer, n, inner = self.sizes
        if outer * inner == 0:
            return
        function = kernel("reduction.arg", largest=isinstance(self.op, ops.ArgMax), last=self.op.select_last_index)
        chunks = self.backend.chunks(outer * n * inner / (1 if inner == 1 else 4))
        self.backend.commands.record(function, arguments(inputs[0], outputs[0], outer, n, inner), chunks)
