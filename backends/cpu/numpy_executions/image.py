"""NumPy executions of the ops in schema/ops/image.py."""

import io
import itertools

import numpy as np

from mnnx.backends.cpu.numpy_executions.precision import float_type
from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.schema.ops import image as ops
from mnnx.schema.ops.base import require
from mnnx.schema.ops.resize import keys_cubic


@numpy_execution(ops.GridSample)
def grid_sample(op, x, grid):
    dims = x.shape[2:]
    out = grid.shape[1:-1]
    batch, channels, points = x.shape[0], x.shape[1], int(np.prod(out))
    if batch * channels * points == 0:
        return np.zeros((batch, channels, *out), x.dtype)
    dtype = float_type(x, grid)
    flat = x.reshape(batch, channels, -1)
    positions = grid.reshape(batch, points, -1)[..., ::-1].astype(np.float64 if grid.dtype == np.float64 else np.float32)
    taps = [_grid_taps(op, positions[..., i], dim) for i, dim in enumerate(dims)]
    result = np.zeros((batch, channels, points), np.result_type(dtype, x.dtype) if x.dtype.kind == "c" else dtype)
    for chosen in itertools.product(*taps):
        index, weight = 0, 1
        for dim, (position, factor) in zip(dims, chosen, strict=True):
            index, weight = index * dim + position, weight * factor
        result += np.take_along_axis(flat, index[:, None], 2) * weight[:, None].astype(dtype)
    return result.astype(x.dtype).reshape(batch, channels, *out)


def _grid_taps(op, position, dim):
    """The input positions, each with its weight, that normalized positions along a dim are made of."""
    with np.errstate(all="ignore"):
        x = (position + 1) / 2 * (dim - 1) if op.align_corners else ((position + 1) * dim - 1) / 2
        low, high = (0.0, dim - 1.0) if op.align_corners else (-0.5, dim - 0.5)
        if op.mode == "nearest":
            x = np.rint(x)
        if op.padding_mode == "border":
            x = np.where((x < low) | (x > high), x.clip(0, dim - 1), x)
        elif op.padding_mode == "reflection":
            x = _reflect(x, low, high)
        x = np.where(np.abs(x) < 2**30, x, -100)  # neither NaN nor what an index can't hold
    if op.mode == "nearest":
        taps = [(x.astype(np.int64), np.ones_like(x))]
    else:
        base = np.floor(x)
        fraction = x - base
        base = base.astype(np.int64)
        if op.mode == "linear":
            taps = [(base, 1 - fraction), (base + 1, fraction)]
        else:
            taps = [(base + k, keys_cubic(np.abs(fraction - k), -0.75)) for k in (-1, 0, 1, 2)]
    if op.padding_mode == "reflection":
        taps = [(_reflect(index.astype(np.float64), low, high).astype(np.int64), weight) for index, weight in taps]
    elif op.padding_mode == "zeros":
        taps = [(index, np.where((index >= 0) & (index < dim), weight, 0)) for index, weight in taps]
    return [(index.clip(0, dim - 1), weight) for index, weight in taps]


def _reflect(x, low, high):
    """`x` reflected at the borders until it lies between them."""
    extent = high - low
    if extent <= 0:
        return np.full_like(x, low)
    beyond = np.abs(x - (low + high) / 2) > extent / 2
    phase = (x - low) % (2 * extent)
    return np.where(beyond, low + np.minimum(phase, 2 * extent - phase), x)


@numpy_execution(ops.AffineGrid)
def affine_grid(op, theta, size):
    dims = [int(d) for d in size[2:]]
    dtype = float_type(theta)
    if theta.size == 0 or 0 in dims:
        return np.zeros((len(theta), *dims, len(dims)), theta.dtype)
    axes = []
    for dim in dims:
        steps = np.arange(dim, dtype=dtype)
        axes.append(steps * 2 / max(dim - 1, 1) - (dim > 1) if op.align_corners else (2 * steps + 1) / max(dim, 1) - 1)
    coordinates = np.meshgrid(*axes, indexing="ij")[::-1]
    homogeneous = np.stack([*coordinates, np.ones(dims, dtype)], -1).reshape(-1, len(dims) + 1)
    grid = homogeneous @ theta.astype(dtype).transpose(0, 2, 1)
    return grid.reshape(len(theta), *dims, len(dims)).astype(theta.dtype)


@numpy_execution(ops.ImageDecoder)
def image_decoder(op, encoded_stream):
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(encoded_stream.tobytes())) as image:
            pixels = np.array(image.convert("L" if op.pixel_format == "Grayscale" else "RGB"))
    except Image.DecompressionBombError as error:
        require(False, f"the image is too large: {error}")
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError):  # what Pillow raises for damaged files: an empty result by the spec
        return np.zeros((0, 0, 1 if op.pixel_format == "Grayscale" else 3), np.uint8)
    if op.pixel_format == "Grayscale":
        return pixels[:, :, None]
    return pixels[:, :, ::-1] if op.pixel_format == "BGR" else pixels
