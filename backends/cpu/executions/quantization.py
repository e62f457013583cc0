"""Quantization between float32 and integers of 8 and 16 bits, and products of quantized tensors."""

from __future__ import annotations

import math

import numpy as np

from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.cpu.arguments import address_of, arguments
from mnnx.backends.cpu.creators import creator
from mnnx.backends.cpu.kernel import kernel
from mnnx.backends.cpu.kernels.blocks import DynamicRange, Linear
from mnnx.backends.cpu.tiling import Tiling
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.base import Op
from mnnx.schema.ops.quantization import DequantizeLinear, DynamicQuantizeLinear, QuantizeLinear

_FLOAT32 = np.dtype("float32")
_NARROW = frozenset(np.dtype(t) for t in ("int8", "uint8", "int16", "uint16"))
#: Elements that a chunk of element-wise work takes at least.
_BLOCK = 4096


def supports_linear(op: Op, inputs: Specs, outputs: Specs) -> str | None:
    x, scale = inputs[:2]
    real, integer = (x, outputs[0]) if isinstance(op, QuantizeLinear) else (outputs[0], x)
    wide = isinstance(op, DequantizeLinear) and integer.dtype == np.int32
    if real.dtype != _FLOAT32 or scale.dtype != _FLOAT32 or not (integer.dtype in _NARROW or wide):
        return "only float32 and integers of 8 and 16 bits are native"
    if op.block_size and scale.size > 1:
        return "scales per block are not native"
    if isinstance(op, QuantizeLinear) and op.precision not in (None, _FLOAT32):
        return "only float32 precision is native"
    return None


@creator(QuantizeLinear, DequantizeLinear, supports=supports_linear)
def create_linear(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return LinearExecution(op, backend)


@creator(DynamicQuantizeLinear, supports=lambda op, inputs, outputs: None if inputs[0].dtype == _FLOAT32 else "only float32 is native")
def create_dynamic(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return DynamicExecution(op, backend)


class LinearExecution(Execution):
    """QuantizeLinear and DequantizeLinear, with one scale or one per index of an axis."""

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        x, scale, zero = (*inputs, None)[:3]
        axis = self.op.axis % len(x.shape) if scale.spec.size > 1 else 0
        record_linear(
            self.backend, x.dtype, outputs[0].dtype, x.shape, axis, scale.spec.size, address_of(x), address_of(outputs[0]),
            address_of(scale), 0 if zero is None else address_of(zero),
        )  # fmt: skip


class DynamicExecution(Execution):
    """DynamicQuantizeLinear: the range, part by part, then scale and zero point, then all elements."""

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        return 64 + 8 * self._parts(inputs[0].size)

    def _parts(self, count: int) -> int:
        return max(1, min(count, self.backend.chunks(count / 8)))

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        x, start = inputs[0], address_of(scratch)
        y, scale, zero = (
            spare if tensor is None else address_of(tensor)
            for tensor, spare in zip((*outputs, None, None)[:3], (0, start, start + 8), strict=True)
        )
        parts, lanes, commands = self._parts(x.spec.size), Tiling.of(self.backend.target).lanes, self.backend.commands
        block = arguments(*DynamicRange(address_of(x), x.spec.size, start + 64, parts, scale, zero))
        commands.record(kernel("quantized.range", lanes=lanes), block, parts)
        commands.record(kernel("quantized.scale"), block)
        if y:
            record_linear(self.backend, _FLOAT32, outputs[0].dtype, x.shape, 0, 1, address_of(x), y, scale, zero)


def record_linear(
    backend, source: np.dtype, target: np.dtype, shape: tuple[int, ...], axis: int, scales: int, x: int, y: int, scale: int, zero: int,
    multiply: bool = False, keep=None,
) -> None:  # fmt: skip
    """Records the quantization (target an integer) or dequantization of a tensor; x, y, scale, zero (0: none) are addresses.

    `scales`: 1, or as many as `axis` is long. With `multiply` scales are what values are multiplied by.
    """
    size = math.prod(shape)
    if not size:
        return
    inner = math.prod(shape[axis + 1 :])
    per_element = scales > 1 and inner == 1
    if scales == 1:
        rows, row = 1, size
    elif per_element:
        rows, row = size // scales, scales
    else:
        rows, row = size // inner, inner
    lanes = Tiling.of(backend.target).lanes
    block = min(row, max(_BLOCK, lanes))
    linear = kernel(
        "quantized.linear",
        lanes=lanes,
        source=source.name,
        target=target.name,
        per_element=per_element,
        has_zero=zero != 0,
        multiply=multiply,
    )
    chunks = min(rows * -(-row // block), backend.chunks(size / 4))
    backend.commands.record(linear, arguments(*Linear(x, y, scale, zero, rows, scales, row, block)), chunks, keep)
