"""From a picture to a network's input in one pass: resample, change the colours, normalise, lay out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mnnx.backends.image import ALPHA, LUMA, ImageTask, process
from mnnx.errors import InputError, LimitExceeded
from mnnx.interpreter import checks
from mnnx.interpreter.checks import is_one_of, number, numbers, whole
from mnnx.interpreter.cv_matrix import CVMatrix
from mnnx.interpreter.image_source import CHANNELS, YUV_FORMATS, ImageSource, open_source

FILTERS = ("nearest", "bilinear", "bicubic")
WRAPS = ("clamp_to_edge", "zero", "repeat")
LAYOUTS = ("auto", "NCHW", "NHWC")
#: Luma weights of red and blue (ITU-R BT.601, BT.709).
_LUMA_WEIGHTS = {"BT.601": (0.299, 0.114), "BT.709": (0.2126, 0.0722)}
_RANGES = ("video", "full")


@dataclass(frozen=True)
class ImageProcessConfig:
    """What is done to each image.

    source_format: RGBA RGB BGR BGRA GRAY HSV YUV_NV21 YUV_NV12 YUV_I420; dest_format: the same without YUV.
    mean, normal: (x - mean) · normal for every destination channel; a number serves all, a sequence may hold more than there are.
    filter: nearest, bilinear or bicubic (with `cubic_coefficient`; -0.5 is Pillow's and Catmull-Rom's). There is no antialiasing.
    wrap: what lies outside the source: clamp_to_edge, zero (a grey of `padding`; alpha too) or repeat.
    yuv_standard: BT.601 or BT.709. yuv_range: video (luma 16 … 235) or full. layout: of destinations that could be either.
    num_threads: 0 takes the CPUs this process may use.

    Values of images count 0 … 255 (hue: 0 … 180), float32 images too. GRAY is 0.299 R + 0.587 G + 0.114 B, of a YUV image its luma as
    it stands. Missing alpha is 255. YUV and HSV pixels become RGB before they are filtered, everything else after that; an HSV
    destination of an HSV source has the source's values. What bicubic makes of uint8 images is kept within 0 … 255.
    """

    source_format: str = "RGBA"
    dest_format: str = "RGBA"
    mean: float | Sequence[float] = 0.0
    normal: float | Sequence[float] = 1.0
    filter: str = "nearest"
    wrap: str = "clamp_to_edge"
    padding: float = 0.0
    cubic_coefficient: float = -0.75
    yuv_standard: str = "BT.601"
    yuv_range: str = "video"
    layout: str = "auto"
    num_threads: int = 0

    def __post_init__(self) -> None:
        for name, known in (
            ("source_format", (*CHANNELS, *YUV_FORMATS)),
            ("dest_format", tuple(CHANNELS)),
            ("filter", FILTERS),
            ("wrap", WRAPS),
            ("yuv_standard", tuple(_LUMA_WEIGHTS)),
            ("yuv_range", _RANGES),
            ("layout", LAYOUTS),
        ):
            if not is_one_of(getattr(self, name), known):
                raise InputError(f"ImageProcessConfig.{name} is one of {', '.join(known)}; got {getattr(self, name)!r}")
        if not isinstance(self.num_threads, int) or not 0 <= self.num_threads <= 256:
            raise InputError(f"ImageProcessConfig.num_threads is 0 (all CPUs) … 256; got {self.num_threads!r}")
        for name in ("mean", "normal"):
            self.per_channel(name)
        for name in ("padding", "cubic_coefficient"):
            number(getattr(self, name), f"ImageProcessConfig.{name}")

    def per_channel(self, name: str) -> tuple[float, ...]:
        """`mean` or `normal`, one number for each destination channel."""
        values, channels = numbers(getattr(self, name)), CHANNELS[self.dest_format]
        if values is not None and values.ndim == 0:
            return (float(values),) * channels
        if values is None or values.ndim != 1 or not channels <= len(values) <= 4:
            raise InputError(
                f"ImageProcessConfig.{name} is a number or has one number per channel of {self.dest_format} ({channels} to 4 numbers); "
                f"got {getattr(self, name)!r}"
            )
        return tuple(float(value) for value in values[:channels])


class ImageProcess:
    """Converts images as its config says, through its `matrix`.

    matrix: a CVMatrix (kept, so that its changes count) or 3×3 array (copied) that maps DESTINATION pixel coordinates to SOURCE pixel
    coordinates, pixel centres at integers; perspective is allowed. A singular matrix is no error: where it leads nowhere, border pixels
    or padding show. None: the identity where the sizes are equal, else the scaling that maps the whole destination, from outer edge to
    outer edge, onto the whole source: x_source = (x + ½) · width_source / width - ½, as OpenCV's and Pillow's resize do it.
    """

    def __init__(self, config: ImageProcessConfig | None = None, matrix: CVMatrix | np.ndarray | None = None):
        self.config = ImageProcessConfig() if config is None else config
        if not isinstance(self.config, ImageProcessConfig):
            raise InputError(f"ImageProcess wants an ImageProcessConfig, got {type(config).__name__}")
        self.matrix = matrix

    @property
    def matrix(self) -> CVMatrix | None:
        """Setting it raises InputError for what is no 3×3 matrix."""
        return self._matrix

    @matrix.setter
    def matrix(self, matrix: CVMatrix | np.ndarray | None) -> None:
        self._matrix = matrix if matrix is None or isinstance(matrix, CVMatrix) else CVMatrix(matrix)

    def set_matrix(self, matrix: CVMatrix | np.ndarray | None) -> None:
        """Sets `matrix`, by MNN's name for it too."""
        self.matrix = matrix

    setMatrix = set_matrix  # noqa: N815

    def convert(
        self,
        image: Any,
        dest: Any = None,
        *,
        width: int | None = None,
        height: int | None = None,
        stride: int | None = None,
        dtype: Any = np.float32,
    ) -> Any:
        """Converts one image into `dest` and returns that.

        image: an array (height, width, channels), uint8 or float32, without the last axis for GRAY, (height · 3 / 2, width) for YUV; or
        a buffer (bytes, bytearray, memoryview, flat array) with its width, its height and the bytes per row (`stride`, default: no
        padding); or a Pillow image, whose own mode then takes the place of `source_format`.
        dest: a tensor of a session or a writable array, float32 or uint8, of shape (1, C, H, W), (1, H, W, C), the same without the
        1, or (H, W) for GRAY; or such a shape, or (height, width) alone for (1, C, H, W): a fresh array of `dtype` is made. None: the
        size of the source. uint8 values are rounded (half up) and saturated.

        Raises InputError where image, dest and config don't fit together, LimitExceeded where there is no memory for a copy.
        """
        config = self.config
        try:
            sizes = [None if s is None else whole(s, what) for what, s in (("width", width), ("height", height), ("stride", stride))]
            source = open_source(image, config.source_format, *sizes)
            array = _destination(dest, source.pixels.shape[:2], config, checks.dtype(dtype, "dtype"))
        except MemoryError as error:
            raise LimitExceeded(f"there is no memory for such an image: {error}") from error
        view = _planes(array, _is_planar(array.shape, array.dtype, config))
        if not view.size:
            raise InputError(f"the destination {array.shape} has no pixels")
        process(self._task(source, view), config.num_threads)
        return dest if hasattr(dest, "host_array") else array

    def _task(self, source: ImageSource, view: np.ndarray) -> ImageTask:
        config = self.config
        kind, colours, rgb, planes = _colour_path(source.format, config.dest_format)
        padding = float(config.padding)
        grey = (0.0, 0.0) if kind == "rgb" and source.format == "HSV" else (padding, padding)
        return ImageTask(
            kind=kind,
            filter=config.filter,
            wrap=config.wrap,
            pixels=source.pixels,
            chroma=source.chroma if kind == "yuv" else None,
            outside=(*grey, padding, padding),
            yuv=_yuv_coefficients(config.yuv_standard, config.yuv_range),
            cubic=config.cubic_coefficient,
            matrix=_pixel_map(self.matrix, source.pixels.shape[:2], view.shape[1:]),
            colours=colours,
            rgb=rgb,
            planes=planes,
            mean=config.per_channel("mean"),
            normal=config.per_channel("normal"),
            destination=view,
        )


