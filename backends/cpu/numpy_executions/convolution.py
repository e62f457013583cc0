"""Convolutions by matrix products over columns (im2col), transposed ones by the adjoint (col2im)."""

import math

import numpy as np

from mnnx.backends.cpu.numpy_executions.precision import widened
from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.backends.cpu.numpy_executions.windows import add_columns, columns, parts, rows_of
from mnnx.schema.ops.convolution import CausalConvWithState, Col2Im, Conv, ConvTranspose, DeformConv
from mnnx.schema.ops.windows import ConvGeometry


def convolve(op: Conv, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """Conv in the dtype to compute in."""
    geometry = op.geometry(x.shape, w.shape)
    x, w = widened(x), widened(w)
    groups, channels = op.group, w.shape[0]
    weights = w.reshape(groups, channels // groups, -1)
    y = np.empty((len(x), channels, *geometry.output), x.dtype)
    row_elements = x.shape[1] * math.prod(w.shape[2:]) * math.prod(geometry.output[1:])
    for images, first, last in parts(len(x), geometry.output[0], row_elements):
        part = columns(x[images], rows_of(geometry, first, last))
        part = part.reshape(len(part), groups, weights.shape[2], -1)
        y[images, :, first:last] = np.matmul(weights, part).reshape(len(part), channels, last - first, *geometry.output[1:])
    return _add_bias(y, bias)


def convolve_transposed(op: ConvTranspose, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """ConvTranspose in the dtype to compute in."""
    geometry = op.geometry(x.shape, w.shape)
    x, w = widened(x), widened(w)
    groups, taps = op.group, math.prod(w.shape[2:])
    channels = w.shape[1] * groups
    weights = w.reshape(groups, w.shape[0] // groups, -1).transpose(0, 2, 1)
    y = np.zeros((len(x), channels, *geometry.output), x.dtype)
    row_elements = channels * taps * math.prod(geometry.input[1:])
    for images, first, last in parts(len(x), geometry.input[0], row_elements):
        part = x[images, :, first:last]
        blocks = np.matmul(weights, part.reshape(len(part), groups, weights.shape[2], -1))
        blocks = blocks.reshape(len(part), channels, taps, *part.shape[2:])
        add_columns(y[images], blocks, rows_of(geometry, first, last), part.shape[2:])
    return _add_bias(y, bias)


def _add_bias(y: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    if bias is not None:
        y += bias.astype(y.dtype).reshape(-1, *(1,) * (y.ndim - 2))
    return y


@numpy_execution(Conv)
def conv(op: Conv, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    return convolve(op, x, w, bias).astype(x.dtype, copy=False)


@numpy_execution(ConvTranspose)
def conv_transpose(op: ConvTranspose, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    return convolve_transposed(op, x, w, bias).astype(x.dtype, copy=False)


@numpy_execution(Col2Im)
def col2im(op: Col2Im, x: np.ndarray, image_shape: np.ndarray, block_shape: np.ndarray) -> np.ndarray:
    image, block = tuple(int(v) for v in image_shape), tuple(int(v) for v in block_shape)
    geometry = op.geometry(image, block)
    taps = math.prod(block)
    wide = widened(x)
    y = np.zeros((len(x), x.shape[1] // taps, *image), wide.dtype)
    add_columns(y, wide.reshape(*y.shape[:2], taps, *geometry.output), geometry, geometry.output)
    return y.astype(x.dtype, copy=False)


@numpy_execution(DeformConv)
def deform_conv(
    op: DeformConv, x: np.ndarray, w: np.ndarray, offset: np.ndarray, bias: np.ndarray | None = None, mask: np.ndarray | None = None
) -> np.ndarray:
    geometry = op.geometry(x.shape, w.shape)
    dtype, channels = x.dtype, w.shape[0]
    x, w, offset, mask = widened(x), widened(w), widened(offset), widened(mask)
    weights = w.reshape(op.group, channels // op.group, -1)
    taps = math.prod(geometry.kernel)
    y = np.empty((len(x), channels, *geometry.output), x.dtype)
    offset = offset.reshape(len(x), op.offset_group, taps, 2, *geometry.output)
    for image in range(len(x)):
        part = np.stack(
            [
                _sample(pixels, offset[image, group], geometry)
                * (1 if mask is None else mask[image].reshape(op.offset_group, 1, taps, -1)[group])
                for group, pixels in enumerate(x[image].reshape(op.offset_group, -1, *geometry.input))
            ]
        )
        y[image] = np.matmul(weights, part.reshape(op.group, weights.shape[2], -1)).reshape(y.shape[1:])
    return _add_bias(y, bias).astype(dtype, copy=False)


def _sample(pixels: np.ndarray, offset: np.ndarray, geometry: ConvGeometry) -> np.ndarray:
    """Bilinear samples of pixels [C, H, W] at the taps moved by offset [taps, 2, oh, ow]: [C, taps, oh * ow]; 0 outside."""
    taps = np.stack(np.meshgrid(*(np.arange(k) * d for k, d in zip(geometry.kernel, geometry.dilations, strict=True)), indexing="ij"))
    starts = np.stack(np.meshgrid(*(np.arange(n) * s for n, s in zip(geometry.output, geometry.strides, strict=True)), indexing="ij"))
    starts -= np.array(geometry.begin).reshape(2, 1, 1)
    at = offset + taps.reshape(2, -1).T[:, :, None, None] + starts
    lowest = np.floor(np.clip(at, -2, np.array(geometry.input).reshape(2, 1, 1) + 1))
    weight_high = at - lowest
    flat = pixels.reshape(len(pixels), -1)
    result = np.zeros((len(pixels), len(at), geometry.output[0] * geometry.output[1]), pixels.dtype)
    height, width = geometry.input
    with np.errstate(invalid="ignore"):
        lowest = lowest.astype(np.int64)
    for dy in (0, 1):
        for dx in (0, 1):
            row, column = lowest[:, 0] + dy, lowest[:, 1] + dx
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            weight = np.where(inside, np.abs(1 - dy - weight_high[:, 0]) * np.abs(1 - dx - weight_high[:, 1]), 0)
            index = np.where(inside, row * width + column, 0).reshape(len(at), -1)
            result += flat[:, index] * weight.reshape(len(at), -1)
    return result


@numpy_execution(CausalConvWithState)
def causal_conv_with_state(
    op: CausalConvWithState, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None, past_state: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    if past_state is None:
        past_state = np.zeros((*x.shape[:2], w.shape[2] - 1), x.dtype)
    whole = np.concatenate([past_state, x], axis=2)
    wide, weights, length = widened(whole), widened(w), x.shape[2]
    y = np.zeros(x.shape, wide.dtype)
    for tap in range(w.shape[2]):
        y += wide[:, :, tap : tap + length] * weights[:, :, tap]
    y = _add_bias(y, bias)
    if op.activation != "none":
        with np.errstate(over="ignore"):
            y = y / (1 + np.exp(-y))
    return y.astype(x.dtype, copy=False), whole[:, :, length:]
