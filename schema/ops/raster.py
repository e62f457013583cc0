"""Raster: what every op that only moves data becomes at resize time. It is made by the interpreter's geometry and never stands in a
model file (so it isn't registered under `@op`).

The contract of a Raster kernel:

* Input i of the op is what a region with `source_index == i` reads; inputs that no region names may be None. A region with
  `source_index == FILL` reads the one element `fill`, with strides of 0: its address serves as the source pointer.
* Tensors are dense and row-major. Offsets and strides count elements of `dtype`; the kernel needs to know nothing of the dtype but
  its size (1, 2, 4, 8 or 16 bytes; 4-bit and 2-bit types lie in one byte per element, as in NumPy).
* A region has 1 … MAX_DIMS dims, no dim of size 0. Source strides may be negative or 0, target strides are positive. Dims stand in
  order of falling target stride, so the last is the one to vectorise over; neighbours that move as one are merged already.
* Regions don't overlap in the target, and together they write all of it: they may run in any order and on any thread.
* `infer` has checked that every address lies inside its tensor. An output of size 0 has no regions.
"""

import math
from collections.abc import Iterable

import numpy as np

from mnnx.schema.ops.base import Op, Spec, require
from mnnx.schema.records import Row

FILL = -1
MAX_DIMS = 8


class Region(Row):
    """For every index i below `size`: target[target_offset + Σ iₖ·target_strides[k]] = source[source_offset + Σ iₖ·source_strides[k]]."""

    source_index: int
    source_offset: int
    source_strides: tuple[int, ...]
    target_offset: int
    target_strides: tuple[int, ...]
    size: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many elements it moves."""
        return math.prod(self.size)

    def source_span(self) -> tuple[int, int]:
        """The lowest and the highest element that it reads."""
        return _span(self.source_offset, self.source_strides, self.size)

    def target_span(self) -> tuple[int, int]:
        """The lowest and the highest element that it writes."""
        return _span(self.target_offset, self.target_strides, self.size)


def _span(offset: int, strides: tuple[int, ...], size: tuple[int, ...]) -> tuple[int, int]:
    ends = [stride * (n - 1) for stride, n in zip(strides, size, strict=True)]
    return offset + sum(e for e in ends if e < 0), offset + sum(e for e in ends if e > 0)


class Raster(Op):
    """A tensor of `dtype` and `shape`, put together from regions of the inputs and of the constant `fill` (a 0-d array or None)."""

    name = "mnnx::Raster"

    def __init__(self, dtype: np.dtype, shape: tuple[int, ...], regions: Iterable[Region], fill: np.ndarray | None = None):
        for key, value in (
            ("dtype", np.dtype(dtype)),
            ("shape", tuple(shape)),
            ("regions", tuple(regions)),
            ("fill", None if fill is None else np.asarray(fill, dtype).reshape(())),
        ):
            object.__setattr__(self, key, value)

    def __repr__(self) -> str:
        return f"Raster({self.dtype.name}{list(self.shape)}, {len(self.regions)} regions)"

    @property
    def sources(self) -> tuple[int, ...]:
        """The indices of the inputs that are read, in rising order."""
        return tuple(sorted({r.source_index for r in self.regions} - {FILL}))

    def infer(self, *inputs: Spec | None) -> Spec:
        size = math.prod(self.shape)
        for region in self.regions:
            source = None if region.source_index == FILL or region.source_index >= len(inputs) else inputs[region.source_index]
            require(1 <= len(region.size) <= MAX_DIMS and min(region.size) > 0, f"a region has 1 … {MAX_DIMS} dims, not {region.size}")
            if region.source_index == FILL:
                require(self.fill is not None and not any(region.source_strides) and region.source_offset == 0, "fill reads one element")
            else:
                require(source is not None, f"a region reads input {region.source_index}, which isn't there")
                require(source.dtype == self.dtype, f"input {region.source_index} must be {self.dtype.name}, not {source}")
                low, high = region.source_span()
                require(low >= 0 and high < source.size, f"a region reads elements {low} … {high} of {source}")
            low, high = region.target_span()
            require(low >= 0 and high < size, f"a region writes elements {low} … {high} of {size}")
        require(sum(r.count for r in self.regions) == size, f"regions must write each of {size} elements once")
        return Spec(self.dtype, self.shape)
