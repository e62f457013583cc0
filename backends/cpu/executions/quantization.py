"""Quantization between float32 and integers of 8 and 16 bits, and products of quantized tensors."""

from __future__ import annotations

import math

import numpy as np

from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.cpu.arguments import address_of, arguments, round_up
from mnnx.backends.cpu.creators import creator
from mnnx.backends.cpu.executions.dot import ImageProduct, Weights, Zero
from mnnx.backends.cpu.executions.dot_matrix import Finish, MatrixProduct
from mnnx.backends.cpu.executions.sliding import ByteWindows
from mnnx.backends.cpu.kernel import kernel
from mnnx.backends.cpu.kernels.blocks import DynamicRange, Linear
from mnnx.backends.cpu.tiling import Tiling
from mnnx.backends.cpu.windows import Windows
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.base import Op, Spec
from mnnx.schema.ops.quantization import (
    ConvInteger,
    DequantizeLinear,
    DynamicQuantizeLinear,
    MatMulInteger,
    Operands,
    QLinearConv,
    QLinearMatMul,
    QuantizeLinear,
    as_conv,
)

_FLOAT32 = np.dtype("float32")
_BYTES = frozenset(np.dtype(t) for t in ("int8", "uint8"))
_NARROW = frozenset(np.dtype(t) for t in ("int8", "uint8", "int16", "uint16"))
#: Elements that a chunk of element-wise work takes at least.
_BLOCK = 4096
#: Sums of products that floats hold exactly, with what zero points add, beside a bias that they hold.
_EXACT = 1 << 22


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
    """DynamicQuantizeLinear."""

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        return 64 + ranges_bytes(self.backend, inputs[0].size)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        x, start = inputs[0], address_of(scratch)
        y, scale, zero = (
            spare if tensor is None else address_of(tensor)
            for tensor, spare in zip((*outputs, None, None)[:3], (0, start, start + 8), strict=True)
        )
        record_dynamic(self.backend, x, start + 64, y, scale, zero)


def _range_parts(backend, count: int) -> int:
    return max(1, min(count, backend.chunks(count / 8)))


def ranges_bytes(backend, count: int) -> int:
    """What `record_dynamic` needs for as many elements to keep the ranges of their parts."""
    return round_up(8 * _range_parts(backend, count))


def record_dynamic(backend, x: DeviceTensor, ranges: int, y: int, scale: int, zero: int) -> None:
    """Records DynamicQuantizeLinear: the range, part by part, then scale and zero point, then all elements. All but x are addresses; y 0:
    not wanted."""
    parts = _range_parts(backend, x.spec.size)
    block = arguments(*DynamicRange(address_of(x), x.spec.size, ranges, parts, scale, zero))
    backend.commands.record(kernel("quantized.range", lanes=Tiling.of(backend.target).lanes), block, parts)
    backend.commands.record(kernel("quantized.scale"), block)
    if y:
        record_linear(backend, _FLOAT32, np.dtype("uint8"), x.shape, 0, 1, address_of(x), y, scale, zero)


def _constant(*specs: Spec | None) -> bool:
    return all(spec is None or spec.value is not None for spec in specs)


def supports_product(op: Op, inputs: Specs, outputs: Specs) -> str | None:
    """MatMulInteger and QLinearMatMul: a times matrices, a's zero point one for all."""
    a, a_zero, b, b_zero, scales, y_zero, _ = Operands.of(op, inputs)
    if any(spec is not None and spec.dtype not in _BYTES for spec in (a, b, y_zero)):
        return "only int8 and uint8 are native"
    if b.rank < 2 or not _constant(b_zero, *scales):
        return "b must be a matrix with constant scales and zero points"
    if any(spec is not None and spec.size != 1 and spec.rank > 1 for spec in (b_zero, *scales[1:2])):
        return "scales and zero points per matrix are not native"
    if any(spec is not None and spec.size != 1 for spec in (a_zero, *scales[:1])):
        return "a must have one scale and zero point"
    return None


