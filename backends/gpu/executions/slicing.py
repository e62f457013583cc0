"""Trilu and ReverseSequence on GPUs; the other ops that cut tensors are Rasters."""

from __future__ import annotations

import numpy as np

from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.gpu.creators import creator
from mnnx.backends.gpu.execution import GpuExecution
from mnnx.backends.gpu.executions.indexing import strides_of, unmovable, words_of
from mnnx.backends.gpu.kernel import kernel
from mnnx.schema.ops.base import Op
from mnnx.schema.ops.slicing import ReverseSequence, Trilu


@creator(Trilu, ReverseSequence, supports=lambda op, inputs, outputs: unmovable(inputs[0]))
def create(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return (TriluExecution if isinstance(op, Trilu) else ReverseSequenceExecution)(op, backend)


class TriluExecution(GpuExecution):
    """A work item per element."""

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        (x, diagonal), total = (*inputs, None)[:2], inputs[0].spec.size
        if not total:
            return
        storage, width, _ = self.backend.raw_storage(x.dtype)
        zero, words = self.backend.table(np.zeros(16, np.uint8)), 1 if diagonal is None else words_of(diagonal.spec)
        if diagonal is None:
            diagonal = self.backend.table(np.zeros(1, np.int32))
        found = kernel("slicing.triangle", storage=storage, width=width)
        params = [total, *x.shape[-2:], int(self.op.upper), words]
        self.backend.commands.record(found, [x, diagonal, zero, outputs[0]], params, (total,))


class ReverseSequenceExecution(GpuExecution):
    """A work item per element."""

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        x, lengths = inputs
        total, strides = x.spec.size, strides_of(x.shape)
        if not total:
            return
        batch, time = self.op.batch_axis % x.spec.rank, self.op.time_axis % x.spec.rank
        storage, width, _ = self.backend.raw_storage(x.dtype)
        faults, slot = self.backend.commands.fault(f"a sequence's length {{}} is outside [0, {x.shape[time]}]")
        found = kernel("slicing.reverse", storage=storage, width=width)
        params = [total, x.shape[batch], strides[batch], x.shape[time], strides[time], words_of(lengths.spec), slot]
        self.backend.commands.record(found, [x, lengths, outputs[0], faults], params, (total,))
