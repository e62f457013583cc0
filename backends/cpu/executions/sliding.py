"""Windows that slide over single channels: what depthwise convolutions and poolings record."""

from __future__ import annotations

import math

import numpy as np

from mnnx.backends.cpu.arguments import address_of, arguments, float32_bits
from mnnx.backends.cpu.executions.pixel_product import round_up
from mnnx.backends.cpu.kernels.blocks import SLIDE_ROWS, Slide
from mnnx.backends.cpu.tiling import Tiling
from mnnx.backends.cpu.windows import Windows
from mnnx.backends.tensor import DeviceTensor

#: The spread rows that windows slide over at a time, in bytes.
_BAND_BYTES = 16 * 1024


def band_of(windows: Windows) -> Windows:
    """The windows of as many rows as a kernel that slides over single channels does together: their spread image stays in the L1 cache."""
    row_bytes = 4 * math.prod(windows.phases) * windows.spread[0] * windows.spread[2]
    halo = windows.spread[1] - windows.output[1]
    rows = (_BAND_BYTES // row_bytes - halo) // SLIDE_ROWS * SLIDE_ROWS
    return windows.band(min(windows.output[1], max(SLIDE_ROWS, rows)))


def slot_bytes(band: Windows, tiling: Tiling) -> int:
    """Working memory per thread of a kernel that slides windows over single channels, `band` by band."""
    return round_up(4 * (band.spread_size + 2 * tiling.lanes))


def slide_block(
    windows: Windows, band: Windows, backend, scratch: DeviceTensor, channels: int, *, fill: float, factors: int = 0, **values: int
):
    """The argument block of a kernel that slides windows over single channels, and what it refers to."""
    offsets, flags = 4 * band.tap_offsets(), np.zeros(backend.threads, np.int64)
    planes, height, width = windows.output
    slide = Slide(
        channels=channels,
        channel_bytes=4 * math.prod(windows.input),
        band=band.output[1],
        spread_rows=band.spread_rows,
        fill=float32_bits(fill),
        offsets=address_of(offsets),
        taps=windows.taps,
        planes=planes,
        height=height,
        width=width,
        row_stride=4 * band.spread[2],
        plane_stride=4 * band.spread[1] * band.spread[2],
        factors=factors,
        flags=address_of(flags),
        slots=backend.threads,
        memory=address_of(scratch),
        slot_bytes=slot_bytes(band, Tiling.of(backend.target)),
        **values,
    )
    return arguments(*slide, *band.geometry), (offsets, flags)
