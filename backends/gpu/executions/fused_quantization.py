"""Quantized products with what follows them, and ByteTable, on GPUs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.gpu.creators import creator
from mnnx.backends.gpu.epilogue import activation_params
from mnnx.backends.gpu.execution import GpuExecution
from mnnx.backends.gpu.executions.byte_sums import packed_bytes, record_sums, sums_kernel
from mnnx.backends.gpu.executions.indexing import unmovable
from mnnx.backends.gpu.executions.quantized_products import supports_product
from mnnx.backends.gpu.kernel import Kernel, kernel
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.base import Op
from mnnx.schema.ops.fused_quantization import ByteTable, FusedQLinearMatMul

_FLOAT32 = np.dtype("float32")


def supports_fused(op: FusedQLinearMatMul, inputs: Specs, outputs: Specs) -> str | None:
    if any(spec is not None and spec.value is None for spec in (inputs[1], *inputs[4:])):
        return "its scales, zero points, bias and addend must be constant"
    if inputs[1].size > 1:
        return "no kernel for a scale for each row"
    return supports_product(op, inputs[:8], [inputs[7]])  # y has its zero point's dtype


@creator(FusedQLinearMatMul, supports=supports_fused)
def create_fused(op: FusedQLinearMatMul, backend, inputs: Specs, outputs: Specs) -> Execution:
    return FusedProductExecution(op, backend)


class FusedProductExecution(GpuExecution):
    """The sums in int32, in working memory, then what follows element by element."""

    def kernels(self, inputs: Specs, outputs: Specs) -> Sequence[Kernel]:
        a, _, _, b, _, b_zero = inputs[:6]
        return [sums_kernel(self.backend, a, b, b_zero), self._finish(outputs[0].dtype)]

    def largest_piece(self, inputs: Specs, outputs: Specs) -> int:
        return max(packed_bytes(self.backend, inputs[3]), self.scratch_bytes(inputs, outputs))

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        return 4 * outputs[0].size

    def _finish(self, dtype: np.dtype) -> Kernel:
        return kernel("quantization.finish", result=self.backend.storage(dtype))

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero, bias, addend, scale, zero = (*inputs, *[None] * 4)[:12]
        op, backend, (y,) = self.op, self.backend, outputs
        if not y.spec.size:
            return
        record_sums(backend, a, a_zero, b, b_zero, scratch, y.shape)
        factors = (a_scale.constant.reshape(-1) * b_scale.constant.reshape(-1)).astype(_FLOAT32) / y_scale.constant.reshape(-1)
        buffers = [scratch, bias or scratch, backend.table(factors)]
        buffers.append(scratch if addend is None else backend.table(addend.constant))
        params = [y.spec.size, y.shape[-1], int(bias is not None), int(addend is not None), int(factors.size > 1), int(scale is not None)]
        params += [*_range(y_scale, y_zero), *(_range(scale, zero) if scale is not None else (1.0, 0.0, 0.0, 0.0))]
        params += activation_params(op.activation, op.activation_parameters)
        backend.commands.record(self._finish(y.dtype), [*buffers, y], params, params[:1])


def _range(scale: DeviceTensor, zero: DeviceTensor) -> tuple[float, float, float, float]:
    """Scale and zero point, and the lowest and highest value of the zero point's dtype."""
    info = np.iinfo(zero.dtype)
    return float(scale.constant.item()), float(zero.constant.item()), float(info.min), float(info.max)


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
