"""Raster on GPUs: its regions as a table that one dispatch per source works off."""

from __future__ import annotations

import numpy as np

from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.gpu.creators import creator
from mnnx.backends.gpu.execution import GpuExecution
from mnnx.backends.gpu.kernel import kernel
from mnnx.schema.ops.base import Op
from mnnx.schema.ops.raster import FILL, MAX_DIMS, Raster, Region

#: A region with so many times the elements of another isn't dispatched together with it.
_UNLIKE = 4


@creator(Raster, supports=lambda op, inputs, outputs: None if op.dtype.itemsize in (1, 2, 4, 8) else f"no movement of {op.dtype}")
def create(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return RasterExecution(op, backend)


class RasterExecution(GpuExecution):
    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        if outputs[0].spec.size == 0:
            return
        backend = self.backend
        fill = None if self.op.fill is None else backend.packed("plain", self.op.fill.reshape(1), np.array)
        regions = sorted(self.op.regions, key=lambda region: (region.source_index, region.count))
        table = backend.table(np.array([_words(region) for region in regions], np.int32))
        storage, width, _ = backend.raw_storage(self.op.dtype)
        found = kernel("raster", storage=storage, width=width)
        for first, last in _runs(regions):
            alike = regions[first:last]
            source = fill if alike[0].source_index == FILL else inputs[alike[0].source_index]
            dims = max(len(region.size) for region in alike)
            size = (max(region.count for region in alike), last - first)
            backend.commands.record(found, [source, table, outputs[0]], [first, dims], size, (64, 1, 1))


def _words(region: Region) -> list[int]:
    words = [region.count, region.source_offset, region.target_offset]
    for dim in zip(reversed(region.size), reversed(region.source_strides), reversed(region.target_strides), strict=True):
        words += dim
    return words + [1, 0, 0] * (MAX_DIMS - len(region.size))


def _runs(regions: list[Region]) -> list[tuple[int, int]]:
    """Ranges of regions of one source and about one size, of regions in that order."""
    runs = []
    first = 0
    for place in range(1, len(regions) + 1):
        start = regions[first]
        if place == len(regions) or regions[place].source_index != start.source_index or regions[place].count > _UNLIKE * start.count:
            runs.append((first, place))
            first = place
    return runs
