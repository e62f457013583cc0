"""Fused ops: those of the plain ones, with an epilogue."""

from __future__ import annotations

from mnnx.backends.backend import Execution, Specs
from mnnx.backends.cpu.creators import creator
from mnnx.backends.cpu.executions import convolution
from mnnx.backends.cpu.executions.matmul import Operands, ProductExecution, reason_against
from mnnx.schema.ops.fused import FusedConv, FusedConvTranspose, FusedMatMul

creator(FusedConv, supports=convolution.supports)(convolution.create)
creator(FusedConvTranspose, supports=convolution.supports_transposed)(convolution.create_transposed)


def _operands(op: FusedMatMul, inputs: Specs) -> Operands:
    bias, residual = (index if len(inputs) > index and inputs[index] is not None else None for index in (2, 3))
    return Operands(
        transpose_a=op.transpose_a,
        transpose_b=op.transpose_b,
        alpha=op.alpha,
        bias=bias,
        residual=residual,
        activation=op.activation,
        activation_parameters=op.activation_parameters,
    )


@creator(FusedMatMul, supports=lambda op, inputs, outputs: reason_against(_operands(op, inputs), inputs, outputs))
def create(op: FusedMatMul, backend, inputs: Specs, outputs: Specs) -> Execution:
    return ProductExecution(op, backend, _operands(op, inputs), inputs, outputs)
