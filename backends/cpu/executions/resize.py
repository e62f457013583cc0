"""Resize of the last two dims on the CPU, in float32 and all modes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mnnx.backends.backend import Execution, Layouts, Specs, Tensors
from mnnx.backends.blocked import blocked_shape
from mnnx.backends.cpu.arguments import address_of, arguments
from mnnx.backends.cpu.creators import creator
from mnnx.backends.cpu.kernel import kernel
from mnnx.schema.ops.base import DataDependent, Op
from mnnx.schema.ops.resize import Resize, Taps

_UNROLLED = (1, 2, 4)  # numbers of taps that have kernels of their own


def supports(op: Resize, inputs: Specs, outputs: Specs) -> str | None:
    if inputs[0].dtype != np.float32 or inputs[0].rank == 0:
        return f"no kernel for {inputs[0]}"
    try:
        scalings = op.scalings(*(*inputs, None, None, None)[:4])
    except DataDependent:
        return "no kernel for sizes that are computed"
    taps = [op.taps(scaling) for scaling in scalings]
    if any(t is not None for t in taps[:-2]):
        return "no kernel for dims before the last two"
    return "no kernel for extrapolation" if any(t is not None and t.outside is not None for t in taps) else None


@creator(Resize, supports=supports)
def create(op: Resize, backend, inputs: Specs, outputs: Specs) -> Execution:
    return ResizeExecution(op, backend, inputs, outputs)


class ResizeExecution(Execution):
    """Planes [height, width] → [rows, columns], by tables of the positions and weights that make up each row and column."""

    def __init__(self, op: Op, backend, inputs: Specs, outputs: Specs):
        super().__init__(op, backend)
        dims = list(zip(inputs[0].shape, op.scalings(*(*inputs, None, None, None)[:4]), strict=True))
        dims = dims if len(dims) > 1 else [(1, None), *dims]
        self.planes = math.prod(size for size, _ in dims[:-2])
        self.height, self.width = (size for size, _ in dims[-2:])
        taps = [None if scaling is None else op.taps(scaling) for _, scaling in dims[-2:]]
        self.resizes_rows = taps[0] is not None
        self.row_taps, self.column_taps = (_table(taps, n) for taps, (n, _) in zip(taps, dims[-2:], strict=True))
        self.rows, self.columns = self.row_taps[0].shape[1], self.column_taps[0].shape[1]
        self.chunks = max(1, min(self.planes * self.rows, backend.chunks(outputs[0].size)))

    def layouts(self, inputs: Specs, outputs: Specs, lanes: int) -> Sequence[Layouts]:
        return () if outputs[0].rank == 3 and self.resizes_rows else Layouts.of_images(inputs, outputs, lanes)

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        return 4 * self.width * self.chunks * (self.way.inputs[0] if self.way else 1)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        x, y = inputs[0], outputs[0]
        if y.spec.size == 0:
            return
        planes, height, rows, row_table = self.planes, self.height, self.rows, self.row_taps
        if x.layout:
            n, blocks, *rest = blocked_shape(x.shape, x.layout)
            planes = n * blocks * math.prod(rest[:-3])
            if x.spec.rank == 3:
                height, rows, row_table = 1, 1, _table(None, 1)
        tables = (*row_table, *self.column_taps)
        counts = (len(row_table[0]), len(self.column_taps[0]))
        block = arguments(x, y, planes, height, self.width, rows, self.columns, *map(address_of, tables), *counts, scratch)
        row_taps, column_taps = (count if count in _UNROLLED else 0 for count in counts)
        if x.layout:
            fma = self.backend.target.fma
            function = kernel("blocked_resize", lanes=x.layout, row_taps=row_taps, column_taps=column_taps, fma=fma)
        else:
            function = kernel("resize", row_taps=row_taps, column_taps=column_taps)
        self.backend.commands.record(function, block, min(planes * rows, self.chunks), keep=tables)


def _table(taps: Taps | None, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions int32 and weights float32, both [taps, output size]."""
    if taps is None:
        return np.arange(size, dtype=np.int32)[None], np.ones((1, size), np.float32)
    index = np.ascontiguousarray(taps.index.T, np.int32)
    weights = np.ones(index.shape) if taps.weights is None else taps.weights.T
    return index, np.ascontiguousarray(weights, np.float32)
