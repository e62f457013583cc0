"""Geometry of Gather at indices that are known."""

import math

import numpy as np

from mnnx.interpreter.geometry.registry import MOST_REGIONS, geometry
from mnnx.schema.ops.base import require
from mnnx.schema.ops.indexing import Gather
from mnnx.schema.ops.raster import Region


@geometry(Gather)
def gather(op, inputs, outputs):
    data, indices = inputs
    if indices.value is None:
        return None
    axis = op.axis % data.rank
    dim, inner, outer = data.shape[axis], math.prod(data.shape[axis + 1 :]), math.prod(data.shape[:axis])
    chosen = indices.value.reshape(-1)
    require(((-dim <= chosen) & (chosen < dim)).all(), f"indices must be in [{-dim}, {dim - 1}], not {chosen.tolist()[:20]}")
    runs = evenly_spaced(np.where(chosen < 0, chosen + dim, chosen).tolist())
    if runs is None:
        return None
    return [
        Region(0, first * inner, (dim * inner, step * inner, 1), place * inner, (indices.size * inner, inner, 1), (outer, count, inner))
        for place, first, step, count in runs
    ]


def evenly_spaced(indices: list[int]) -> list[tuple[int, int, int, int]] | None:
    """`indices` as runs (place, first index, step, count); None where they would be too many."""
    runs, place = [], 0
    while place < len(indices):
        if len(runs) == MOST_REGIONS:
            return None
        end = place + 1
        step = indices[end] - indices[place] if end < len(indices) else 0
        while end < len(indices) and indices[end] - indices[end - 1] == step:
            end += 1
        runs.append((place, indices[place], step, end - place))
        place = end
    return runs
