"""Resize on GPUs, in all modes: each dim by a table of positions and weights."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mnnx.backends.backend import Execution, Layouts, Specs, Tensors
from mnnx.backends.blocked import blocked_shape
from mnnx.backends.gpu.constants import RESIZE_DIMS
from mnnx.backends.gpu.creators import creator
from mnnx.backends.gpu.execution import GpuExecution
from mnnx.backends.gpu.executions.indexing import strides_of, unmovable
from mnnx.backends.gpu.floats import FLOATS
from mnnx.backends.gpu.kernel import kernel
from mnnx.backends.gpu.steps import nested
from mnnx.schema.ops.base import DataDependent, Op
from mnnx.schema.ops.resize import Resize, Taps


def supports(op: Resize, inputs: Specs, outputs: Specs) -> str | None:
    try:
        taps = _taps(op, inputs)
    except DataDependent:
        return "its sizes are computed"
    moves = op.mode == "nearest" and all(t is None or t.outside is None for t in taps)
    if reason := unmovable(inputs[0]) if moves else None if inputs[0].dtype in FLOATS else f"no kernels for {inputs[0].dtype}":
        return reason
    dims = _dims(inputs[0].shape, taps)
    return f"it resizes dims in more than {RESIZE_DIMS} groups" if len(dims) > RESIZE_DIMS else None


@creator(Resize, supports=supports)
def create(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return ResizeExecution(op, backend, inputs)


def _taps(op: Resize, inputs: Specs) -> list[Taps | None]:
    return [op.taps(scaling) for scaling in op.scalings(*(*inputs, None, None, None)[:4])]


def _dims(shape: Sequence[int], taps: Sequence[Taps | None]) -> list[tuple[int, int, Taps | None]]:
    """(size in the result, step in x, Taps) of each dim, neighbours that stay as they are as one."""
    dims: list[tuple[int, int, Taps | None]] = []
    for size, step, found in zip(shape, strides_of(shape), taps, strict=True):
        if found is None and dims and dims[-1][2] is None:
            dims[-1] = (dims[-1][0] * size, step, None)
        elif found is not None or size != 1:
            dims.append((size if found is None else len(found.index), step, found))
    return dims


class ResizeExecution(GpuExecution):
    """A work item per element of the result, or per block."""

    def __init__(self, op: Op, backend, inputs: Specs):
        super().__init__(op, backend)
        self.taps = _taps(op, inputs)
        self.moves = op.mode == "nearest" and all(t is None or t.outside is None for t in self.taps)

    def loop_steps(self, inputs: Specs, outputs: Specs) -> int:
        counts = [1 if taps is None else taps.index.shape[1] for _, _, taps in _dims(inputs[0].shape, self.taps)]
        return 0 if self.moves else nested(*counts)

    def layouts(self, inputs: Specs, outputs: Specs, lanes: int) -> Sequence[Layouts]:
        return Layouts.of_images(inputs, outputs, lanes) if all(taps is None for taps in self.taps[:2]) else ()

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        x, y = inputs[0], outputs[0]
        if y.spec.size == 0:
            return
        shape, width = x.shape, x.layout or 1
        if x.layout:
            shape = blocked_shape(shape, width)[:-1]
        dims = _dims(shape, self.taps)
        dims = [(1, 0, None)] * (RESIZE_DIMS - len(dims)) + dims
        columns, positions, weights = [], [np.zeros(0)], [np.zeros(0)]
        start = 0
        for size, step, found in dims:
            columns.append((size, step, 0 if found is None else found.index.shape[1], start))
            if found is not None:
                index = found.index if found.outside is None else np.where(found.outside[:, None], -1, found.index)
                positions.append(index.reshape(-1))
                weights.append(np.ones(index.size) if found.weights is None else found.weights.reshape(-1))
                start += index.size
        total = math.prod(size for size, _, _ in dims)
        params = [total, *(n for column in zip(*columns, strict=True) for n in column)]
        buffers = [x, self.backend.table(np.concatenate(positions).astype(np.int32))]
        if self.moves:
            storage, width, _ = self.backend.raw_storage(x.dtype) if not x.layout else self._raw_block(width)
            self.backend.commands.record(kernel("resize.nearest", storage=storage, width=width), [*buffers, y], params, (total,))
            return
        found = kernel("resize.weighted", storage=self.backend.storage(x.dtype), width=width)
        buffers.append(self.backend.table(np.concatenate(weights).astype(np.float32)))
        self.backend.commands.record(found, [*buffers, y], [*params, self.op.extrapolation_value], (total,))

    def _raw_block(self, lanes: int) -> tuple[str, int, int]:
        return ("ushort" if self.backend.half else "uint"), lanes, 1
