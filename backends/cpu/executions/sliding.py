"""Windows that slide over single channels: what depthwise convolutions and poolings record."""

from __future__ import annotations

import math

import numpy as np

from mnnx.backends.cpu.arguments import address_of, arguments, float32_bits, round_up
from mnnx.backends.cpu.kernel import kernel
from mnnx.backends.cpu.kernels.blocks import SLIDE_ROWS, Slide, SlideBytes
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
    windows: Windows, band: Windows, backend, scratch: DeviceTensor, channels: int, *, fill: float, factors: int = 0,
    element_size: int = 4, own_bytes: int | None = None, **values: int
):  # fmt: skip
    """The words for a kernel that slides windows over single channels, and what they refer to.

    `element_size`: of the source, in bytes; `own_bytes`: of a thread's working memory, where it isn't that of `slot_bytes`.
    """
    starts, (triples, pairs, singles), _ = band.runs()
    offsets, flags = 4 * starts, np.zeros(backend.threads, np.int64)
    planes, height, width = windows.output
    slide = Slide(
        channels=channels,
        channel_bytes=element_size * math.prod(windows.input),
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
        slot_bytes=slot_bytes(windows, band, Tiling.of(backend.target)) if own_bytes is None else own_bytes,
        spread_bytes=_spread_bytes(band),
        **values,
    )
    return (*slide, *band.geometry), (offsets, flags)


class ByteWindows:
    """Windows over single channels of bytes, whose results are bytes: y = saturate(round_to_even(combined * factor * scale) + zero).

    Combined are floats: the largest one, or a sum that must stay below 2^24 to be exact.
    """

    def __init__(self, backend, windows: Windows, channels: int, multiplier: int = 1):
        self.backend, self.windows, self.channels, self.multiplier = backend, windows, channels, multiplier
        self.band, self.tiling = band_of(windows), Tiling.of(backend.target)
        self._results = slot_bytes(windows, self.band, self.tiling)
        self._own_bytes = self._results + round_up(4 * math.prod(self.band.output[1:]))

    @property
    def scratch_bytes(self) -> int:
        return self.backend.threads * self._own_bytes

    @property
    def order(self) -> np.ndarray:
        """The taps' numbers, run by run: the order of weights."""
        return self.band.runs()[2]

    def record(
        self, combine: str, x: DeviceTensor, y: DeviceTensor, scratch: DeviceTensor, fill: float, scales: np.ndarray, zero: np.ndarray,
        weights: np.ndarray | None = None, bias: np.ndarray | None = None, factors: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        """combine "dot" with weights [outputs, taps], run by run, and bias [outputs]; or "max".

        fill: what the padding holds. scales: one, or one per output of an image; factors: one per pixel; all float32.
        """
        if not y.spec.size:
            return
        none, no_bounds = np.zeros(1, np.float32), np.array([-np.inf, np.inf], np.float32)
        weights, bias = (none if array is None else array for array in (weights, bias))
        words, keep = slide_block(
            self.windows, self.band, self.backend, scratch, self.channels,
            source=address_of(x),
            element_size=1,
            own_bytes=self._own_bytes,
            fill=fill,
            weights=address_of(weights),
            bias=address_of(bias),
            outputs=max(bias.size, scales.size) if max(bias.size, scales.size) > 1 else 0,
            multiplier=self.multiplier,
            target=address_of(y),
            residual=0,
            parameters=address_of(no_bounds),
            factors=0 if factors is None else address_of(factors),
        )  # fmt: skip
        result = SlideBytes(self._results, address_of(scales), 4 if scales.size > 1 else 0, address_of(zero))
        windows, lanes = self.windows, self.tiling.lanes
        work = self.channels * (windows.spread_size + self.multiplier * (windows.taps + 1) * windows.pixels) / lanes
        slide = kernel("byte_windows.slide", lanes=lanes, fma=self.tiling.fma, combine=combine, source=x.dtype.name, target=y.dtype.name)
        kept = (keep, weights, bias, scales, zero, factors, no_bounds)
        self.backend.commands.record(slide, arguments(*words, *result), min(self.channels, self.backend.chunks(work)), kept)
