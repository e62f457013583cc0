"""A picture from a file as the value of a model's input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mnnx.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from mnnx.interpreter.tensor import Tensor

_FORMATS = {1: "GRAY", 3: "RGB", 4: "RGBA"}


def read_picture(path: Path, tensor: Tensor, shape: Sequence[int] | None, options: Mapping[str, Any]) -> np.ndarray:
    """The picture scaled to the input's size; its own size where that is open.

    tensor: an input (N, C, H, W) or (N, H, W, C) with N = 1. shape: the input's shape, where the user gave it. options: keywords of
    ImageProcessConfig; the colours default to RGB, GRAY or RGBA by the number of channels. Raises InputError.
    """
    import numpy as np
    from PIL import Image

    import mnnx

    try:
        picture = Image.open(path)
        picture.load()
    except Exception as error:  # whatever Pillow makes of a damaged file
        raise InputError(f"{path} can't be read as a picture: {str(error) or type(error).__name__}") from error
    dims = shape if shape is not None else tensor.dims
    if dims is None or len(dims) != 4:
        raise InputError(f"input {tensor.name!r}: a picture needs an input of rank 4, (1, C, H, W) or (1, H, W, C); this one is {dims}")
    chosen = {key: value for key, value in options.items() if value is not None}
    layout = chosen.get("layout", "auto")
    if layout == "auto":
        layout = "NHWC" if dims[3] in _FORMATS and dims[1] not in _FORMATS else "NCHW"
    own = (1, 3, picture.height, picture.width) if layout == "NCHW" else (1, picture.height, picture.width, 3)
    full = tuple(dim if isinstance(dim, int) else size for dim, size in zip(dims, own, strict=True))
    channels = full[1 if layout == "NCHW" else 3]
    settings = {"dest_format": _FORMATS.get(channels, "RGB"), "filter": "bilinear"} | chosen | {"layout": layout}
    array = np.empty(full, tensor.dtype)
    return mnnx.ImageProcess(mnnx.ImageProcessConfig(**settings)).convert(picture, array)