def _colour_path(source: str, dest: str) -> tuple[str, str, tuple[int, int, int], tuple[int, ...]]:
    """ImageTask's kind, colours, rgb and planes."""
    if source in YUV_FORMATS and dest == "GRAY":
        source = "GRAY"
    if source == dest == "HSV":
        return "rgb", "", (0, 1, 2), (0, 1, 2)
    kind = "yuv" if source in YUV_FORMATS else "rgba" if CHANNELS[source] == 4 else source.replace("BGR", "RGB").lower()
    rgb = (0, 0, 0) if kind == "gray" else (2, 1, 0) if source.startswith("BGR") else (0, 1, 2)
    if dest == "HSV":
        return kind, "hsv", rgb, (0, 1, 2)
    if dest == "GRAY":
        return kind, "" if kind == "gray" else "luma", rgb, (0 if kind == "gray" else LUMA,)
    order = rgb[::-1] if dest.startswith("BGR") else rgb
    return kind, "", rgb, (*order, ALPHA)[: CHANNELS[dest]]


def _yuv_coefficients(standard: str, range: str) -> tuple[float, float, float, float, float, float]:
    red, blue = _LUMA_WEIGHTS[standard]
    green = 1 - red - blue
    offset, luma, chroma = (16.0, 255 / 219, 255 / 224) if range == "video" else (0.0, 1.0, 1.0)
    v_red, u_blue = 2 * (1 - red) * chroma, 2 * (1 - blue) * chroma
    return offset, luma, v_red, u_blue * blue / green, v_red * red / green, u_blue


