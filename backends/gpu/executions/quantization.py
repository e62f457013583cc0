"""Linear quantization and products of quantized matrices on GPUs. Constant scales are read as float32 whatever the precision."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mnnx.backends import host
from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.gpu.creators import creator
from mnnx.backends.gpu.device import Memory
from mnnx.backends.gpu.execution import GpuExecution
from mnnx.backends.gpu.executions.indexing import strides_of
from mnnx.backends.gpu.kernel import Kernel, kernel
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.base import Op, Spec
from mnnx.schema.ops.cast import Cast, bits
from mnnx.schema.ops.quantization import (
    BYTES,
    FLOAT4,
    FLOATS8,
    SMALL_INTEGERS,
    DequantizeLinear,
    DynamicQuantizeLinear,
    MatMulInteger,
    QLinearMatMul,
    QuantizeLinear,
)

#: As in kernels/quantization.py.
GROUPS, ITEMS = 16, 64

_FLOAT32, _FLOAT16, _INT32 = np.dtype("float32"), np.dtype("float16"), np.dtype("int32")
_FLOATS = frozenset({_FLOAT32, _FLOAT16})
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
    if x.dtype not in _FLOATS | {_INT32} or y.dtype not in _INTEGERS:
        return f"no kernels that quantize {x.dtype} to {y.dtype}"
    if scale.dtype not in _FLOATS or (op.precision or scale.dtype) != _FLOAT32:
        return "no kernels for another precision than float32"
    return None


def supports_dequantize(op: DequantizeLinear, inputs: Specs, outputs: Specs) -> str | None:
    x, scale, y = inputs[0], inputs[1], outputs[0]
    known = x.dtype in _INTEGERS | _CODED | {_INT32}
    return None if known and {scale.dtype, y.dtype} <= _FLOATS else f"no kernels that dequantize {x.dtype} to {y.dtype} by {scale.dtype}"


@creator(QuantizeLinear, supports=supports_quantize)
def create_quantize(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return QuantizeExecution(op, backend)


@creator(DequantizeLinear, supports=supports_dequantize)
def create_dequantize(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return DequantizeExecution(op, backend)


class LinearExecution(GpuExecution):
    """A work item per element."""

    def scale_storage(self, scale: DeviceTensor | Spec) -> str:
        """Of scales on the device; constant ones are float32."""
        known = scale.value if isinstance(scale, Spec) else scale.constant
        return "float" if known is not None else self.backend.storage(scale.dtype)

    def scales(self, scale: DeviceTensor) -> DeviceTensor | Memory:
        return scale if scale.constant is None else self.backend.table(scale.constant.astype(_FLOAT32))

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
        return kernel("quantization.quantize", storage=storage, scale=self.scale_storage(scale), result=result)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        (x, scale, zero), y = (*inputs, None)[:3], outputs[0]
        if x.spec.size:
            buffers = [x, self.scales(scale), self.zeros(zero, scale, y.dtype), y]
            params = self.params(x.shape, scale.spec, y.dtype)
            self.backend.commands.record(self.kernel_for(x, scale, y), buffers, params, params[:1])


class DequantizeExecution(LinearExecution):
    def kernels(self, inputs: Specs, outputs: Specs) -> Sequence[Kernel]:
        return [self.kernel_for(inputs[0], inputs[1], outputs[0])]

    def kernel_for(self, x: Spec | DeviceTensor, scale: Spec | DeviceTensor, y: Spec | DeviceTensor) -> Kernel:
        storage, result = _storage_of(x.dtype), self.backend.storage(y.dtype)
        coded = x.dtype in _CODED
        return kernel("quantization.dequantize", storage=storage, scale=self.scale_storage(scale), result=result, coded=coded)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        (x, scale, zero), y = (*inputs, None)[:3], outputs[0]
        if not x.spec.size:
            return
        buffers = [x, self.scales(scale), self.zeros(zero, scale, x.dtype)]
        if x.dtype in _CODED:
            codes = np.arange(256, dtype=np.uint8).view(x.dtype)
            buffers.append(self.backend.table(host.run(Cast(to=_FLOAT32), [codes])[0]))
        params = self.params(x.shape, scale.spec, x.dtype)
        self.backend.commands.record(self.kernel_for(x, scale, y), [*buffers, y], params, params[:1])


def supports_dynamic(op: DynamicQuantizeLinear, inputs: Specs, outputs: Specs) -> str | None:
    if None in outputs or len(outputs) < 3:
        return "not all its results are wanted"
    return None if inputs[0].dtype in _FLOATS else f"no kernels for {inputs[0].dtype}"


@creator(DynamicQuantizeLinear, supports=supports_dynamic)
def create_dynamic(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return DynamicExecution(op, backend)


class DynamicExecution(GpuExecution):
    """The range by a few work groups, scale and zero point by one work item, then all elements."""

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        return 8 * GROUPS

    def kernel_for(self, x: Spec | DeviceTensor, scale: Spec | DeviceTensor) -> Kernel:
        storage, scales = (self.backend.storage(tensor.dtype) for tensor in (x, scale))
        return kernel("quantization.quantize", storage=storage, scale=scales, result="uchar")

    def kernels(self, inputs: Specs, outputs: Specs) -> Sequence[Kernel]:
        return [self.kernel_for(inputs[0], outputs[1])]

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        (x,), (y, scale, zero), commands = inputs, outputs, self.backend.commands
        found, total = kernel("quantization.range", storage=self.backend.storage(x.dtype)), x.spec.size
        commands.record(found, [x, scratch], [total], (GROUPS * ITEMS,), (ITEMS, 1, 1))
        found = kernel("quantization.parameters", storage=self.backend.storage(scale.dtype))
        commands.record(found, [scratch, scale, zero], [0], (1,))
        if total:
            commands.record(self.kernel_for(x, scale), [x, scale, zero, y], [total, 1, 1, 0, 0, 0, 1, 8, 0], (total,))


def _operands(op: Op, inputs: Sequence) -> tuple:
    """a, its zero point, b, its zero point; the scales of a, b and y, and y's zero point."""
    if isinstance(op, QLinearMatMul):
        a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = inputs
        return a, a_zero, b, b_zero, (a_scale, b_scale, y_scale, y_zero)
    a, b, a_zero, b_zero = (*inputs, None, None)[:4]
    return a, a_zero, b, b_zero, ()


