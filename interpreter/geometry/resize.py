"""Geometry of nearest-neighbour Resize by whole factors: each element repeated k times, or every k-th one taken."""

import numpy as np

from mnnx.interpreter.geometry.region import dense, strides_of
from mnnx.interpreter.geometry.registry import geometry
from mnnx.schema.ops.resize import Resize


@geometry(Resize)
def resize(op, inputs, outputs):
    if op.mode != "nearest":
        return None
    if outputs[0].size == 0:
        return []
    x, roi, scales, sizes = (*inputs, None, None, None)[:4]
    shape, strides, offset = [], [], 0
    for scaling, stride in zip(op.scalings(x, roi, scales, sizes), strides_of(x.shape), strict=True):
        taps = op.taps(scaling)
        pattern = (0, 1, scaling.size, 1) if taps is None else None if taps.outside is not None else _pattern(taps.index[:, 0])
        if pattern is None:
            return None
        first, step, count, repeats = pattern
        offset += first * stride
        shape += [count, repeats]
        strides += [step * stride, 0]
    return [dense(0, offset, strides, shape)]


def _pattern(index: np.ndarray) -> tuple[int, int, int, int] | None:
    """`index` as (first, step, count, repeats): `count` evenly spaced indices, each repeated; None where it is no such thing."""
    if not index.size:
        return 0, 1, 0, 1
    changes = np.flatnonzero(np.diff(index))
    repeats = int(changes[0]) + 1 if changes.size else len(index)
    if len(index) % repeats:
        return None
    rows = index.reshape(-1, repeats)
    steps = np.diff(rows[:, 0])
    if (rows != rows[:, :1]).any() or (steps != steps[:1]).any():
        return None
    return int(index[0]), int(steps[0]) if steps.size else 1, len(rows), repeats
