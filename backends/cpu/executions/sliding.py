"""Windows that slide over single channels: what depthwise convolutions and poolings record."""

from __future__ import annotations

import itertools
import math

import numpy as np

from mnnx.backends.cpu.arguments import address_of, arguments, float32_bits, round_up
from mnnx.backends.cpu.kernel import Kernel, kernel
from mnnx.backends.cpu.kernels.blocks import SLIDE_ROWS, ByteAbreast, Slide, SlideBytes
from mnnx.backends.cpu.tiling import Tiling
from mnnx.backends.cpu.windows import Windows
from mnnx.backends.tensor import DeviceTensor

#: The spread rows that windows slide over at a time, in bytes.
_BAND_BYTES = 16 * 1024
#: The largest padded image of a vector of channels.
_MOST_ABREAST_BYTES = 128 * 1024


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
    windows: Windows, band: Windows, backend, memory: int, channels: int, *, fill: float, factors: int = 0,
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
        memory=memory,
        slot_bytes=slot_bytes(windows, band, Tiling.of(backend.target)) if own_bytes is None else own_bytes,
        spread_bytes=_spread_bytes(band),
        **values,
    )
    return (*slide, *band.geometry), (offsets, flags)


class ByteWindows:
    """Windows over single channels of bytes, whose results are bytes: y = saturate(round_to_even(combined * factor * scale) + zero).

    Combined are floats: the largest one, or a sum that must stay below 2^24 to be exact. A vector holds pixels of a row, or, where rows
    would fill no more than half of it (`abreast`), channels of a pixel.
    """

    def __init__(self, backend, windows: Windows, images: int, channels: int, multiplier: int = 1):
        self.backend, self.windows, self.images, self.channels, self.multiplier = backend, windows, images, channels, multiplier
        self.band, self.tiling = band_of(windows), Tiling.of(backend.target)
        lanes = self.tiling.lanes
        dims = zip(windows.output, windows.strides, windows.kernel, windows.dilations, strict=True)
        self.reach = tuple((o - 1) * s + (k - 1) * d + 1 for o, s, k, d in dims)  # of the padded image
        image_bytes = 4 * lanes * math.prod(self.reach)
        self.abreast = multiplier == 1 and 2 * windows.output[2] <= lanes and image_bytes <= _MOST_ABREAST_BYTES
        if self.abreast:
            self._results = round_up(image_bytes)
            self._own_bytes = self._results + round_up(lanes * windows.pixels)
        else:
            self._results = slot_bytes(windows, self.band, self.tiling)
            self._own_bytes = self._results + round_up(4 * math.prod(self.band.output[1:]))

    @property
    def scratch_bytes(self) -> int:
        return self.backend.threads * self._own_bytes

    @property
    def order(self) -> tuple[int, ...]:
        """What weights that are packed for these windows have in common: with others of equal order they can be shared."""
        return (self.tiling.lanes,) if self.abreast else tuple(self.band.runs()[2])

    def pack(self, weights: np.ndarray) -> np.ndarray:
        """Weights [outputs, taps], or one row for all, in the order of the kernel."""
        return self._vectors(weights) if self.abreast else np.ascontiguousarray(weights[:, list(self.order)])

    def _vectors(self, rows: np.ndarray) -> np.ndarray:
        """[outputs, n] → [blocks, n, lanes]; one row goes to all lanes of one block."""
        outputs, count = rows.shape
        lanes = self.tiling.lanes
        if outputs == 1:
            return np.repeat(rows.reshape(1, count, 1), lanes, 2)
        padded = np.zeros((-(-outputs // lanes) * lanes, count), np.float32)
        padded[:outputs] = rows
        return np.ascontiguousarray(padded.reshape(-1, lanes, count).swapaxes(1, 2))

    def record(
        self, combine: str, x: DeviceTensor, y: DeviceTensor, scratch: DeviceTensor, fill: float, scales: np.ndarray, zero: np.ndarray,
        weights: np.ndarray | None = None, bias: np.ndarray | None = None, factors: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        """combine "dot" with packed weights and bias [outputs] (or one for all); or "max".

        fill: what the padding holds. scales: one, or one per output of an image; factors: one per pixel; all float32.
        """
        if not y.spec.size:
            return
        none = np.zeros(1, np.float32)
        weights, bias = (none if array is None else array for array in (weights, bias))
        record = self._record_abreast if self.abreast else self._record_slide
        record(combine, x, y, address_of(scratch), fill, scales, zero, weights, bias, factors)

    def _record_slide(
        self, combine: str, x: DeviceTensor, y: DeviceTensor, memory: int, fill: float, scales: np.ndarray, zero: np.ndarray,
        weights: np.ndarray, bias: np.ndarray, factors: np.ndarray | None,
    ) -> None:  # fmt: skip
        no_bounds, outputs, channels = np.array([-np.inf, np.inf], np.float32), max(bias.size, scales.size), self.images * self.channels
        words, keep = slide_block(
            self.windows, self.band, self.backend, memory, channels,
            source=address_of(x),
            element_size=1,
            own_bytes=self._own_bytes,
            fill=fill,
            weights=address_of(weights),
            bias=address_of(bias),
            outputs=outputs if outputs > 1 else 0,
            multiplier=self.multiplier,
            target=address_of(y),
            residual=0,
            parameters=address_of(no_bounds),
            factors=0 if factors is None else address_of(factors),
        )  # fmt: skip
        result = SlideBytes(self._results, address_of(scales), 4 if scales.size > 1 else 0, address_of(zero))
        windows, lanes = self.windows, self.tiling.lanes
        work = channels * (windows.spread_size + self.multiplier * (windows.taps + 1) * windows.pixels) / lanes
        kept = (keep, weights, bias, scales, zero, factors, no_bounds)
        slide = self._kernel("slide", combine, x, y)
        self.backend.commands.record(slide, arguments(*words, *result), min(channels, self.backend.chunks(work)), kept)

    def _record_abreast(
        self, combine: str, x: DeviceTensor, y: DeviceTensor, memory: int, fill: float, scales: np.ndarray, zero: np.ndarray,
        weights: np.ndarray, bias: np.ndarray, factors: np.ndarray | None,
    ) -> None:  # fmt: skip
        windows, lanes, (_, rows, columns) = self.windows, self.tiling.lanes, self.reach
        taps = itertools.product(*(range(0, k * d, d) for k, d in zip(windows.kernel, windows.dilations, strict=True)))
        offsets = np.array([4 * lanes * ((z * rows + y) * columns + x) for z, y, x in taps], np.int64)
        factors = np.ones(windows.pixels, np.float32) if factors is None else factors
        bias, scales = (self._vectors(array.reshape(-1, 1)) for array in (bias, scales))
        zero, flags = zero.astype(np.float32), np.zeros(self.backend.threads, np.int64)
        block = ByteAbreast(
            address_of(x), address_of(y), self.images, self.channels, *windows.input, *self.reach, *windows.begin, *windows.strides,
            *windows.output, windows.taps, address_of(offsets), *_blocks(weights), *_blocks(bias), *_blocks(scales), address_of(zero),
            address_of(factors), float32_bits(fill), address_of(flags), self.backend.threads, memory, self._own_bytes, self._results,
        )  # fmt: skip
        tasks = self.images * -(-self.channels // lanes)
        work = tasks * (2 * lanes * (math.prod(windows.input) + windows.pixels) + windows.taps * windows.pixels)
        kept = (weights, bias, scales, zero, factors, offsets, flags)
        abreast = self._kernel("abreast", combine, x, y)
        self.backend.commands.record(abreast, arguments(*block), min(tasks, self.backend.chunks(work)), kept)

    def _kernel(self, name: str, combine: str, x: DeviceTensor, y: DeviceTensor) -> Kernel:
        return kernel(
            f"byte_windows.{name}", lanes=self.tiling.lanes, fma=self.tiling.fma, combine=combine, source=x.dtype.name, target=y.dtype.name
        )


def _blocks(vectors: np.ndarray) -> tuple[int, int]:
    """Where vectors lie, and the bytes from one block to the next; 0 where one block serves all."""
    return address_of(vectors), vectors.nbytes // len(vectors) if len(vectors) > 1 else 0
