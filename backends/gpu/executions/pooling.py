"""Poolings on GPUs: over windows, and over whole channels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mnnx.backends.backend import Execution, Layouts, Specs, Tensors
from mnnx.backends.blocked import blocked_shape
from mnnx.backends.gpu.constants import POOL_TEAM, WINDOW_DIMS
from mnnx.backends.gpu.creators import creator
from mnnx.backends.gpu.execution import GpuExecution
from mnnx.backends.gpu.floats import FLOATS, floats_only
from mnnx.backends.gpu.kernel import kernel
from mnnx.backends.gpu.steps import nested
from mnnx.schema.ops.base import Op
from mnnx.schema.ops.pooling import AveragePool, GlobalAveragePool, GlobalLpPool, GlobalMaxPool, LpPool, MaxPool
from mnnx.schema.ops.windows import ConvGeometry

_BYTES = frozenset(np.dtype(t) for t in ("int8", "uint8"))


def supports(op: Op, inputs: Specs, outputs: Specs) -> str | None:
    if outputs[0] is None:
        return "only indices are wanted"
    if inputs[0].dtype not in FLOATS | (_BYTES if isinstance(op, MaxPool) else frozenset()):
        return f"no kernels for {inputs[0].dtype}"
    return f"more than {WINDOW_DIMS} spatial dims" if inputs[0].rank > 2 + WINDOW_DIMS else None


@creator(MaxPool, AveragePool, LpPool, supports=supports)
def create(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return PoolExecution(op, backend, inputs)


@creator(GlobalAveragePool, GlobalMaxPool, GlobalLpPool, supports=floats_only)
def create_whole(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return WholePoolExecution(op, backend)


class PoolExecution(GpuExecution):
    """A work item per window."""

    def __init__(self, op: Op, backend, inputs: Specs):
        super().__init__(op, backend)
        self.geometry = op.geometry(inputs[0].shape)

    def loop_steps(self, inputs: Specs, outputs: Specs) -> int:
        powers = (self.op.p - 1,) if isinstance(self.op, LpPool) else ()
        return nested(*self.geometry.kernel, *powers)

    def layouts(self, inputs: Specs, outputs: Specs, lanes: int) -> Sequence[Layouts]:
        if isinstance(self.op, LpPool) or (len(outputs) > 1 and outputs[1] is not None):
            return ()
        if isinstance(self.op, MaxPool) and inputs[0].shape[1] % lanes and not self.geometry.all_see_the_input:
            return ()  # such a window is minus infinity, also in the lanes past the last channel
        return Layouts.of_images(inputs, outputs, lanes)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        x, y, index = inputs[0], outputs[0], (*outputs, None)[1]
        if x.spec.size == 0:
            return
        op, geometry, storage, width = self.op, self.geometry, self.backend.storage(x.dtype), x.layout or 1
        rows = math.prod(blocked_shape(x.shape, width)[:2])
        total = rows * math.prod(geometry.output)
        params = [total, *three_dims(geometry)]
        if index is not None:
            found = kernel("pooling.max_indices", storage=storage)
            self.backend.commands.record(found, [x, y, index], [*params, int(op.storage_order)], (total,))
        elif isinstance(op, MaxPool):
            self.backend.commands.record(kernel("pooling.max", storage=storage, width=width), [x, y], params, (total,))
        elif isinstance(op, AveragePool):
            found = kernel("pooling.mean", storage=storage, width=width)
            self.backend.commands.record(found, [x, y], [*params, int(op.count_include_pad)], (total,))
        else:
            self.backend.commands.record(kernel("pooling.norm", storage=storage), [x, y], [*params, op.p], (total,))


class WholePoolExecution(GpuExecution):
    """A work group per channel, or block of channels."""

    def layouts(self, inputs: Specs, outputs: Specs, lanes: int) -> Sequence[Layouts]:
        return () if isinstance(self.op, GlobalLpPool) else Layouts.of_images(inputs, outputs, lanes)

    def loop_steps(self, inputs: Specs, outputs: Specs) -> int:
        powers = (self.op.p - 1,) if isinstance(self.op, GlobalLpPool) else ()
        return nested(-(-math.prod(inputs[0].shape[2:]) // POOL_TEAM), *powers)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        x, y = inputs[0], outputs[0]
        width = x.layout or 1
        rows = math.prod(blocked_shape(x.shape, width)[:2])
        if not rows:
            return
        combine = {GlobalAveragePool: "mean", GlobalMaxPool: "max", GlobalLpPool: "norm"}[type(self.op)]
        found = kernel("pooling.whole", storage=self.backend.storage(x.dtype), width=width, combine=combine)
        params = [rows, math.prod(x.shape[2:]), getattr(self.op, "p", 0)]
        self.backend.commands.record(found, [x, y], params, (rows * POOL_TEAM,), (POOL_TEAM, 1, 1))


def three_dims(geometry: ConvGeometry) -> list[int]:
    """Of three spatial dims, the first ones of size 1 where there are fewer: as the kernels take them."""
    g, more = geometry, WINDOW_DIMS - len(geometry.input)
    rows = ((g.input, 1), (g.kernel, 1), (g.strides, 1), (g.dilations, 1), (g.begin, 0), (g.end, 0), (g.output, 1))
    return [n for values, neutral in rows for n in (*(neutral,) * more, *values)]