def supports_product(op: Op, inputs: Specs, outputs: Specs) -> str | None:
    a, a_zero, b, b_zero, rest = _operands(op, inputs)
    if {a.dtype, b.dtype, outputs[0].dtype} - set(BYTES) - {_INT32}:
        return "only int8 and uint8 have kernels"
    if a.rank < 2 or b.rank < 2:
        return "no kernels for vectors"
    if any(spec is not None and spec.size != 1 and spec.rank > 1 for spec in (a_zero, b_zero, *rest)):
        return "no kernels for scales and zero points per matrix"
    if any(spec.value is None or spec.dtype not in _FLOATS for spec in rest[:3]):
        return "no kernels for scales that are computed"
    return None


@creator(MatMulInteger, QLinearMatMul, supports=supports_product)
def create_product(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return ProductExecution(op, backend)


class ProductExecution(GpuExecution):
    """A work item per element of the result."""

    def kernels(self, inputs: Specs, outputs: Specs) -> Sequence[Kernel]:
        a, _, b, *_ = _operands(self.op, inputs)
        return [self.kernel_for(a, b, outputs[0])]

    def kernel_for(self, a: Spec | DeviceTensor, b: Spec | DeviceTensor, y: Spec | DeviceTensor) -> Kernel:
        return kernel("quantization.product", a=_storage_of(a.dtype), b=_storage_of(b.dtype), result=_storage_of(y.dtype))

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        a, a_zero, b, b_zero, rest = _operands(self.op, inputs)
        y = outputs[0]
        if not y.spec.size:
            return
        rows, columns, depth = *y.shape[-2:], a.shape[-1]
        zeros = [self.backend.table(np.zeros(1, t.dtype)) if zero is None else zero for t, zero in ((a, a_zero), (b, b_zero))]
        buffers = [a, zeros[0], b, zeros[1], self._batches(a.shape, b.shape, y.shape)]
        params = [y.spec.size, rows, columns, depth, *(int(zero is not None and zero.spec.size > 1) for zero in (a_zero, b_zero))]
        if rest:
            buffers += [*(self.backend.table(scale.constant.astype(_FLOAT32)) for scale in rest[:3]), rest[3]]
            params += [int(scale.spec.size > 1) for scale in rest[:2]]
        self.backend.commands.record(self.kernel_for(a, b, y), [*buffers, y], params, params[:1])

    def _batches(self, a: tuple[int, ...], b: tuple[int, ...], y: tuple[int, ...]) -> Memory:
        """The first elements of the matrices a and b of each batch."""
        batches = y[:-2]
        index = np.indices(batches).reshape(len(batches), math.prod(batches))
        firsts = np.zeros((2, math.prod(batches)), np.int64)
        for first, shape in zip(firsts, (a, b), strict=True):
            padded = (1,) * (len(batches) - len(shape) + 2) + shape
            for place, size, stride in zip(index, padded, strides_of(padded), strict=False):
                first += (place if size > 1 else 0) * stride
        return self.backend.table(np.ascontiguousarray(firsts.T).astype(np.int32))
