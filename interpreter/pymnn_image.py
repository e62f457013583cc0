"""The image names of MNN's Python API: `CVImageProcess` and its constants, over ImageProcess."""
# ruff: noqa: N802, N803 - the names are MNN's.

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mnnx.errors import InputError
from mnnx.interpreter.checks import is_one_of, whole
from mnnx.interpreter.cv_matrix import CVMatrix
from mnnx.interpreter.image_process import ImageProcess, ImageProcessConfig
from mnnx.interpreter.image_source import CHANNELS, YUV_FORMATS

CV_ImageFormat_RGBA = 0
CV_ImageFormat_RGB = 1
CV_ImageFormat_BGR = 2
CV_ImageFormat_GRAY = 3
CV_ImageFormat_BGRA = 4
CV_ImageFormat_HSV = 7
CV_ImageFormat_YUV_NV21 = 11
CV_ImageFormat_YUV_NV12 = 12
CV_ImageFormat_YUV_I420 = 13
CV_Filter_NEAREST = 0
CV_Filter_BILINEAL = 1
CV_Filter_BILINEAR = 1
CV_Filter_BICUBIC = 2
CV_Wrap_CLAMP_TO_EDGE = 0
CV_Wrap_ZERO = 1
CV_Wrap_REPEAT = 2

_FORMATS = {value: name.removeprefix("CV_ImageFormat_") for name, value in globals().items() if name.startswith("CV_ImageFormat_")}
_FILTERS = {CV_Filter_NEAREST: "nearest", CV_Filter_BILINEAL: "bilinear", CV_Filter_BICUBIC: "bicubic"}
_WRAPS = {CV_Wrap_CLAMP_TO_EDGE: "clamp_to_edge", CV_Wrap_ZERO: "zero", CV_Wrap_REPEAT: "repeat"}
#: A config's key → the field of ImageProcessConfig and what its values mean.
_KEYS = {
    "filterType": ("filter", _FILTERS),
    "sourceFormat": ("source_format", _FORMATS),
    "destFormat": ("dest_format", _FORMATS),
    "wrap": ("wrap", _WRAPS),
    "mean": ("mean", None),
    "normal": ("normal", None),
}
_TENSORFLOW = 0
#: What a format is in a tensor of so many channels: alpha comes and goes with the fourth.
_FITTED = {("RGBA", 3): "RGB", ("BGRA", 3): "BGR", ("RGB", 4): "RGBA", ("BGR", 4): "BGRA"}


class CVImageProcess:
    """MNN's image processor. The matrix is the identity until `setMatrix`; mean and normal count for float tensors only."""

    def __init__(self, config: Mapping[str, Any] | None = None, dstTensor: Any = None):
        """config: filterType, sourceFormat, destFormat, wrap (the constants), mean and normal (4 numbers each).

        Raises InputError for an unknown key or constant. dstTensor is taken as MNN takes it, and changes nothing.
        """
        if config is not None and not isinstance(config, Mapping):
            raise InputError(f"CVImageProcess wants a dict of settings, got {type(config).__name__}")
        fields = {}
        for key, value in (config or {}).items():
            if key not in _KEYS:
                raise InputError(f"CVImageProcess knows no key {key!r}; known ones: {', '.join(_KEYS)}")
            field, meanings = _KEYS[key]
            if meanings is not None and not is_one_of(value, meanings):
                raise InputError(f"CVImageProcess: {key} is one of {meanings}; got {value!r}")
            fields[field] = value if meanings is None else meanings[value]
        self._config = ImageProcessConfig(**fields)
        self._matrix = np.eye(3)

    def setMatrix(self, matrix: CVMatrix) -> None:
        """From destination to source pixels; later changes of `matrix` don't count."""
        self._matrix = np.array(matrix if isinstance(matrix, CVMatrix) else CVMatrix(matrix))

    def setPadding(self, value: int) -> None:
        """The grey that CV_Wrap_ZERO puts outside the image, 0 … 255."""
        self._config = replace(self._config, padding=value)

    def convert(self, src: Any, iw: int, ih: int, stride: int, dst: Any) -> int:
        """Converts an image of iw × ih pixels with rows of `stride` bytes (0: no padding) into the tensor `dst`; gives 0.

        src: an array, bytes, a tuple of bytes, or an address. Raises InputError as `ImageProcess.convert` does.
        """
        config = self._config
        iw, ih, stride = (whole(size, what) for what, size in (("iw", iw), ("ih", ih), ("stride", stride)))
        if not isinstance(dst, np.ndarray) and not hasattr(dst, "host_array"):
            raise InputError(f"CVImageProcess.convert wants a Tensor as its destination, got {type(dst).__name__}")
        if isinstance(src, int) and not isinstance(src, bool):
            src = _at_address(src, config.source_format, iw, ih, stride)
        elif isinstance(src, tuple):
            src = _bytes(src)
        layout = _layout(dst)
        channels = dst.shape[-1 if layout == "NHWC" else -3] if len(dst.shape) > 2 else 1
        config = replace(config, dest_format=_FITTED.get((config.dest_format, channels), config.dest_format), layout=layout)
        if dst.dtype == np.uint8:
            config = replace(config, mean=0.0, normal=1.0)
        ImageProcess(config, self._matrix).convert(src, dst, width=iw, height=ih, stride=stride)
        return 0

    def createImageTensor(self, dtype: Any, width: int, height: int, bpp: int, data: Any = None) -> Any:
        """A host tensor (1, height, width, bpp) of one of the Halide_Type constants; `data` is taken as MNN takes it: not at all."""
        import mnnx

        return mnnx.Tensor((1, height, width, bpp), dtype, mnnx.Tensor_DimensionType_Tensorflow)


def _bytes(values: tuple[int, ...]) -> bytes:
    try:
        return bytes(values)
    except (TypeError, ValueError) as error:
        raise InputError(f"CVImageProcess.convert: a tuple must hold the image's bytes: {error}") from error


def _layout(tensor: Any) -> str:
    if not hasattr(tensor, "getDimensionType"):
        return "auto"
    return "NHWC" if tensor.getDimensionType() == _TENSORFLOW else "NCHW"


def _at_address(address: int, format: str, width: int, height: int, stride: int) -> ctypes.Array:
    """The memory that an image takes at an address. As with MNN, a wrong address or size crashes the process."""
    row = stride or width * CHANNELS.get(format, 1)
    rows = height + (height + 1) // 2 if format in YUV_FORMATS else height
    if address <= 0 or width < 1 or height < 1:
        raise InputError(f"CVImageProcess.convert: no image at address {address} with {width}×{height} pixels")
    return memoryview((ctypes.c_uint8 * ((row + row % 2) * rows)).from_address(address)).cast("B")
