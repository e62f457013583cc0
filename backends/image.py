"""What image preprocessing asks of a device, and the entry to the one that does it: the CPU, where pictures are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

#: The planes of a sampled pixel beside its source channels: 255, and the luma that the colour step TO_LUMA makes.
ALPHA, LUMA = 3, 4


@dataclass(frozen=True, eq=False)
class ImageTask:
    """One image to be sampled, recoloured and normalised into `destination`; the views say where everything lies.

    kind: of the source: gray, rgb, rgba, hsv (hue 0 … 180) or yuv, in whatever order its channels are. filter: nearest, bilinear or
    bicubic (Keys, with coefficient `cubic`). wrap: clamp_to_edge, zero or repeat; outside: the pixel that zero means. pixels: uint8 or
    float32 (height, width, channels), each row contiguous; for yuv the luma, with chroma = (U, V), each (ceil(height / 2),
    ceil(width / 2)). yuv: luma offset, luma scale, V to red, U and V to green, U to blue.
    matrix: destination pixel to source pixel, float64 3×3. A sampled pixel has the source's channels (yuv and hsv: RGB) in planes
    0 … and 255 in plane ALPHA unless the source has alpha. colours: "", "luma" (to plane LUMA) or "hsv" (to planes 0–2), from the planes
    `rgb`. destination: float32 or uint8 (channels, height, width) with any strides; its channel c is
    (plane `planes[c]` − mean[c]) · normal[c], for uint8 rounded (half up) and saturated.
    """

    kind: str
    filter: str
    wrap: str
    pixels: np.ndarray
    chroma: tuple[np.ndarray, np.ndarray] | None
    outside: tuple[float, float, float, float]
    yuv: tuple[float, float, float, float, float, float]
    cubic: float
    matrix: np.ndarray
    colours: str
    rgb: tuple[int, int, int]
    planes: tuple[int, ...]
    mean: tuple[float, ...]
    normal: tuple[float, ...]
    destination: np.ndarray


def process(task: ImageTask, num_threads: int) -> None:
    """Fills `task.destination`. num_threads: 0 takes the CPUs this process may use."""
    from mnnx.backends.cpu.executions import image_sampling

    image_sampling.process(task, num_threads)
