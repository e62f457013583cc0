"""Movements of blocked tensors (`backends/blocked.py`): a Raster whose regions count elements of the blocked memory.

Those ops have one that move whole pixels, or channels from one tensor to another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from mnnx.backends.backend import Specs
from mnnx.backends.blocked import blocked_shape, can_block
from mnnx.interpreter.geometry.region import strides_of, tidy
from mnnx.interpreter.geometry.registry import MOST_REGIONS
from mnnx.interpreter.geometry.slicing import pad_regions, pad_value
from mnnx.schema.ops.base import Op, Spec
from mnnx.schema.ops.raster import FILL, Raster, Region
from mnnx.schema.ops.shape import Concat, Split
from mnnx.schema.ops.slicing import Pad, Slice
from mnnx.schema.records import Row


class Run(Row):
    """Indices of one dim that are moved: the first and the step in the source, the first in the target, how many."""

    source: int
    step: int
    target: int
    count: int


def rewrite_blocked(op: Op, inputs: Specs, outputs: Specs, slot: int, lanes: int) -> Raster | None:
    """The Raster that gives output `slot` of `op` where all tensors that it moves are blocked; None where there is none."""
    function, result = _FUNCTIONS.get(type(op)), outputs[slot]
    if function is None or not can_block(result):
        return None
    found = function(op, inputs, outputs, slot, lanes)
    if found is None:
        return None
    regions, fill = found
    shape = blocked_shape(result.shape, lanes)
    if sum(region.count for region in regions) < math.prod(shape):
        regions.append(_lanes_past(result.shape, lanes))
    tidied = tidy(regions, MOST_REGIONS)
    return None if tidied is None else Raster(result.dtype, shape, tidied, fill)


def _concat(op: Concat, inputs: Specs, outputs: Specs, slot: int, lanes: int):
    result = outputs[0]
    axis = op.axis % result.rank
    regions, start = [], 0
    for index, spec in enumerate(inputs):
        runs = [Run(0, 1, start if i == axis else 0, n) for i, n in enumerate(spec.shape)]
        regions += _moved(index, spec, result, runs, lanes)
        start += spec.shape[axis]
    return regions, np.float32(0)


def _split(op: Split, inputs: Specs, outputs: Specs, slot: int, lanes: int):
    axis = op.axis % inputs[0].rank
    start = sum(spec.shape[axis] for spec in outputs[:slot])
    runs = [Run(start if i == axis else 0, 1, 0, n) for i, n in enumerate(outputs[slot].shape)]
    return list(_moved(0, inputs[0], outputs[slot], runs, lanes)), np.float32(0)


def _slice(op: Slice, inputs: Specs, outputs: Specs, slot: int, lanes: int):
    runs = [Run(start, step, 0, count) for start, step, count in op.ranges(inputs[0].shape, *inputs[1:])]
    return None if runs[1].step != 1 else (list(_moved(0, inputs[0], outputs[0], runs, lanes)), np.float32(0))


def _pad(op: Pad, inputs: Specs, outputs: Specs, slot: int, lanes: int):
    amounts, fill = op.amounts(inputs[0].shape, inputs[1], (*inputs, None, None)[3]), pad_value(op, inputs)
    if amounts[1] != (0, 0) or fill is None or not np.isfinite(fill):
        return None
    source, target = (blocked_shape(specs[0].shape, lanes) for specs in (inputs, outputs))
    regions = pad_regions(op.mode, source, target, [*amounts, (0, 0)])
    return None if regions is None else (regions, fill)


#: Op → the regions of an output, and their fill; None where it is no such movement. Lanes past the last channel may be left out.
_FUNCTIONS: dict[type[Op], Callable[..., tuple[list[Region], np.ndarray] | None]] = {
    Concat: _concat,
    Split: _split,
    Slice: _slice,
    Pad: _pad,
}


def _moved(index: int, source: Spec, target: Spec, runs: list[Run], lanes: int) -> Iterator[Region]:
    """Regions that move a box, given by a Run for each dim of the plain tensors, from source `index`; channels with step 1."""
    source_strides, target_strides = (strides_of(blocked_shape(spec.shape, lanes)) for spec in (source, target))
    others = [(run, s, t) for axis, (run, s, t) in enumerate(zip(runs, source_strides, target_strides, strict=False)) if axis != 1]
    source_start = sum(run.source * stride for run, stride, _ in others)
    target_start = sum(run.target * stride for run, _, stride in others)
    for from_, to, n, blocks in _pieces(runs[1], source.shape[1], target.shape[1], lanes):
        yield Region(
            index,
            source_start + from_ // lanes * source_strides[1] + from_ % lanes,
            (source_strides[1], *(run.step * stride for run, stride, _ in others), 1),
            target_start + to // lanes * target_strides[1] + to % lanes,
            (target_strides[1], *(stride for _, _, stride in others), 1),
            (blocks, *(run.count for run, _, _ in others), n),
        )


def _pieces(channels: Run, sources: int, targets: int, lanes: int) -> Iterator[tuple[int, int, int, int]]:
    """Channels (first of the source, first of the target, lanes, blocks) that lie within blocks on both sides; where the last ones of both
    tensors meet in place, the lanes past them come along."""
    done = 0
    while done < channels.count:
        from_, to, left = channels.source + done, channels.target + done, channels.count - done
        n = min(lanes - from_ % lanes, lanes - to % lanes, left)
        blocks = left // lanes if n == lanes else 1
        in_place = from_ % lanes == to % lanes == 0 and (from_ + n, to + n) == (sources, targets)
        yield from_, to, lanes if in_place else n, blocks
        done += n * blocks


def _lanes_past(shape: tuple[int, ...], lanes: int) -> Region:
    """The lanes past the last channel, filled."""
    strides = strides_of(blocked_shape(shape, lanes))
    blocks, used = divmod(shape[1], lanes)
    others = [(n, stride) for axis, (n, stride) in enumerate(zip(shape, strides, strict=False)) if axis != 1]
    size, target = (*(n for n, _ in others), lanes - used), (*(stride for _, stride in others), 1)
    return Region(FILL, 0, (0,) * len(size), blocks * strides[1] + used, target, size)
