"""Windows that slide over single channels: what depthwise convolutions and poolings record."""

from __future__ import annotations

import math

import numpy as np

from mnnx.backends.cpu.arguments import address_of, arguments, float32_bits, round_up
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


def _together(windows: Windows, band: Windows) -> int:
    """Channels that are spread before windows slide over them, so that nothing is read that was just written."""
    return max(1, min(16, _BAND_BYTES // _spread_bytes(band))) if band.output == windows.output else 1


def _spread_bytes(band: Windows) -> int:
    return round_up(4 * band.spread_size)


def slot_bytes(windows: Windows, band: Windows, tiling: Tiling) -> int:
    """Working memory per thread of a kernel that slides windows over single channels, `band` by band."""
    return _together(windows, band) * _spread_bytes(band) + round_up(8 * tiling.lanes)


def slide_block(
    windows: Windows, band: Windows, backend, scratch: DeviceTensor, channels: int, *, fill: float, factors: int = 0, **values: int
):
    """The argument block of a kernel that slides windows over single channels, and what it refers to."""
    starts, (triples, pairs, singles), _ = band.runs()
    offsets, flags = 4 * starts, np.zeros(backend.threads, np.int64)
    planes, height, width = windows.output
    slide = Slide(
        channels=channels,
        channel_bytes=4 * math.prod(windows.input),
        band=band.output[1],
        spread_rows=band.spread_rows,
        together=_together(windows, band),
        fill=float32_bits(fill),
        offsets=address_of(offsets),
        triples=triples,
        pairs=pairs,
        singles=singles,
        planes=planes,
        height=height,
        width=width,
        row_stride=4 * band.spread[2],
        plane_stride=4 * band.spread[1] * band.spread[2],
        factors=factors,
        flags=address_of(flags),
        slots=backend.threads,
        memory=address_of(scratch),
        slot_bytes=slot_bytes(windows, band, Tiling.of(backend.target)),
        spread_bytes=_spread_bytes(band),
        **values,
    )
    return arguments(*slide, *band.geometry), (offsets, flags)
