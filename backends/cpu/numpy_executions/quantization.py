"""NumPy executions of the quantization ops. Products of integers are summed in floats that hold them exactly, which is where BLAS is."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from mnnx.backends.cpu.numpy_executions import registry
from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.schema import dtypes
from mnnx.schema.ops.elementwise import FLOATS
from mnnx.schema.ops.quantization import (
    FLOATS8,
    ConvInteger,
    DequantizeLinear,
    DynamicQuantizeLinear,
    MatMulInteger,
    QLinearConv,
    QLinearMatMul,
    QuantizeLinear,
    as_conv,
)


def spread(parameter: np.ndarray, shape: tuple[int, ...], axis: int, block_size: int) -> np.ndarray:
    """A scale or zero point, such that it broadcasts to a tensor of this shape."""
    if parameter.size == 1:
        return parameter.reshape(())
    axis %= len(shape)
    if parameter.ndim == 1 and not block_size:
        return parameter.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    blocks = np.arange(shape[axis]) // block_size
    return np.take(parameter, blocks, axis)


def saturated(real: np.ndarray, zero_point: np.ndarray | None, dtype: np.dtype) -> np.ndarray:
    """round_to_even(real) + zero_point in an integer dtype, values out of its range (and NaN: the lowest) cut off."""
    info = ml_dtypes.iinfo(dtype)
    offset = np.float32(0) if zero_point is None else zero_point.astype(np.float32)
    rounded = np.rint(real.astype(np.float32, copy=False))
    # Cut off before the zero point is added: the sum is then exact.
    rounded = np.fmin(np.fmax(rounded, np.float32(info.min) - offset), np.float32(info.max) - offset)
    return np.asarray((rounded + offset).astype(dtype))


def saturated_float(real: np.ndarray, dtype: np.dtype, saturate: bool) -> np.ndarray:
    """A float of 8, 6 or 4 bits; `saturate`: values beyond its largest, infinities included, become its largest."""
    real = real.astype(np.float32, copy=False)
    if saturate and dtype in FLOATS8:
        largest = np.float32(ml_dtypes.finfo(dtype).max)
        real = np.clip(real, -largest, largest)
    return np.asarray(real.astype(dtype))


@numpy_execution(QuantizeLinear)
def quantize_linear(op: QuantizeLinear, x: np.ndarray, scale: np.ndarray, zero_point: np.ndarray | None = None) -> np.ndarray:
    dtype = zero_point.dtype if zero_point is not None else np.dtype(np.uint8) if op.output_dtype is None else op.output_dtype
    precision = op.precision
    if precision is None:
        precision = scale.dtype if scale.dtype in FLOATS else np.dtype(np.float32)
    scale = spread(scale, x.shape, op.axis, op.block_size)
    zero_point = None if zero_point is None else spread(zero_point, x.shape, op.axis, op.block_size)
    with np.errstate(all="ignore"):
        real = x.astype(precision, copy=False) / scale.astype(precision, copy=False)
        if dtype == np.int32:
            rounded = np.rint(real.astype(np.float64)) + (0 if zero_point is None else zero_point)
            return np.asarray(np.fmin(np.fmax(rounded, -(2.0**31)), 2.0**31 - 1).astype(np.int32))
        if not dtypes.is_float(dtype):
            return saturated(real, zero_point, dtype)
        if zero_point is not None:
            real = real.astype(np.float32) + zero_point.astype(np.float32)
        return saturated_float(real, dtype, op.saturate)


@numpy_execution(DequantizeLinear)
def dequantize_linear(op: DequantizeLinear, x: np.ndarray, scale: np.ndarray, zero_point: np.ndarray | None = None) -> np.ndarray:
    dtype = scale.dtype if op.output_dtype is None else op.output_dtype
    wide = np.float64 if np.dtype(np.float64) in (dtype, scale.dtype) else np.float32
    scale = spread(scale, x.shape, op.axis, op.block_size).astype(wide, copy=False)
    if zero_point is not None:
        zero_point = spread(zero_point, x.shape, op.axis, op.block_size)
        exact = np.int64 if x.dtype == np.int32 else wide
        x = x.astype(exact) - zero_point.astype(exact)
    with np.errstate(all="ignore"):
        return np.asarray((x.astype(wide, copy=False) * scale).astype(dtype, copy=False))


def quantization_range(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The float32 scale and uint8 zero point that spread x's values, and 0, over 0 … 255; NaNs don't count."""
    with np.errstate(all="ignore"):
        low, high = np.fmin.reduce(x, axis=None, initial=0), np.fmax.reduce(x, axis=None, initial=0)
        scale = np.float32(1) if low == high else (high - low) / np.float32(255)
        return np.asarray(scale, np.float32), saturated(np.asarray(-low / scale), None, np.dtype(np.uint8))


