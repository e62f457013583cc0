"""Sliding windows on NumPy arrays: cutting them out (im2col), adding them back (col2im), and which inputs a tap reads."""

import itertools
import math
from collections.abc import Iterator

import numpy as np

from mnnx.schema.ops.windows import ConvGeometry
from mnnx.schema.records import Row

#: Columns are made for so many elements at a time, so that working memory stays small beside what an op reads and writes.
COLUMN_ELEMENTS = 1 << 23

_ALL = (slice(None), slice(None))


class Tap(Row):
    """Tap `index` of the windows in `windows`, and the positions it reads for them; all inside the input."""

    index: int
    windows: slice
    positions: slice


def taps(kernel: int, stride: int, dilation: int, begin: int, count: int, size: int) -> list[Tap]:
    """The taps of `count` windows along one dim of `size` elements, those that only meet padding left out."""
    result = []
    for index in range(kernel):
        start = index * dilation - begin
        first = max(0, -(start // stride))
        last = min(count, (size - 1 - start) // stride + 1)
        if first < last:
            low = start + first * stride
            result.append(Tap(index, slice(first, last), slice(low, low + (last - first - 1) * stride + 1, stride)))
    return result


def _all_taps(geometry: ConvGeometry, counts: tuple[int, ...], sizes: tuple[int, ...]) -> Iterator[tuple[int, tuple, tuple]]:
    """Per tap of the whole kernel: its flat index, the windows it belongs to and the positions it reads, one slice per dim each."""
    g = geometry
    dims = [taps(*d) for d in zip(g.kernel, g.strides, g.dilations, g.begin, counts, sizes, strict=True)]
    for combination in itertools.product(*dims):
        flat = 0
        for tap, kernel in zip(combination, g.kernel, strict=True):
            flat = flat * kernel + tap.index
        yield flat, tuple(t.windows for t in combination), tuple(t.positions for t in combination)


def columns(x: np.ndarray, geometry: ConvGeometry) -> np.ndarray:
    """Every window of x [N, C, spatial…], padded with 0: [N, C, kernel taps, windows…]."""
    result = np.zeros((*x.shape[:2], math.prod(geometry.kernel), *geometry.output), x.dtype)
    for tap, windows, positions in _all_taps(geometry, geometry.output, geometry.input):
        result[(*_ALL, tap, *windows)] = x[_ALL + positions]
    return result


def add_columns(y: np.ndarray, blocks: np.ndarray, geometry: ConvGeometry, counts: tuple[int, ...]) -> None:
    """Adds blocks [N, C, kernel taps, windows…] (`counts` windows) to y [N, C, spatial…]; what falls on padding is dropped."""
    for tap, windows, positions in _all_taps(geometry, counts, y.shape[2:]):
        y[_ALL + positions] += blocks[(*_ALL, tap, *windows)]


def parts(batch: int, rows: int, elements_per_row: int) -> Iterator[tuple[slice, int, int]]:
    """Cuts `batch` images of `rows` rows (the first spatial dim) so that a part has few enough elements: (images, first row, last row)."""
    per_image = rows * elements_per_row
    images = max(1, COLUMN_ELEMENTS // max(1, per_image))
    step = rows if per_image <= COLUMN_ELEMENTS else max(1, COLUMN_ELEMENTS // elements_per_row)
    for image in range(0, batch, images):
        for row in range(0, rows, step):
            yield slice(image, min(batch, image + images)), row, min(rows, row + step)


def rows_of(geometry: ConvGeometry, first: int, last: int) -> ConvGeometry:
    """The windows first … last-1 of the first dim alone."""
    begin = (geometry.begin[0] - first * geometry.strides[0], *geometry.begin[1:])
    return geometry._replace(begin=begin, output=(last - first, *geometry.output[1:]))
