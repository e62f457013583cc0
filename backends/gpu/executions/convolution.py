"""Convolutions on GPUs, plain, transposed and fused: blocked where the planner chooses so."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from mnnx.backends.backend import Execution, Layouts, Specs, Tensors
from mnnx.backends.gpu.creators import creator
from mnnx.backends.gpu.execution import GpuExecution
from mnnx.backends.gpu.executions.convolution_plans import (
    DepthwisePlan,
    DirectPlan,
    Plan,
    Problem,
    ProductPlan,
    TransposedPlan,
)
from mnnx.backends.gpu.executions.product import Product, Right, column_vectors, record_product
from mnnx.backends.gpu.executions.winograd_plan import WinogradPlan
from mnnx.backends.gpu.kernel import kernel
from mnnx.backends.gpu.windows import Windows
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.base import Op
from mnnx.schema.ops.convolution import Conv, ConvTranspose, DeformConv

#: How much faster blocked kernels are, as bytes of memory traffic per operation.
_SAVED, _SAVED_DEPTHWISE = 0.3, 1.0

_FLOAT16, _FLOAT32 = np.dtype("float16"), np.dtype("float32")


def supports(op: Op, inputs: Specs, outputs: Specs) -> str | None:
    x, w = inputs[:2]
    if x.dtype not in (_FLOAT16, _FLOAT32):
        return f"no kernels for {x.dtype}"
    return "it has more than 3 spatial dims" if Windows.of(op.geometry(x.shape, w.shape)) is None else None


@creator(Conv, ConvTranspose, supports=supports)
def create(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return ConvolutionExecution(op, backend, inputs, outputs)


class ConvolutionExecution(GpuExecution):
    """Conv, ConvTranspose and the fused ones."""

    def __init__(self, op: Op, backend, inputs: Specs, outputs: Specs):
        super().__init__(op, backend)
        x, w, bias, residual = (*inputs, None, None)[:4]
        self.x, self.w, self.channels = x, w.shape, outputs[0].shape[1]
        self.transposed = isinstance(op, ConvTranspose)
        self.constant = w.value is not None and (bias is None or bias.value is not None)
        self.in_place = () if residual is None else (3,)
        self.inputs, self.outputs = x.shape[1] // op.group, self.channels // op.group
        self.depthwise = op.group > 1 and self.inputs == self.outputs == 1 and not self.transposed

    def layouts(self, inputs: Specs, outputs: Specs, lanes: int) -> Sequence[Layouts]:
        saves = self.op.flops(inputs, outputs) * (_SAVED_DEPTHWISE if self.depthwise else _SAVED)
        rest = [lanes if i == 3 and spec is not None else 0 for i, spec in enumerate(inputs)][1:]
        return [Layouts((source, *rest), (lanes,), saves) for source in self._sources(lanes)]

    def _sources(self, lanes: int) -> list[int]:
        """The layouts of x that give a blocked result."""
        if not self.constant or self.x.dtype != _FLOAT32:
            return []
        if self.depthwise:
            return [lanes]
        grouped = self.op.group > 1
        if grouped and self.outputs % lanes:
            return []
        blocked = [] if grouped and self.inputs % lanes else [lanes]
        return blocked if self.transposed else [0, *blocked]

    @cached_property
    def plan(self) -> Plan:
        """How it runs; asked for when the planner has chosen the layouts."""
        op, backend, x, way = self.op, self.backend, self.x, self.way
        source = 1 if way is None else way.inputs[0] or 1
        blocked = way is not None and way.outputs[0] > 0
        groups, inputs, outputs = op.group, self.inputs, self.outputs
        depthwise = blocked and self.depthwise
        if depthwise:  # its blocks hold channels of many groups
            groups, inputs, outputs = 1, self.channels, self.channels
        windows, storage = Windows.of(op.geometry(x.shape, self.w)), backend.storage(x.dtype)
        problem = Problem(op, backend, windows, x.shape[0], self.channels, groups, inputs, outputs, storage, source, blocked)
        if depthwise:
            return DepthwisePlan(problem)
        if blocked and self.transposed:
            return TransposedPlan(problem)
        if blocked or (self.constant and not self.transposed and 2 * outputs >= backend.block_width):
            return WinogradPlan.best(problem) or ProductPlan(problem)
        return DirectPlan(problem, self.transposed)

    def largest_piece(self, inputs: Specs, outputs: Specs) -> int:
        return max(self.plan.pieces, default=0) if outputs[0].size else 0

    def loop_steps(self, inputs: Specs, outputs: Specs) -> int:
        return self.plan.loop_steps

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        return self.plan.scratch_bytes if outputs[0].size else 0

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        if outputs[0].spec.size:
            self.plan.record(inputs, outputs[0], scratch)


def supports_deformed(op: DeformConv, inputs: Specs, outputs: Specs) -> str | None:
    dtypes = {spec.dtype for spec in inputs if spec is not None}
    return None if len(dtypes) == 1 and dtypes <= {_FLOAT16, _FLOAT32} else f"no kernels for {', '.join(sorted(map(str, dtypes)))}"


@creator(DeformConv, supports=supports_deformed)
def create_deformed(op: DeformConv, backend, inputs: Specs, outputs: Specs) -> Execution:
    return DeformedExecution(op, backend, inputs)


class DeformedExecution(GpuExecution):
    """Image by image: the pixels under the taps are laid out, and then a product for each group."""

    def __init__(self, op: DeformConv, backend, inputs: Specs):
        super().__init__(op, backend)
        x, w = inputs[:2]
        self.channels, self.windows = x.shape[1], Windows.of(op.geometry(x.shape, w.shape))
        #: Pixels in whole vectors, so that products read them where they lie.
        self.pitch = column_vectors(self.windows.out_pixels, backend.block_width) * backend.block_width
        self.itemsize = backend.stored(x.dtype.itemsize, x.dtype)

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        return self.channels * self.windows.taps * self.pitch * self.itemsize if outputs[0].size else 0

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        (x, w, offset, bias, mask), y = (*inputs, None, None)[:5], outputs[0]
        op, backend, windows, block = self.op, self.backend, self.windows, self.backend.block_width
        if y.spec.size == 0:
            return
        groups, pixels, storage = op.group, windows.out_pixels, backend.storage(x.dtype)
        rows, depth = y.shape[1] // groups, self.channels // groups * windows.taps
        numbers, lines = np.arange(groups), self.channels * windows.taps
        for image in range(x.shape[0]):
            if lines:
                sizes = [n for three in windows for n in three[1:]]
                params = [*sizes, image, self.channels, op.offset_group, self.pitch, int(mask is not None)]
                found = kernel("convolution.deformed", storage=storage)
                backend.commands.record(found, [x, offset, offset if mask is None else mask, scratch], params, (pixels, lines))
            product = Product(
                rows=rows,
                columns=pixels,
                depth=depth,
                a=w,
                a_items=numbers * rows * depth,
                a_row=depth,
                a_step=1,
                b=Right(scratch if lines else x, numbers * depth * self.pitch // block, 1, self.pitch // block),
                c=y,
                c_items=(image * groups + numbers) * rows * pixels,
                c_row=pixels,
                bias=bias,
                bias_items=numbers * rows,
                bias_row=1,
                bias_column=int(bias is None),
            )
            record_product(backend, storage, product)
