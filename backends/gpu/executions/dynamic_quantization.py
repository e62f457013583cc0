"""Products of bytes that become floats by a computed scale, on GPUs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.gpu.constants import RANGE_GROUPS
from mnnx.backends.gpu.creators import creator
from mnnx.backends.gpu.execution import GpuExecution
from mnnx.backends.gpu.executions.byte_sums import packed_bytes, record_sums, steps_of_sums, sums_kernel
from mnnx.backends.gpu.executions.quantization import quantize_kernel, record_dynamic, steps_of_range
from mnnx.backends.gpu.executions.quantized_products import finish_kernel, record_finish, supports_product
from mnnx.backends.gpu.kernel import Kernel
from mnnx.backends.gpu.working_memory import bytes_of, cut
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.base import Op, Spec
from mnnx.schema.ops.dynamic_quantization import FusedDynamicQuantizeMatMul, FusedMatMulInteger

_FLOAT32, _UINT8, _INT32 = np.dtype("float32"), np.dtype("uint8"), np.dtype("int32")


def supports(op: FusedMatMulInteger, inputs: Specs, outputs: Specs) -> str | None:
    if any(spec is not None and spec.value is None for spec in inputs[5:]):
        return "b's scales and the bias must be constant"
    return supports_product(op, inputs[:4], [Spec(_INT32, outputs[0].shape)])


@creator(FusedMatMulInteger, supports=supports)
def create(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return ScaledExecution(op, backend)


class ScaledExecution(GpuExecution):
    """FusedMatMulInteger: sums in int32, in working memory, then what follows."""

    def kernels(self, inputs: Specs, outputs: Specs) -> Sequence[Kernel]:
        a, b, _, b_zero = inputs[:4]
        return [sums_kernel(self.backend, a, b, b_zero), finish_kernel(self.backend, outputs[0])]

    def largest_piece(self, inputs: Specs, outputs: Specs) -> int:
        return max(packed_bytes(self.backend, inputs[1]), self.scratch_bytes(inputs, outputs))

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        return 4 * outputs[0].size

    def loop_steps(self, inputs: Specs, outputs: Specs) -> int:
        a, b, _, b_zero = inputs[:4]
        return steps_of_sums(self.backend, a, b, b_zero)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        if outputs[0].spec.size:
            a, b, a_zero, b_zero, a_scale, b_scale, bias = (*inputs, None, None)[:7]
            self.record(a, a_zero, a_scale, b, b_zero, b_scale, bias, scratch, outputs[0])

    def record(
        self,
        a: DeviceTensor,
        a_zero: DeviceTensor | None,
        a_scale: DeviceTensor,
        b: DeviceTensor,
        b_zero: DeviceTensor | None,
        b_scale: DeviceTensor | None,
        bias: DeviceTensor | None,
        sums: DeviceTensor,
        y: DeviceTensor,
    ) -> None:
        """a_scale has the storage of float32s."""
        record_sums(self.backend, a, a_zero, b, b_zero, sums, y.shape)
        factors = np.ones(1, _FLOAT32) if b_scale is None else b_scale.constant.reshape(-1)
        record_finish(self.backend, self.op, sums, y, factors, addend=bias, multiplier=a_scale)


def supports_dynamic(op: FusedDynamicQuantizeMatMul, inputs: Specs, outputs: Specs) -> str | None:
    if any(spec is not None and spec.value is None for spec in inputs[3:]):
        return "b's scales and the bias must be constant"
    return supports_product(op, op.product_inputs(*inputs), [Spec(_INT32, outputs[0].shape)])


@creator(FusedDynamicQuantizeMatMul, supports=supports_dynamic)
def create_dynamic(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return DynamicExecution(op, backend)


class DynamicExecution(ScaledExecution):
    """FusedDynamicQuantizeMatMul. Working memory: x's range, scale, zero point and bytes, then the sums."""

    def _parts(self, inputs: Specs, outputs: Specs) -> tuple[int, ...]:
        x = inputs[0]
        return 8 * RANGE_GROUPS, 4, 1, max(1, x.size), 4 * outputs[0].size

    def kernels(self, inputs: Specs, outputs: Specs) -> Sequence[Kernel]:
        return [
            *super().kernels(self.op.product_inputs(*inputs), outputs),
            quantize_kernel(self.backend, inputs[0], self.backend.storage(_FLOAT32)),
        ]

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        return bytes_of(self.backend, self._parts(inputs, outputs))

    def largest_piece(self, inputs: Specs, outputs: Specs) -> int:
        return max(packed_bytes(self.backend, inputs[1]), *self._parts(inputs, outputs))

    def loop_steps(self, inputs: Specs, outputs: Specs) -> int:
        return max(super().loop_steps(self.op.product_inputs(*inputs), outputs), steps_of_range(inputs[0].size))

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        if not outputs[0].spec.size:
            return
        x, b, b_zero, b_scale, bias = (*inputs, None, None, None)[:5]
        ends, scale, zero, integers, sums = cut(scratch, self._parts([x.spec], [outputs[0].spec]))
        integers = integers.reshaped(Spec(_UINT8, x.shape))
        record_dynamic(self.backend, x, ends, integers, scale, zero, self.backend.storage(_FLOAT32))
        self.record(integers, zero, scale, b, b_zero, b_scale, bias, sums, outputs[0])
