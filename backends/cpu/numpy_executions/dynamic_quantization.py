"""Products of bytes that become floats by a computed scale."""

from __future__ import annotations

import numpy as np

from mnnx.backends.cpu.numpy_executions import registry
from mnnx.backends.cpu.numpy_executions.fused import ACTIVATIONS
from mnnx.backends.cpu.numpy_executions.quantization import per_column
from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.schema.ops.dynamic_quantization import FusedDynamicQuantizeMatMul, FusedMatMulInteger
from mnnx.schema.ops.quantization import DynamicQuantizeLinear, MatMulInteger


@numpy_execution(FusedMatMulInteger)
def fused_matmul_integer(op: FusedMatMulInteger | FusedDynamicQuantizeMatMul, a, b, a_zero, b_zero, a_scale, b_scale=None, bias=None):
    (sums,) = registry.run(MatMulInteger(), [a, b, a_zero, b_zero])
    with np.errstate(all="ignore"):
        factors = a_scale.reshape(()) if b_scale is None else a_scale.reshape(()) * per_column(b_scale)
        real = sums.astype(np.float32) * factors
        if bias is not None:
            real = real + bias
        return np.asarray(ACTIVATIONS[op.activation](real, *op.activation_parameters)).astype(np.float32, copy=False)


@numpy_execution(FusedDynamicQuantizeMatMul)
def fused_dynamic_quantize_matmul(op: FusedDynamicQuantizeMatMul, x, b, b_zero=None, b_scale=None, bias=None):
    a, a_scale, a_zero = registry.run(DynamicQuantizeLinear(), [x])
    return fused_matmul_integer(op, a, b, a_zero, b_zero, a_scale, b_scale, bias)
