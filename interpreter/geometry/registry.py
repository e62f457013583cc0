"""Geometry functions by op: `@geometry(Transpose)`, one function per op, called at resize.

    @geometry(Transpose)
    def transpose(op, inputs, outputs):
        return [dense(0, 0, …, outputs[0].shape)]

It gets the op and the Specs of its inputs and outputs, and returns the regions of its output: an iterable of Regions, a `Filled` where a
constant is written too, or a tuple of these, one per output, for an op with several outputs. None says that this op, on such inputs,
is no mere movement or would need too many regions. Source indices are those of the op's inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from mnnx.interpreter.geometry.region import tidy
from mnnx.schema import dtypes
from mnnx.schema.ops.base import Op, Spec
from mnnx.schema.ops.families import Families
from mnnx.schema.ops.raster import Raster, Region
from mnnx.schema.records import Row

#: A movement that takes more regions than this is left to the op's own execution.
MOST_REGIONS = 256

Specs = Sequence[Spec | None]


class Filled(Row):
    """Regions some of which read the constant `fill` (source index FILL)."""

    regions: Iterable[Region]
    fill: np.ndarray | int


_FUNCTIONS: Families[Callable[[Any, Specs, Specs], Any]] = Families(__package__, "geometry functions")


def geometry(*op_classes: type[Op]):
    def register(function):
        _FUNCTIONS.register(op_classes, function)
        return function

    return register


def can_be_movement(op_class: type[Op]) -> bool:
    """Whether an op becomes Rasters, at least on some inputs."""
    return _FUNCTIONS.find(op_class) is not None


def rewrite(op: Op, inputs: Specs, outputs: Specs) -> tuple[Raster, ...] | None:
    """One Raster per output of `op`, each over the op's own inputs; None where the op is no movement, or one of text."""
    function = _FUNCTIONS.find(type(op))
    if function is None or any(o is None or o.dtype == dtypes.STRING for o in outputs):
        return None
    parts = function(op, inputs, outputs)
    if parts is None:
        return None
    rasters = []
    for part, output in zip(parts if isinstance(parts, tuple) and not isinstance(parts, Filled) else (parts,), outputs, strict=True):
        regions, fill = part if isinstance(part, Filled) else (part, None)
        regions = tidy(regions, MOST_REGIONS)
        if regions is None:
            return None
        rasters.append(Raster(output.dtype, output.shape, regions, fill))
    return tuple(rasters)
