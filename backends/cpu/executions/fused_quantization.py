"""Quantized products with what follows them, and functions of single bytes."""

from __future__ import annotations

import numpy as np

from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.cpu.arguments import arguments
from mnnx.backends.cpu.chaining import Elements, Operand
from mnnx.backends.cpu.creators import creator
from mnnx.backends.cpu.executions.dot_matrix import Finish
from mnnx.backends.cpu.executions.quantization import MatrixExecution, supports_product
from mnnx.backends.cpu.kernel import kernel
from mnnx.backends.cpu.kernels.blocks import epilogue
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.fused_quantization import ByteTable, FusedQLinearMatMul


def supports(op: FusedQLinearMatMul, inputs: Specs, outputs: Specs) -> str | None:
    if any(spec is not None and spec.value is None for spec in inputs[8:]):
        return "bias, addend, scales and zero points must be constant"
    return supports_product(op, inputs, outputs)


@creator(FusedQLinearMatMul, supports=supports)
def create(op: FusedQLinearMatMul, backend, inputs: Specs, outputs: Specs) -> Execution:
    return FusedMatrixExecution(op, backend, inputs, outputs)


class FusedMatrixExecution(MatrixExecution):
    """QLinearMatMul, and what follows it while the sums are in the cache."""

    def finish(self, inputs: Tensors, outputs: Tensors) -> tuple[Finish, np.ndarray | None]:
        given = [None if tensor is None else tensor.constant for tensor in inputs[8:]]
        bias, addend, out_scale, out_zero = (*given, None, None, None, None)[:4]
        plain, _ = super().finish(inputs, outputs)
        if not self.op.dequantizes:
            return plain, bias
        scale, zero = inputs[6].constant.item(), inputs[7].constant
        info = np.iinfo(zero.dtype)
        kind, parameters = epilogue(self.op.activation, self.op.activation_parameters)
        return plain._replace(
            target=outputs[0].dtype,
            rounds=True,
            kind=kind,
            addends=np.zeros(1, np.float32) if addend is None else addend,
            low=info.min - float(zero.item()),
            high=info.max - float(zero.item()),
            scale=scale,
            out_scale=1.0 if out_scale is None else out_scale.item(),
            out_zero=0.0 if out_zero is None else float(out_zero.item()),
            parameters=parameters,
        ), bias


def supports_table(op: ByteTable, inputs: Specs, outputs: Specs) -> str | None:
    return None if outputs[0].dtype.itemsize in (1, 4) else "only tables of 8 and 32 bits are native"


@creator(ByteTable, supports=supports_table)
def create_table(op: ByteTable, backend, inputs: Specs, outputs: Specs) -> Execution:
    return TableExecution(op, backend)


class TableExecution(Execution):
    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        x, table = inputs
        if not x.spec.size:
            return
        y, count, work = outputs[0], x.spec.size, x.spec.size / 2
        lookup = kernel("byte_table", size=y.dtype.itemsize)
        read = Operand.of(x, x.shape, count), Operand.of(table, table.shape, 0)
        elements = Elements(count, Operand.of(y, y.shape, count), read, work)
        self.backend.commands.record(lookup, arguments(x, y, table, count), self.backend.chunks(work), elements=elements)
