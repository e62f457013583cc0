"""Matrix products: vectors, broadcast batches, transposes, integers; sums over indices; determinants."""

import numpy as np

from mnnx.schema.ops.fused import ACTIVATIONS, FusedMatMul
from mnnx.schema.ops.matmul import Det, Einsum, Gemm, MatMul
from tests.cases import case, f16, f32, f64, integers
from tests.cases.convolution import PARAMETERS, naive_activation

case(MatMul(), f32(3, 4), f32(4, 5))
case(MatMul(), f32(33, 65), f32(65, 17))
case(MatMul(), f32(128, 96), f32(96, 64))
case(MatMul(), f32(1, 40), f32(40, 70))
case(MatMul(), f32(2, 3, 4), f32(2, 4, 5))
case(MatMul(), f32(2, 3, 4), f32(4, 5))
case(MatMul(), f32(3, 4), f32(2, 1, 4, 5))
case(MatMul(), f32(2, 1, 3, 4), f32(1, 5, 4, 2))
case(MatMul(), f32(4), f32(4))
case(MatMul(), f32(4), f32(2, 4, 3))
case(MatMul(), f32(2, 3, 4), f32(4))
case(MatMul(), f32(3, 0), f32(0, 5))
case(MatMul(), f32(0, 3), f32(3, 5))
case(MatMul(), f64(3, 4), f64(4, 5))
case(MatMul(), f16(3, 4), f16(4, 5), rtol=1e-2, atol=1e-2)
for dtype in ("int32", "int64", "uint32", "uint64"):
    case(MatMul(), integers(dtype, 3, 4), integers(dtype, 4, 5))

case(Gemm(), f32(3, 4), f32(4, 5), f32(3, 5))
case(Gemm(transB=True), f32(1, 64), f32(10, 64), f32(10))
case(Gemm(transA=True, alpha=0.5, beta=2.0), f32(4, 3), f32(4, 5), f32(1, 5))
case(Gemm(transA=True, transB=True), f32(4, 3), f32(5, 4), f32(3, 1))
case(Gemm(alpha=0.25), f32(7, 33), f32(33, 18))
case(Gemm(), f32(3, 4), f32(4, 5), f32())
case(Gemm(), f32(3, 0), f32(0, 5), f32(5))
case(Gemm(transA=True), f32(0, 3), f32(0, 5), f32(5))
case(Gemm(), f64(3, 4), f64(4, 5), f64(5))
case(Gemm(transB=True), f16(3, 4), f16(5, 4), f16(5), rtol=1e-2, atol=1e-2)

case(Einsum(equation="ij,jk->ik"), f32(3, 4), f32(4, 5))
case(Einsum(equation="ij->ji"), f32(3, 4))
case(Einsum(equation="ij->i"), f32(3, 4))
case(Einsum(equation="ii"), f32(4, 4))
case(Einsum(equation="ii->i"), f32(4, 4))
case(Einsum(equation="...ii->...i"), f32(3, 5, 5))
case(Einsum(equation="bij, bjk -> bik"), f32(5, 2, 3), f32(5, 3, 4))
case(Einsum(equation="...ij,...jk"), f32(2, 3, 4), f32(5, 1, 4, 2))
case(Einsum(equation="bhqd,bhkd->bhqk"), f32(2, 3, 4, 5), f32(2, 3, 6, 5))
case(Einsum(equation="i,i"), f32(5), f32(5))
case(Einsum(equation="i,j->ij"), f32(5), f32(3))
case(Einsum(equation="ij,jk,kl->il"), f32(2, 3), f32(3, 4), f32(4, 5))
case(Einsum(equation=",ij->ij"), f32(), f32(2, 3))
case(Einsum(equation="ij,jk->ik"), f64(3, 4), f64(4, 5))
case(Einsum(equation="ij,jk->ik"), integers("int32", 3, 4), integers("int32", 4, 5))

case(Det(), f32(3, 3))
case(Det(), f32(2, 5, 4, 4), rtol=1e-3, atol=1e-4)
case(Det(), f64(2, 1, 1))


def fused_matmul(op):
    """The reference of a FusedMatMul, in float64."""

    def reference(a, b, bias=None, residual=None):
        a, b = (np.swapaxes(m, -1, -2) if t else m for m, t in ((a, op.transpose_a), (b, op.transpose_b)))
        y = op.alpha * np.matmul(a.astype(np.float64), b.astype(np.float64))
        y = y + (0 if bias is None else bias) + (0 if residual is None else residual)
        return naive_activation(op.activation, op.activation_parameters, y).astype(a.dtype)

    return reference


def fused(op, *inputs):
    case(op, *inputs, reference=fused_matmul(op), rtol=1e-4, atol=1e-4)


for activation in ACTIVATIONS:
    fused(FusedMatMul(activation=activation, activation_parameters=PARAMETERS.get(activation, ())), f32(5, 7), f32(7, 18), f32(18))
fused(FusedMatMul(transpose_b=True), f32(2, 3, 4), f32(2, 5, 4))
fused(FusedMatMul(transpose_a=True, alpha=0.125), f32(2, 4, 3), f32(2, 4, 5), f32(5))
fused(FusedMatMul(transpose_a=True, transpose_b=True, activation="Relu"), f32(4, 33), f32(17, 4), f32(17), f32(33, 17))
fused(FusedMatMul(), f32(1, 64), f32(64, 40), None, f32(1, 40))
fused(FusedMatMul(activation="Gelu"), f32(2, 9, 16), f32(16, 32), f32(32), f32(2, 9, 32))
fused(FusedMatMul(), f32(3, 0), f32(0, 4), f32(4))
fused(FusedMatMul(transpose_a=True), f32(2, 0, 3), f32(2, 0, 5), f32(5))
fused(FusedMatMul(activation="Tanh"), f64(3, 4), f64(4, 5), f64(5))
