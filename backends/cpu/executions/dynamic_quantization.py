"""Products of bytes that become floats by a computed scale, while their sums are in the cache."""

from __future__ import annotations

import numpy as np

from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.cpu.arguments import address_of, round_up
from mnnx.backends.cpu.creators import creator
from mnnx.backends.cpu.executions.dot import Zero
from mnnx.backends.cpu.executions.dot_matrix import Finish, MatrixProduct
from mnnx.backends.cpu.executions.quantization import MatrixExecution, ranges_bytes, record_dynamic, supports_product
from mnnx.backends.cpu.kernels.blocks import epilogue
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.dynamic_quantization import FusedDynamicQuantizeMatMul, FusedMatMulInteger
from mnnx.schema.ops.fused import Fused

_FLOAT32, _UINT8 = np.dtype("float32"), np.dtype("uint8")


def _finish(op: Fused, a_scale: int, b_scale: DeviceTensor | None, bias: DeviceTensor | None) -> Finish:
    """`a_scale`: its address."""
    finish = Finish(_FLOAT32, multiplier=a_scale)
    if b_scale is not None:
        finish = finish._replace(factors=b_scale.constant)
    if bias is not None:
        finish = finish._replace(addends=bias.constant)
    kind, parameters = epilogue(op.activation, op.activation_parameters)
    return finish._replace(kind=kind, parameters=parameters)


def supports(op: FusedMatMulInteger, inputs: Specs, outputs: Specs) -> str | None:
    if any(spec is not None and spec.value is None for spec in inputs[5:]):
        return "b's scales and the bias must be constant"
    return supports_product(op, inputs[:4], outputs)


@creator(FusedMatMulInteger, supports=supports)
def create(op: FusedMatMulInteger, backend, inputs: Specs, outputs: Specs) -> Execution:
    return ScaledExecution(op, backend, inputs, outputs)


class ScaledExecution(MatrixExecution):
    """FusedMatMulInteger."""

    def finish(self, inputs: Tensors, outputs: Tensors) -> tuple[Finish, np.ndarray | None]:
        a_scale, b_scale, bias = (*inputs[4:], None, None)[:3]
        return _finish(self.op, address_of(a_scale), b_scale, bias), None


def supports_dynamic(op: FusedDynamicQuantizeMatMul, inputs: Specs, outputs: Specs) -> str | None:
    if any(spec is not None and spec.value is None for spec in inputs[3:]):
        return "b's scales and the bias must be constant"
    return supports_product(op, op.product_inputs(*inputs), outputs)


@creator(FusedDynamicQuantizeMatMul, supports=supports_dynamic)
def create_dynamic(op: FusedDynamicQuantizeMatMul, backend, inputs: Specs, outputs: Specs) -> Execution:
    return DynamicExecution(op, backend, inputs, outputs)


class DynamicExecution(Execution):
    """FusedDynamicQuantizeMatMul. Working memory: scale and zero point of x, the ranges of its parts, x in bytes, that of the product."""

    def __init__(self, op: FusedDynamicQuantizeMatMul, backend, inputs: Specs, outputs: Specs):
        super().__init__(op, backend)
        self.size, self.x_size = outputs[0].size, inputs[0].size
        a, b, _, b_zero = self.op.product_inputs(*inputs)
        self.product = MatrixProduct(backend, a, b, None if b_zero is None else b_zero.value)

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        return 64 + ranges_bytes(self.backend, self.x_size) + round_up(self.x_size) + self.product.scratch_bytes if self.size else 0

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        if not self.size:
            return
        x, b, _, b_scale, bias = (*inputs, None, None, None)[:5]
        scale = address_of(scratch)
        zero, ranges = scale + 4, scale + 64
        quantized = ranges + ranges_bytes(self.backend, self.x_size)
        record_dynamic(self.backend, x, ranges, quantized, scale, zero)
        left, rest = Zero(zero, _UINT8), quantized + round_up(self.x_size)
        self.product.record(quantized, left, b, outputs[0], rest, _finish(self.op, scale, b_scale, bias), None)
