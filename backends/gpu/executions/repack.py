"""Repack on GPUs."""

from __future__ import annotations

import math

from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.gpu.creators import creator
from mnnx.backends.gpu.execution import GpuExecution
from mnnx.backends.gpu.kernel import kernel
from mnnx.schema.ops.base import Op
from mnnx.schema.ops.repack import Repack


@creator(Repack)
def create(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return RepackExecution(op, backend)


class RepackExecution(GpuExecution):
    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        x, y = inputs[0], outputs[0]
        if x.spec.size == 0:
            return
        block, pixels, (n, channels) = x.layout or y.layout, math.prod(x.shape[2:]), x.shape[:2]
        blocks = -(-channels // block)
        way = "repack.to_blocks" if y.layout else "repack.from_blocks"
        found = kernel(way, storage=self.backend.storage(x.dtype), block=block)
        self.backend.commands.record(found, [x, y], [pixels, channels, blocks], (pixels, blocks, n))