@numpy_execution(DynamicQuantizeLinear)
def dynamic_quantize_linear(op: DynamicQuantizeLinear, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x = x.astype(np.float32, copy=False)
    scale, zero_point = quantization_range(x)
    with np.errstate(all="ignore"):
        return saturated(x / scale, zero_point, np.dtype(np.uint8)), scale, zero_point


def centred(x: np.ndarray, zero_point: np.ndarray | None, dtype: type) -> np.ndarray:
    """x - zero_point as exact floats; zero_point broadcasts to x."""
    return x.astype(dtype) if zero_point is None else x.astype(dtype) - zero_point.astype(dtype)


def per_row(parameter: np.ndarray | None, matrix: np.ndarray) -> np.ndarray | None:
    """A parameter of a matrix's rows, such that it broadcasts to the matrix."""
    if parameter is None or parameter.ndim != 1 or matrix.ndim == 1 or parameter.size == 1:
        return None if parameter is None else parameter.reshape(()) if parameter.size == 1 else parameter
    return parameter[:, None]


def per_column(parameter: np.ndarray | None) -> np.ndarray | None:
    return parameter.reshape(()) if parameter is not None and parameter.size == 1 else parameter


def exact_float(depth: int, *operands: np.ndarray) -> type:
    """The smallest float type that holds a sum of `depth` products of such operands, less their zero points, exactly."""
    largest = depth
    for operand in operands:
        largest *= 2 ** (8 * operand.dtype.itemsize)
    return np.float32 if largest <= 2**24 else np.float64


def to_int32(exact: np.ndarray) -> np.ndarray:
    """Exact float sums as int32, wrapped around as 32-bit accumulators would."""
    return np.asarray(exact.astype(np.int64).astype(np.int32))


@numpy_execution(MatMulInteger)
def matmul_integer(
    op: MatMulInteger, a: np.ndarray, b: np.ndarray, a_zero_point: np.ndarray | None = None, b_zero_point: np.ndarray | None = None
) -> np.ndarray:
    wide = exact_float(a.shape[-1], a, b)
    return to_int32(np.matmul(centred(a, per_row(a_zero_point, a), wide), centred(b, per_column(b_zero_point), wide)))


def requantize(product: np.ndarray, scale: np.ndarray, zero_point: np.ndarray) -> np.ndarray:
    """round(product * scale) + zero_point in zero_point's dtype."""
    zero_point = zero_point.reshape(())
    with np.errstate(all="ignore"):
        real = product.astype(np.float32) * scale.astype(np.float32)
        if dtypes.is_float(zero_point.dtype):
            return saturated_float(real + zero_point.astype(np.float32), zero_point.dtype, saturate=True)
        return saturated(real, zero_point, zero_point.dtype)


@numpy_execution(QLinearMatMul)
def qlinear_matmul(op, a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point) -> np.ndarray:
    wide = np.float32 if dtypes.is_float(a.dtype) or dtypes.is_float(b.dtype) else exact_float(a.shape[-1], a, b)
    product = np.matmul(centred(a, per_row(a_zero_point, a), wide), centred(b, per_column(b_zero_point), wide))
    rows, columns = per_row(a_scale, a), per_column(b_scale)
    if b.ndim == 1 and rows.ndim:
        rows = rows[..., 0]
    return requantize(product, rows.astype(np.float32) * columns.astype(np.float32) / y_scale.astype(np.float32).reshape(()), y_zero_point)


def exact_conv(op: ConvInteger | QLinearConv, x, x_zero_point, w, w_zero_point) -> np.ndarray:
    """The convolution of quantized operands less their zero points, in exact floats."""
    wide = exact_float(w[0].size, x, w)
    if w_zero_point is not None:
        w_zero_point = per_channel(w_zero_point, w)
    if x_zero_point is not None:
        x_zero_point = x_zero_point.reshape(())
    return registry.run(as_conv(op), [centred(x, x_zero_point, wide), centred(w, w_zero_point, wide)])[0]


def per_channel(parameter: np.ndarray, w: np.ndarray) -> np.ndarray:
    """A parameter of the output channels, such that it broadcasts to the weights."""
    return parameter.reshape(()) if parameter.size == 1 else parameter.reshape(-1, *(1,) * (w.ndim - 1))


@numpy_execution(ConvInteger)
def conv_integer(op: ConvInteger, x, w, x_zero_point=None, w_zero_point=None) -> np.ndarray:
    return to_int32(exact_conv(op, x, x_zero_point, w, w_zero_point))


@numpy_execution(QLinearConv)
def qlinear_conv(op, x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, bias=None) -> np.ndarray:
    product = exact_conv(op, x, x_zero_point, w, w_zero_point)
    if bias is not None:
        product = product.astype(np.float64) + bias.reshape(-1, *(1,) * (w.ndim - 2))
    scale = x_scale.astype(np.float32).reshape(()) * w_scale.astype(np.float32) / y_scale.astype(np.float32).reshape(())
    return requantize(to_int32(product), per_channel(scale, w[0]), y_zero_point)
