"""Linear quantization on GPUs. Constant scales are read as float32 whatever the precision."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mnnx.backends import host
from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.gpu.constants import RANGE_GROUPS, RANGE_TEAM
from mnnx.backends.gpu.creators import creator
from mnnx.backends.gpu.device import Memory
from mnnx.backends.gpu.execution import GpuExecution
from mnnx.backends.gpu.executions.quantized_products import (
    ConvolutionExecution,
    FinishedProductExecution,
    ProductExecution,
    QuantizedExecution,
    SumsExecution,
    has_constants,
    supports_convolution,
    supports_product,
)
from mnnx.backends.gpu.floats import FLOATS, floats_only
from mnnx.backends.gpu.kernel import Kernel, kernel
from mnnx.backends.gpu.steps import nested
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.base import Op, Spec
from mnnx.schema.ops.cast import Cast, bits
from mnnx.schema.ops.quantization import (
    FLOAT4,
    FLOATS8,
    SMALL_INTEGERS,
    ConvInteger,
    DequantizeLinear,
    DynamicQuantizeLinear,
    MatMulInteger,
    QLinearConv,
    QLinearMatMul,
    QuantizeLinear,
)

_FLOAT32, _FLOAT16, _INT32 = np.dtype("float32"), np.dtype("float16"), np.dtype("int32")
_INTEGERS = frozenset(np.dtype(t) for t in ("int8", "uint8", "int16", "uint16")) | frozenset(SMALL_INTEGERS)
_CODED = frozenset((*FLOATS8, FLOAT4))


def _storage_of(dtype: np.dtype) -> str:
    """The storage of an integer, or of bytes that stand for something else."""
    if dtype in _CODED:
        return "uchar"
    small = {"int8": "char", "int4": "uchar", "int2": "uchar", "uint8": "uchar", "uint4": "uchar", "uint2": "uchar"}
    return small.get(dtype.name) or {"int16": "short", "uint16": "ushort", "int32": "int"}[dtype.name]


def _signed(dtype: np.dtype) -> int:
    return int(not dtype.name.startswith("u"))


def supports_quantize(op: QuantizeLinear, inputs: Specs, outputs: Specs) -> str | None:
    x, scale, y = inputs[0], inputs[1], outputs[0]
    if x.dtype not in FLOATS | {_INT32} or y.dtype not in _INTEGERS:
        return f"no kernels that quantize {x.dtype} to {y.dtype}"
    if scale.dtype not in FLOATS or (op.precision or scale.dtype) != _FLOAT32:
        return "no kernels for another precision than float32"
    return None


def supports_dequantize(op: DequantizeLinear, inputs: Specs, outputs: Specs) -> str | None:
    x, scale, y = inputs[0], inputs[1], outputs[0]
    known = x.dtype in _INTEGERS | _CODED | {_INT32}
    return None if known and {scale.dtype, y.dtype} <= FLOATS else f"no kernels that dequantize {x.dtype} to {y.dtype} by {scale.dtype}"


@creator(QuantizeLinear, supports=supports_quantize)
def create_quantize(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return QuantizeExecution(op, backend)


@creator(DequantizeLinear, supports=supports_dequantize)
def create_dequantize(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return DequantizeExecution(op, backend)


class LinearExecution(QuantizedExecution):
    """A work item per element."""

    def zeros(self, zero: DeviceTensor | None, scale: DeviceTensor, dtype: np.dtype) -> DeviceTensor | Memory:
        return self.backend.table(np.zeros(scale.spec.size, dtype)) if zero is None else zero

    def params(self, shape: Sequence[int], scale: Spec, dtype: np.dtype) -> list[int]:
        """What the kernels take: which parameter an element has, and what its integer is."""
        total, block = math.prod(shape), self.op.block_size or 1
        width = [bits(dtype), _signed(dtype)]
        if scale.size == 1:
            return [total, 1, 1, 0, 0, 0, 1, *width]
        axis = self.op.axis % len(shape)
        inner, dim = math.prod(shape[axis + 1 :]), shape[axis]
        if scale.rank == 1 and not self.op.block_size:
            return [total, inner, dim, 0, 1, 0, 1, *width]
        return [total, inner, dim, scale.shape[axis] * inner, inner, 1, block, *width]


class QuantizeExecution(LinearExecution):
    def kernels(self, inputs: Specs, outputs: Specs) -> Sequence[Kernel]:
        return [self.kernel_for(inputs[0], inputs[1], outputs[0])]

    def kernel_for(self, x: Spec | DeviceTensor, scale: Spec | DeviceTensor, y: Spec | DeviceTensor) -> Kernel:
        result, storage = _storage_of(y.dtype), self.backend.storage(x.dtype)
        return kernel("quantization.quantize", storage=storage, scale=self.scale_storage([scale]), result=result)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        (x, scale, zero), y = (*inputs, None)[:3], outputs[0]
        if x.spec.size:
            buffers = [x, *self.scales([scale]), self.zeros(zero, scale, y.dtype), y]
            params = self.params(x.shape, scale.spec, y.dtype)
            self.backend.commands.record(self.kernel_for(x, scale, y), buffers, params, params[:1])


class DequantizeExecution(LinearExecution):
    def kernels(self, inputs: Specs, outputs: Specs) -> Sequence[Kernel]:
        return [self.kernel_for(inputs[0], inputs[1], outputs[0])]

    def kernel_for(self, x: Spec | DeviceTensor, scale: Spec | DeviceTensor, y: Spec | DeviceTensor) -> Kernel:
        storage, result = _storage_of(x.dtype), self.backend.storage(y.dtype)
        coded = x.dtype in _CODED
        return kernel("quantization.dequantize", storage=storage, scale=self.scale_storage([scale]), result=result, coded=coded)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        (x, scale, zero), y = (*inputs, None)[:3], outputs[0]
        if not x.spec.size:
            return
        buffers = [x, *self.scales([scale]), self.zeros(zero, scale, x.dtype)]
        if x.dtype in _CODED:
            codes = np.arange(256, dtype=np.uint8).view(x.dtype)
            buffers.append(self.backend.table(host.run(Cast(to=_FLOAT32), [codes])[0]))
        params = self.params(x.shape, scale.spec, x.dtype)
        self.backend.commands.record(self.kernel_for(x, scale, y), [*buffers, y], params, params[:1])


def supports_dynamic(op: DynamicQuantizeLinear, inputs: Specs, outputs: Specs) -> str | None:
    if None in outputs or len(outputs) < 3:
        return "not all its results are wanted"
    return floats_only(op, inputs, outputs)


@creator(DynamicQuantizeLinear, supports=supports_dynamic)
def create_dynamic(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return DynamicExecution(op, backend)


class DynamicExecution(GpuExecution):
    """The range by a few work groups, scale and zero point by one work item, then all elements."""

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        return 8 * RANGE_GROUPS

    def loop_steps(self, inputs: Specs, outputs: Specs) -> int:
        return steps_of_range(inputs[0].size)

    def kernels(self, inputs: Specs, outputs: Specs) -> Sequence[Kernel]:
        return [quantize_kernel(self.backend, inputs[0], self.backend.storage(outputs[1].dtype))]

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        (x,), (y, scale, zero) = inputs, outputs
        record_dynamic(self.backend, x, scratch, y, scale, zero, self.backend.storage(scale.dtype))


def quantize_kernel(backend, x: Spec | DeviceTensor, storage: str) -> Kernel:
    """What makes uint8s of x by a scale of that storage."""
    return kernel("quantization.quantize", storage=backend.storage(x.dtype), scale=storage, result="uchar")


def record_dynamic(
    backend, x: DeviceTensor, ends: DeviceTensor, y: DeviceTensor, scale: DeviceTensor, zero: DeviceTensor, storage: str
) -> None:  # fmt: skip
    """DynamicQuantizeLinear, with a scale of that storage. ends: 8 * RANGE_GROUPS bytes to work in."""
    total = x.spec.size
    record_range(backend, x, ends, scale, zero, storage)
    if total:
        params = [total, 1, 1, 0, 0, 0, 1, 8, 0]
        backend.commands.record(quantize_kernel(backend, x, storage), [x, scale, zero, y], params, (total,))


def steps_of_range(total: int) -> int:
    """Of a work item of what `record_range` records for so many elements."""
    return nested(-(-total // (RANGE_GROUPS * RANGE_TEAM)))


def record_range(backend, x: DeviceTensor, ends: DeviceTensor, scale: DeviceTensor, zero: DeviceTensor, storage: str) -> None:
    """The scale, of that storage, and zero point (uint8) that spread x's values over 0 … 255. ends: 8 * RANGE_GROUPS bytes to work in."""
    found = kernel("quantization.range", storage=backend.storage(x.dtype))
    backend.commands.record(found, [x, ends], [x.spec.size], (RANGE_GROUPS * RANGE_TEAM,), (RANGE_TEAM, 1, 1))
    backend.commands.record(kernel("quantization.parameters", storage=storage), [ends, scale, zero], [255.0], (1,))


@creator(MatMulInteger, supports=supports_product)
def create_sums(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return SumsExecution(op, backend)


@creator(QLinearMatMul, supports=supports_product)
def create_product(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return FinishedProductExecution(op, backend) if has_constants(inputs) else ProductExecution(op, backend)


@creator(ConvInteger, QLinearConv, supports=supports_convolution)
def create_convolution(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return ConvolutionExecution(op, backend)