@creator(MatMulInteger, QLinearMatMul, supports=supports_product)
def create_product(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return MatrixExecution(op, backend, inputs, outputs)


class MatrixExecution(Execution):
    """MatMulInteger and QLinearMatMul."""

    def __init__(self, op: Op, backend, inputs: Specs, outputs: Specs):
        super().__init__(op, backend)
        self.size = outputs[0].size
        a, _, b, b_zero, *_ = Operands.of(op, inputs)
        self.product = MatrixProduct(backend, a, b, None if b_zero is None else b_zero.value)

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        return self.product.scratch_bytes if self.size else 0

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        if self.size:
            a, a_zero, b, *_ = Operands.of(self.op, inputs)
            finish, bias = self.finish(inputs, outputs)
            memory = 0 if scratch is None else address_of(scratch)
            self.product.record(address_of(a), Zero.of(a_zero, a.dtype), b, outputs[0], memory, finish, bias)

    def finish(self, inputs: Tensors, outputs: Tensors) -> tuple[Finish, np.ndarray | None]:
        """What becomes of the sums, and the int32s added to them."""
        operands = Operands.of(self.op, inputs)
        if not operands.scales:
            return Finish(outputs[0].dtype), None
        zero = operands.y_zero.constant
        return Finish(zero.dtype, factors=_factors(*operands.scales), out_zero=float(zero.item())), None


def _factors(*scales: DeviceTensor) -> np.ndarray:
    """What sums are multiplied by to be requantized, from the scales of both operands and the result."""
    a, b, y = (tensor.constant.reshape(-1).astype(_FLOAT32) for tensor in scales)
    return np.ascontiguousarray(a * b / y)


def supports_convolution(op: Op, inputs: Specs, outputs: Specs) -> str | None:
    """ConvInteger and QLinearConv with constant weights."""
    x, _, w, w_zero, scales, _, bias = Operands.of(op, inputs)
    if x.dtype not in _BYTES or w.dtype not in _BYTES:
        return "only int8 and uint8 are native"
    if not _constant(w, w_zero, bias, *scales):
        return "its weights, bias, scales and zero points must be constant"
    return Windows.reason_against(as_conv(op).geometry(x.shape, w.shape))


@creator(ConvInteger, QLinearConv, supports=supports_convolution)
def create_convolution(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    depthwise = isinstance(op, QLinearConv) and DepthwiseExecution.takes(op, inputs)
    return (DepthwiseExecution if depthwise else ImageExecution)(op, backend, inputs, outputs)


class ImageExecution(Execution):
    """ConvInteger and QLinearConv: a product in int32; of QLinearConv it goes to working memory and is quantized from there."""

    def __init__(self, op: Op, backend, inputs: Specs, outputs: Specs):
        super().__init__(op, backend)
        self.size, self.quantizes = outputs[0].size, isinstance(op, QLinearConv)
        self.sums_bytes = round_up(4 * self.size) if self.quantizes else 0
        x, _, w, *_ = Operands.of(op, inputs)
        windows = Windows.of(as_conv(op).geometry(x.shape, w.shape))
        self.product = ImageProduct(backend, windows, x.shape[0], op.group, w.shape[1], w.shape[0] // op.group)

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        return self.product.scratch_bytes + self.sums_bytes if self.size else 0

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        if not self.size:
            return
        x, x_zero, w, w_zero, scales, y_zero, bias = Operands.of(self.op, inputs)
        start = address_of(scratch)
        sums = start + self.product.scratch_bytes if self.quantizes else address_of(outputs[0])
        key = ("dot convolution", self.product.tiling.dot, self.op.group, _key(w_zero))
        weights = self.backend.packed(key, w.constant, lambda a: self.product.pack(a, None if w_zero is None else w_zero.constant))
        weights = Weights(*weights)
        biases = np.zeros(weights.sums.shape, np.int32)
        if bias is not None:
            biases[:, : self.product.rows] = bias.constant.reshape(self.op.group, -1)
        self.product.record(address_of(x), Zero.of(x_zero, x.dtype), weights, biases, sums, start)
        if self.quantizes:
            self._quantize(sums, outputs[0], _factors(*scales), y_zero)

    def _quantize(self, sums: int, y: DeviceTensor, factors: np.ndarray, zero: DeviceTensor) -> None:
        """y = saturate(round(sums * factors) + zero)."""
        zeros = self.backend.packed(("repeated", factors.size), zero.constant, lambda z: np.repeat(z.reshape(-1), factors.size))
        record_linear(
            self.backend, np.dtype("int32"), y.dtype, y.shape, 1 if factors.size > 1 else 0, factors.size, sums, address_of(y),
            address_of(factors), address_of(zeros), multiply=True, keep=(factors, zeros),
        )  # fmt: skip


class DepthwiseExecution(Execution):
    """QLinearConv with one input channel per group. Floats hold its sums exactly, up to 2^24; larger ones, of a large bias, they round.

    Pixels are taken as they are, zero points of x in the padding, and what the zero point adds to all sums is taken from the bias.
    """

    def __init__(self, op: QLinearConv, backend, inputs: Specs, outputs: Specs):
        super().__init__(op, backend)
        x, _, w, *_ = Operands.of(op, inputs)
        windows = Windows.of(as_conv(op).geometry(x.shape, w.shape))
        self.slide = ByteWindows(backend, windows, *x.shape[:2], w.shape[0] // op.group)

    @classmethod
    def takes(cls, op: QLinearConv, inputs: Specs) -> bool:
        given = Operands.of(op, inputs)
        w = given.w
        if w.shape[1] != 1 or op.group == 1 or not w.size or not _constant(given.x_zero, given.y_zero):
            return False
        return 255 * np.abs(_depthwise(w.value, given.w_zero.value)).sum(1).max() < _EXACT

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        return self.slide.scratch_bytes

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        x, x_zero, w, w_zero, scales, y_zero, bias = Operands.of(self.op, inputs)
        zero = x_zero.constant

        def pack(w: np.ndarray) -> np.ndarray:
            return self.slide.pack(_depthwise(w, w_zero.constant))

        weights = self.backend.packed(("byte depthwise", *self.slide.order, _key(w_zero)), w.constant, pack)
        biases = _added(_depthwise(w.constant, w_zero.constant), zero, None if bias is None else bias.constant).astype(_FLOAT32)
        self.slide.record("dot", x, outputs[0], scratch, float(zero.item()), _factors(*scales), y_zero.constant, weights, biases)


def _depthwise(w: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """w - zero as float32s [outputs, taps]."""
    return (w.reshape(len(w), -1).astype(np.int32) - zero.reshape(-1, 1)).astype(_FLOAT32)


def _added(weights: np.ndarray, x_zero: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """What is added to the sums of weights times pixels as they are, in float64: the bias, less what x's zero point adds."""
    return (0 if bias is None else bias) - float(x_zero.item()) * weights.sum(1, dtype=np.float64)


def _key(zero: DeviceTensor | None) -> bytes:
    return b"" if zero is None else zero.constant.tobytes()


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
