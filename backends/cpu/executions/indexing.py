"""Gather on the CPU, at indices that are only known when it runs (known ones become a Raster)."""

from __future__ import annotations

import math

from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.cpu.arguments import arguments
from mnnx.backends.cpu.creators import creator
from mnnx.backends.cpu.kernel import kernel
from mnnx.schema.dtypes import STRING
from mnnx.schema.ops.base import Op
from mnnx.schema.ops.indexing import Gather


def supports(op: Op, inputs: Specs, outputs: Specs) -> str | None:
    return "no kernel for strings" if inputs[0].dtype == STRING else None


@creator(Gather, supports=supports)
def create(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return GatherExecution(op, backend)


class GatherExecution(Execution):
    """Rows of [outer, rows, n]; an index out of range ends the run with an InputError."""

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        data, indices = inputs
        axis = self.op.axis % data.spec.rank
        outer, rows, count = math.prod(data.shape[:axis]), data.shape[axis], indices.spec.size
        n, element = math.prod(data.shape[axis + 1 :]), data.dtype.itemsize
        if element > 8:
            n, element = n * element // 8, 8
        if outer * count * n == 0:
            return
        fault = self.backend.commands.fault(f"Gather's index {{}} is outside [-{rows}, {rows}), the range of axis {axis} of {data.spec}")
        block = arguments(data, indices, outputs[0], outer * count, rows, count, n, *fault)
        chunks = self.backend.chunks(outputs[0].spec.nbytes / 16 + 4 * outer * count)
        self.backend.commands.record(kernel("gather", element=element, index=indices.dtype.name), block, chunks)