def _pixel_map(matrix: CVMatrix | None, source: tuple[int, ...], dest: tuple[int, ...]) -> np.ndarray:
    if matrix is not None:
        return np.asarray(matrix)
    (height, width), (dest_height, dest_width) = source, dest
    sx, sy = width / dest_width, height / dest_height
    return np.array([[sx, 0, (sx - 1) / 2], [0, sy, (sy - 1) / 2], [0, 0, 1]])


def _destination(dest: Any, source: tuple[int, ...], config: ImageProcessConfig, dtype: np.dtype) -> np.ndarray:
    """The array to write into."""
    if isinstance(dest, np.ndarray):
        if not dest.flags.writeable:
            raise InputError("the destination array is read-only")
        return dest
    if dest is None or isinstance(dest, tuple | list):
        shape = tuple(whole(size, "a size of the destination") for size in (source if dest is None else dest))
        if any(size < 0 for size in shape):
            raise InputError(f"the destination shape {shape} has a negative size")
        if len(shape) == 2:
            channels = CHANNELS[config.dest_format]
            shape = (1, *shape, channels) if config.layout == "NHWC" else (1, channels, *shape)
        _is_planar(shape, dtype, config)
        try:
            return np.empty(shape, dtype)
        except ValueError as error:  # of sizes whose product no array has
            raise LimitExceeded(f"a destination {shape} is too large: {error}") from error
    if not hasattr(dest, "host_array"):
        raise InputError(f"a destination is a tensor, an array, a shape or None; got {type(dest).__name__}")
    if any(size < 0 for size in dest.shape):
        raise InputError(f"the tensor's shape {tuple(dest.shape)} is still open: resize the session first")
    _is_planar(tuple(dest.shape), dest.dtype, config)
    return dest.host_array()


def _is_planar(shape: tuple[int, ...], dtype: np.dtype, config: ImageProcessConfig) -> bool:
    """Whether a destination's channels come before its rows. Raises InputError where it is no destination for this config."""
    if dtype not in (np.float32, np.uint8):
        raise InputError(f"a destination has dtype float32 or uint8; got {dtype}")
    channels = CHANNELS[config.dest_format]
    if len(shape) == 2 and channels == 1:
        return True
    if len(shape) == 3 or (len(shape) == 4 and shape[0] == 1):
        if config.layout != "NHWC" and shape[-3] == channels:
            return True
        if config.layout != "NCHW" and shape[-1] == channels:
            return False
    shapes = {"NCHW": f"(1, {channels}, H, W)", "NHWC": f"(1, H, W, {channels})"}
    wanted = shapes.get(config.layout) or " or ".join(shapes.values())
    raise InputError(f"dest_format {config.dest_format} has {channels} channels, so that the destination is {wanted}; got {shape}")


def _planes(array: np.ndarray, planar: bool) -> np.ndarray:
    """The view (channels, height, width) of a destination."""
    array = array[None] if array.ndim == 2 else array[0] if array.ndim == 4 else array
    return array if planar else array.transpose(2, 0, 1)
