"""Geometry of the ops in schema/ops/slicing.py."""

import itertools

import numpy as np

from mnnx.interpreter.geometry.region import box, dense, strides_of
from mnnx.interpreter.geometry.registry import MOST_REGIONS, Filled, geometry
from mnnx.schema.ops import slicing as ops
from mnnx.schema.ops.raster import FILL, Region


@geometry(ops.Slice)
def slice_(op, inputs, outputs):
    ranges = op.ranges(inputs[0].shape, *inputs[1:])
    strides = strides_of(inputs[0].shape)
    offset = sum(start * stride for (start, _, _), stride in zip(ranges, strides, strict=True))
    return [dense(0, offset, [step * stride for (_, step, _), stride in zip(ranges, strides, strict=True)], outputs[0].shape)]


def frame(position: tuple[int, ...], size: tuple[int, ...], shape: tuple[int, ...]) -> list[Region]:
    """Regions of the constant around the box of `size` at `position` in a target of `shape`: two slabs for each dim, outermost first."""
    regions = []
    start, extent = [0] * len(shape), list(shape)
    for axis, (first, count, dim) in enumerate(zip(position, size, shape, strict=True)):
        for low, high in ((0, first), (first + count, dim)):
            at, slab = [*start[:axis], low, *start[axis + 1 :]], [*extent[:axis], high - low, *extent[axis + 1 :]]
            region = box(FILL, slab, (at, shape), (at, shape))
            regions.append(Region(FILL, 0, (0,) * len(shape), region.target_offset, region.target_strides, region.size))
        start[axis], extent[axis] = first, count
    return regions


@geometry(ops.Pad)
def pad(op, inputs, outputs):
    fill = pad_value(op, inputs)
    regions = pad_regions(op.mode, inputs[0].shape, outputs[0].shape, op.amounts(inputs[0].shape, inputs[1], (*inputs, None, None)[3]))
    return None if regions is None or fill is None else Filled(regions, fill)


def pad_value(op: ops.Pad, inputs) -> np.ndarray | None:
    """What a Pad writes; None where that isn't known."""
    value = (*inputs, None)[2]
    if value is None or not value.size or op.mode != "constant":
        return np.zeros((), inputs[0].dtype)
    return None if value.value is None else value.value.reshape(())


def pad_regions(mode: str, shape: tuple[int, ...], padded: tuple[int, ...], amounts: list[tuple[int, int]]) -> list[Region] | None:
    """Regions of a padded tensor, the constant being FILL; `amounts` (before, after) of each dim may be negative."""
    if mode == "constant":
        source = [max(0, -before) for before, _ in amounts]
        target = tuple(max(0, before) for before, _ in amounts)
        size = tuple(dim + min(0, before) + min(0, after) for dim, (before, after) in zip(shape, amounts, strict=True))
        return [box(0, size, (source, shape), (target, padded)), *frame(target, size, padded)]
    dims = []
    for dim, (before, after) in zip(shape, amounts, strict=True):
        skipped = max(0, -before)
        runs = _runs(mode, dim - skipped - max(0, -after), max(0, before), max(0, after))
        if runs is None:
            return None
        dims.append([(target, skipped + source, step, count) for target, source, step, count in runs])
    if np.prod([len(runs) for runs in dims], dtype=float) > MOST_REGIONS:
        return None
    source_strides, target_strides = strides_of(shape), strides_of(padded)
    return [
        Region(
            0,
            sum(source * stride for (_, source, _, _), stride in zip(runs, source_strides, strict=True)),
            tuple(step * stride for (_, _, step, _), stride in zip(runs, source_strides, strict=True)),
            sum(target * stride for (target, _, _, _), stride in zip(runs, target_strides, strict=True)),
            target_strides,
            tuple(count for _, _, _, count in runs),
        )
        for runs in itertools.product(*dims)
    ]


def _runs(mode, dim, before, after):
    """The padded dim as runs (target, source, step, count) of evenly spaced source indices; None where they would be too many."""
    if dim == 0:
        return []
    if before == after == 0:
        return [(0, 0, 1, dim)]
    if mode == "edge" or dim == 1:
        runs = [(0, 0, 0, before), (before, 0, 1, dim), (before + dim, dim - 1, 0, after)]
        return [run for run in runs if run[3]]
    period = dim if mode == "wrap" else 2 * (dim - 1)
    if (before + after) // min(period, dim - 1) > MOST_REGIONS:
        return None
    runs, index, end = [], -before, dim + after
    while index < end:
        phase = index % period
        if phase < dim - 1 or mode == "wrap":  # rising, to the end of the dim
            source, step, count = phase, 1, min(dim - phase, end - index)
        else:  # falling from the last element, to the second
            source, step, count = period - phase, -1, min(period - phase, end - index)
        runs.append((index + before, source, step, count))
        index += count
    return runs


@geometry(ops.CenterCropPad)
def center_crop_pad(op, inputs, outputs):
    offsets = op.offsets(inputs[0].shape, inputs[1])
    source, target, size, shape = zip(*offsets, strict=True) if offsets else ((),) * 4
    return Filled([box(0, size, (source, inputs[0].shape), (target, shape)), *frame(target, size, shape)], 0)
