"""Repack on the CPU: between plain and blocked tensors."""

from __future__ import annotations

import math

from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.cpu.arguments import arguments
from mnnx.backends.cpu.creators import creator
from mnnx.backends.cpu.kernel import kernel
from mnnx.schema.ops.base import Op
from mnnx.schema.ops.repack import Repack


@creator(Repack)
def create(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return RepackExecution(op, backend)


class RepackExecution(Execution):
    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        x, y = inputs[0], outputs[0]
        if x.spec.size == 0:
            return
        lanes, pixels = x.layout or y.layout, math.prod(x.shape[2:])
        function = kernel("repack", lanes=lanes, to_blocks=y.layout != 0)
        self.backend.commands.record(function, arguments(x, y, *x.shape[:2], pixels), self.backend.chunks(x.spec.size / lanes))
