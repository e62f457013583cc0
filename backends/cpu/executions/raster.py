"""Raster on the CPU: its regions as descriptors of one unit (see kernels/raster.py)."""

from __future__ import annotations

import numpy as np

from mnnx.backends.backend import Execution, Tensors
from mnnx.backends.cpu.arguments import address_of
from mnnx.backends.cpu.creators import creator
from mnnx.backends.cpu.kernel import kernel
from mnnx.schema.ops.raster import FILL, Raster, Region

_RUN, _FILL, _STRIDED, _TRANSPOSED = range(4)  # as in kernels/raster.py
_BLOCK_BYTES = 1 << 15
_TILE = 64  # side of the blocks that are transposed within the first-level cache


@creator(Raster)
def create(op: Raster, backend, inputs, outputs) -> Execution:
    return RasterExecution(op, backend)


class RasterExecution(Execution):
    """All regions in one unit, cut into items of about as many bytes."""

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        if outputs[0].spec.size == 0:
            return
        fill = None if self.op.fill is None else np.array(self.op.fill)
        target, itemsize = address_of(outputs[0]), self.op.dtype.itemsize
        descriptors, items = [], 0
        for region in self.op.regions:
            source = address_of(fill if region.source_index == FILL else inputs[region.source_index])
            descriptor, count = _describe(region, source, target, itemsize)
            descriptor[0] = items
            descriptors.append(np.array(descriptor, np.int64))
            items += count
        block = np.array([items, len(descriptors), *map(address_of, descriptors)], np.int64)
        element = min(itemsize, 8)
        function = kernel("raster", element=element, lanes=min(self.backend.target.vector_bytes // element, 8 if element < 8 else 4))
        chunks = min(items, self.backend.chunks(outputs[0].spec.nbytes / 16))
        self.backend.commands.record(function, block, chunks, keep=(descriptors, fill))


def _describe(region: Region, source: int, target: int, itemsize: int) -> tuple[list[int], int]:
    """A region's descriptor, its first item left 0, and its number of items."""
    dims = [
        (n, s * itemsize, t * itemsize) for n, s, t in zip(region.size, region.source_strides, region.target_strides, strict=True) if n > 1
    ]
    element = min(itemsize, 8)
    if itemsize == 16:  # as pairs of 8 bytes
        if dims and dims[-1][1:] == (16, 16):
            dims[-1] = (2 * dims[-1][0], 8, 8)
        else:
            dims.append((2, 8, 8))
    inner = dims.pop() if dims else (1, element, element)
    middle = (1, 0, 0)
    if inner[1:] == (element, element):
        kind = _RUN
    elif inner[2] == element and inner[1] == 0:
        kind = _FILL
    else:
        across = next((d for d in dims if d[1] == element), None) if inner[2] == element else None
        kind = _STRIDED if across is None else _TRANSPOSED
        if across is not None:
            dims.remove(across)
            middle = across
    if kind == _TRANSPOSED:
        blocks = (min(_TILE, middle[0]), min(_TILE, inner[0])) if min(middle[0], inner[0]) >= 8 else (_TILE * _TILE, _TILE * _TILE)
    else:
        middle = dims.pop() if dims else middle
        across = min(inner[0], _BLOCK_BYTES // element)
        blocks = (max(1, _BLOCK_BYTES // element // across), across)
    outer = dims[::-1]
    items = -(-middle[0] // blocks[0]) * -(-inner[0] // blocks[1])
    for count, _, _ in outer:
        items *= count
    start = [source + region.source_offset * itemsize, target + region.target_offset * itemsize]
    flat = [value for dim in outer for value in dim]
    return [0, kind, *start, blocks[0], *middle, blocks[1], *inner, len(outer), *flat], items
