"""What an image can be given as: a numpy array, a buffer of bytes, a Pillow image. All become views on the caller's memory."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from mnnx.errors import InputError

#: Bytes or floats per pixel of the packed formats; the YUV formats have 8-bit planes, chroma halved both ways.
CHANNELS = {"RGBA": 4, "RGB": 3, "BGR": 3, "BGRA": 4, "GRAY": 1, "HSV": 3}
YUV_FORMATS = ("YUV_NV21", "YUV_NV12", "YUV_I420")


@dataclass(frozen=True, eq=False)
class ImageSource:
    """An image of a known format: pixels (height, width, channels), for YUV the luma with `chroma` = (U, V)."""

    format: str
    pixels: np.ndarray
    chroma: tuple[np.ndarray, np.ndarray] | None = None


def open_source(image: Any, format: str, width: int | None, height: int | None, stride: int | None) -> ImageSource:
    """The views of an image. Raises InputError where it doesn't fit the format, or a buffer is too small for it."""
    pillow = sys.modules.get("PIL.Image")
    if pillow is not None and isinstance(image, pillow.Image):
        return _from_pillow(image)
    if isinstance(image, np.ndarray) and width is None and height is None:
        return _from_array(image, format, stride)
    if isinstance(image, np.ndarray):
        buffer = np.ascontiguousarray(image).reshape(-1)
    elif isinstance(image, bytes | bytearray | memoryview):
        buffer = np.frombuffer(image, np.float32 if isinstance(image, memoryview) and image.format == "f" else np.uint8)
    else:
        raise InputError(f"an image is a numpy array, bytes, bytearray, memoryview or a Pillow image; got {type(image).__name__}")
    if width is None or height is None:
        raise InputError("an image given as a buffer needs its width and height")
    if width < 1 or height < 1:
        raise InputError(f"an image has at least one pixel; width {width} and height {height} were given")
    if format in YUV_FORMATS:
        return _yuv(buffer, format, width, height, stride or None)
    return _packed(buffer, format, width, height, stride or None)


def _from_pillow(image: Any) -> ImageSource:
    """Its own mode says the format; modes other than L, RGB and RGBA are made RGB, or RGBA where they have transparency."""
    if image.mode not in ("L", "RGB", "RGBA"):
        image = image.convert("RGBA" if image.has_transparency_data else "RGB")
    pixels = np.asarray(image).reshape(image.height, image.width, -1)
    if not pixels.size:
        raise InputError(f"an image has at least one pixel; the Pillow image is {image.width}×{image.height}")
    return ImageSource({"L": "GRAY"}.get(image.mode, image.mode), pixels)


def _from_array(array: np.ndarray, format: str, stride: int | None) -> ImageSource:
    if stride:
        raise InputError("stride goes with a buffer, its width and its height; an array has its own strides")
    _check_dtype(array.dtype, format)
    if format in YUV_FORMATS:
        if array.ndim != 2 or array.shape[0] % 3 or array.shape[1] % 2 or not array.size:
            raise InputError(
                f"{format} as an array is (height · 3 / 2, width) with both sizes even; got {array.shape}. "
                "Give other layouts as a buffer with width, height and stride"
            )
        return _yuv(np.ascontiguousarray(array).reshape(-1), format, array.shape[1], array.shape[0] // 3 * 2, None)
    channels = CHANNELS[format]
    if array.ndim == 2 and channels == 1:
        array = array[:, :, None]
    if array.ndim != 3 or array.shape[2] != channels:
        raise InputError(f"an image of format {format} is (height, width, {channels}); the array is {array.shape}")
    if not array.size:
        raise InputError(f"an image has at least one pixel; the array is {array.shape}")
    if array.strides[1:] != (channels * array.itemsize, array.itemsize):
        array = np.ascontiguousarray(array)
    return ImageSource(format, array)


def _check_dtype(dtype: np.dtype, format: str) -> None:
    allowed = ("uint8",) if format in YUV_FORMATS else ("uint8", "float32")
    if dtype.name not in allowed or not dtype.isnative:
        raise InputError(f"an image of format {format} has dtype {' or '.join(allowed)}; got {dtype}")


def _packed(buffer: np.ndarray, format: str, width: int, height: int, stride: int | None) -> ImageSource:
    _check_dtype(buffer.dtype, format)
    pixel = CHANNELS[format] * buffer.itemsize
    stride = _stride(stride, width * pixel, format, width)
    if stride % buffer.itemsize:
        raise InputError(f"a stride of {stride} bytes isn't a whole number of {buffer.dtype} values")
    _check_size(buffer, stride * (height - 1) + width * pixel, format, width, height, stride)
    shape, strides = (height, width, CHANNELS[format]), (stride, pixel, buffer.itemsize)
    return ImageSource(format, np.ndarray(shape, buffer.dtype, buffer, 0, strides))


def _yuv(buffer: np.ndarray, format: str, width: int, height: int, stride: int | None) -> ImageSource:
    """Luma rows of `stride` bytes, then the chroma rows, each for two luma rows: of `stride` bytes (made even) with V and U (NV21) or
    U and V (NV12) in turn, or (I420) all of U and then all of V in rows of half of it. Odd sizes have chroma for the last pixel too."""
    _check_dtype(buffer.dtype, format)
    stride = _stride(stride, width, format, width)
    columns, rows = (width + 1) // 2, (height + 1) // 2
    luma, row = stride * height, stride + stride % 2
    if format == "YUV_I420":
        row //= 2
        needed = luma + row * rows + row * (rows - 1) + columns
        starts, step = (luma, luma + row * rows), 1
    else:
        needed = luma + row * (rows - 1) + 2 * columns
        starts, step = (luma, luma + 1) if format == "YUV_NV12" else (luma + 1, luma), 2
    _check_size(buffer, needed, format, width, height, stride)
    chroma = tuple(np.ndarray((rows, columns), np.uint8, buffer, start, (row, step)) for start in starts)
    return ImageSource(format, np.ndarray((height, width, 1), np.uint8, buffer, 0, (stride, 1, 1)), chroma)


def _stride(stride: int | None, row: int, format: str, width: int) -> int:
    if stride is not None and stride < row:
        raise InputError(f"a stride of {stride} bytes is less than a row: {format} of width {width} has {row} bytes per row")
    return row if stride is None else stride


def _check_size(buffer: np.ndarray, needed: int, format: str, width: int, height: int, stride: int) -> None:
    if buffer.nbytes < needed:
        raise InputError(
            f"the buffer is too small: {format} of {width}×{height} with stride {stride} needs {needed} bytes, it has {buffer.nbytes}"
        )
