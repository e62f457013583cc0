"""Arithmetic on the regions of a Raster: merging dims, splitting deep ones, and telling what needs no copy (views)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from mnnx.schema.ops.raster import FILL, MAX_DIMS, Raster, Region


def strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def whole(source_index: int, count: int) -> Region:
    """All `count` elements of a source to the start of the target."""
    return Region(source_index, 0, (1,), 0, (1,), (count,))


def dense(source_index: int, source_offset: int, source_strides: Sequence[int], shape: Sequence[int]) -> Region:
    """A strided source written densely to a whole target of this shape."""
    return Region(source_index, source_offset, tuple(source_strides), 0, strides_of(shape), tuple(shape))


def box(
    source_index: int, size: Sequence[int], source: tuple[Sequence[int], Sequence[int]], target: tuple[Sequence[int], Sequence[int]]
) -> Region:
    """A box of `size` elements, from one position of a dense source to one of a dense target; each is given as (position, shape)."""
    (from_, source_shape), (to, target_shape) = source, target
    source_strides, target_strides = strides_of(source_shape), strides_of(target_shape)
    return Region(
        source_index,
        sum(p * s for p, s in zip(from_, source_strides, strict=True)),
        source_strides,
        sum(p * s for p, s in zip(to, target_strides, strict=True)),
        target_strides,
        tuple(size),
    )


def normalize(region: Region) -> Region:
    """The same movement with dims of 1 dropped, dims in order of falling target stride, and neighbours that move as one merged.

    One dim at least remains; a region of no elements stays as it is.
    """
    if 0 in region.size:
        return region
    dims = [
        (target, source, n) for target, source, n in zip(region.target_strides, region.source_strides, region.size, strict=True) if n != 1
    ]
    dims.sort(key=lambda dim: -dim[0])
    merged: list[tuple[int, int, int]] = []
    for target, source, n in dims:
        if merged and merged[-1][0] == target * n and merged[-1][1] == source * n:
            merged[-1] = (target, source, merged[-1][2] * n)
        else:
            merged.append((target, source, n))
    targets, sources, sizes = zip(*(merged or [(1, 0 if region.source_index == FILL else 1, 1)]), strict=True)
    return Region(region.source_index, region.source_offset, sources, region.target_offset, targets, sizes)


def shallow(region: Region) -> Iterator[Region]:
    """Regions of at most MAX_DIMS dims that together move the same: the outermost dims of a deeper one are taken apart."""
    extra = len(region.size) - MAX_DIMS
    if extra <= 0:
        yield region
        return
    for index in itertools.product(*map(range, region.size[:extra])):
        yield Region(
            region.source_index,
            region.source_offset + sum(i * s for i, s in zip(index, region.source_strides[:extra], strict=True)),
            region.source_strides[extra:],
            region.target_offset + sum(i * s for i, s in zip(index, region.target_strides[:extra], strict=True)),
            region.target_strides[extra:],
            region.size[extra:],
        )


def tidy(regions: Iterable[Region], most: int) -> tuple[Region, ...] | None:
    """Regions as a kernel wants them (see schema/ops/raster.py), or None where they would be more than `most`."""
    tidied: list[Region] = []
    for region in regions:
        if region.count == 0:
            continue
        region = normalize(region)
        if math.prod(region.size[: max(0, len(region.size) - MAX_DIMS)]) + len(tidied) > most:
            return None
        tidied.extend(shallow(region))
    return tuple(tidied)


def piece(raster: Raster) -> tuple[int, int] | None:
    """(source index, offset in elements) where the whole target is one dense piece of one source, else None."""
    if len(raster.regions) != 1:
        return None
    (region,) = raster.regions
    if region.source_index == FILL or region.source_strides != (1,) or region.target_strides != (1,):
        return None
    return region.source_index, region.source_offset
