"""Quantized products with what follows them, and functions of single bytes."""

import numpy as np

from mnnx.backends.cpu.numpy_executions.fused import ACTIVATIONS
from mnnx.backends.cpu.numpy_executions.quantization import (
    centred,
    exact_float,
    per_column,
    per_row,
    requantize,
    saturated,
    to_int32,
)
from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.schema.ops.fused_quantization import ByteTable, ByteTableConcat, FusedQLinearMatMul


@numpy_execution(FusedQLinearMatMul)
def fused_qlinear_matmul(
    op, a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero, bias=None, addend=None, out_scale=None, out_zero=None
) -> np.ndarray:
    wide = exact_float(a.shape[-1], a, b)
    product = np.matmul(centred(a, per_row(a_zero, a), wide), centred(b, per_column(b_zero), wide))
    if bias is not None:
        product = product.astype(np.float64) + bias
    scale = per_row(a_scale, a).astype(np.float32) * per_column(b_scale).astype(np.float32) / y_scale.reshape(())
    y = requantize(to_int32(product), scale, y_zero)
    if not op.dequantizes:
        return y
    real = centred(y, y_zero.reshape(()), np.float32) * y_scale.reshape(())
    if addend is not None:
        real = real + addend
    with np.errstate(all="ignore"):
        real = np.asarray(ACTIVATIONS[op.activation](real, *op.activation_parameters)).astype(np.float32, copy=False)
        return real if out_scale is None else saturated(real / out_scale.reshape(()), out_zero.reshape(()), out_zero.dtype)


@numpy_execution(ByteTable)
def byte_table(op: ByteTable, x: np.ndarray, table: np.ndarray) -> np.ndarray:
    return table[x.view(np.uint8)]


@numpy_execution(ByteTableConcat)
def byte_table_concat(op: ByteTableConcat, *inputs: np.ndarray | None) -> np.ndarray:
    return np.concatenate([x if table is None else table[x.view(np.uint8)] for x, table in op.pairs(inputs)], op.axis)
