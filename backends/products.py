"""Products of matrices, as their ops say them, for any device."""

from __future__ import annotations

from mnnx.backends.backend import Specs
from mnnx.schema.ops.base import Op
from mnnx.schema.ops.fused import FusedMatMul
from mnnx.schema.ops.matmul import MatMul
from mnnx.schema.records import Row


class Operands(Row):
    """activation(alpha * a' @ b' + bias + residual): which input is what (an index or None), and how much each counts."""

    transpose_a: bool = False
    transpose_b: bool = False
    alpha: float = 1.0
    bias: int | None = None
    beta: float = 1.0
    residual: int | None = None
    activation: str = ""
    activation_parameters: tuple[float, ...] = ()


def operands_of(op: Op, inputs: Specs) -> Operands:
    """How a MatMul, Gemm or FusedMatMul says it."""
    if isinstance(op, MatMul):
        return Operands()
    if isinstance(op, FusedMatMul):
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
    given = len(inputs) > 2 and inputs[2] is not None
    return Operands(op.transA, op.transB, op.alpha, 2 if given else None, op.beta)
