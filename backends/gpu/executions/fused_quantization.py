"""Quantized products with what follows them, and ByteTable, on GPUs."""

from __future__ import annotations

from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.gpu.creators import creator
from mnnx.backends.gpu.execution import GpuExecution
from mnnx.backends.gpu.executions.indexing import unmovable
from mnnx.backends.gpu.executions.quantized_products import FinishedProductExecution, supports_fused_product
from mnnx.backends.gpu.kernel import kernel
from mnnx.schema.ops.base import Op
from mnnx.schema.ops.fused_quantization import ByteTable, FusedQLinearMatMul


@creator(FusedQLinearMatMul, supports=supports_fused_product)
def create_product(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return FinishedProductExecution(op, backend)


@creator(ByteTable, supports=lambda op, inputs, outputs: unmovable(outputs[0]))
def create_table(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return ByteTableExecution(op, backend)


class ByteTableExecution(GpuExecution):
    """A work item per byte."""

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        (x, table), (y,), total = inputs, outputs, outputs[0].spec.size
        if total:
            storage, width, _ = self.backend.raw_storage(y.dtype)
            self.backend.commands.record(kernel("cast.table", storage=storage, width=width), [x, table, y], [total], (total,))
