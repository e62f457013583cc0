"""Loss functions on GPUs."""

from __future__ import annotations

import math

import numpy as np

from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.gpu.constants import TEAM
from mnnx.backends.gpu.creators import creator
from mnnx.backends.gpu.execution import GpuExecution
from mnnx.backends.gpu.executions.activation import record_softmax, steps_of_softmax
from mnnx.backends.gpu.executions.indexing import words_of
from mnnx.backends.gpu.executions.rows import Rows, around, items, steps_of_sum
from mnnx.backends.gpu.floats import floats_only
from mnnx.backends.gpu.kernel import kernel
from mnnx.backends.gpu.working_memory import bytes_of, cut
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.base import Op, Spec
from mnnx.schema.ops.loss import NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss


def supports(op: Op, inputs: Specs, outputs: Specs) -> str | None:
    if outputs[0] is None:
        return "only the logarithms are wanted"
    return floats_only(op, inputs, outputs)


@creator(NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss, supports=supports)
def create(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return LossExecution(op, backend)


class LossExecution(GpuExecution):
    """A work item per label, and a group for their sum."""

    def _pieces(self, inputs: Specs | Tensors, outputs: Specs | Tensors) -> list[int]:
        """Bytes of working memory: the losses and their weights in float32, and logarithms that nobody wants."""
        scores, labels = inputs[:2]
        each = 4 * max(1, math.prod(labels.shape))
        makes_logs = isinstance(self.op, SoftmaxCrossEntropyLoss) and (*outputs, None)[1] is None
        logs = max(1, math.prod(scores.shape)) * self.backend.stored(scores.dtype.itemsize, scores.dtype)
        return [each, each, logs if makes_logs else 0]

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        return bytes_of(self.backend, self._pieces(inputs, outputs))

    def loop_steps(self, inputs: Specs, outputs: Specs) -> int:
        scores, labels = inputs[:2]
        makes_logs = isinstance(self.op, SoftmaxCrossEntropyLoss)
        return max(
            steps_of_softmax(self.backend, self._rows(scores)) if makes_logs else 0,
            steps_of_sum(-(-labels.size // self._team)) if self.op.reduction != "none" else 0,
        )

    def _rows(self, scores: Spec | DeviceTensor) -> Rows:
        return Rows.of(self.backend.block_width, *around(scores.shape, 1))

    @property
    def _team(self) -> int:
        """Work items that make the sum."""
        return 1 if self.backend.device.profile.is_cpu else TEAM

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        (scores, labels, weights), y, op, backend = (*inputs, None)[:3], outputs[0], self.op, self.backend
        losses, factors, logs = cut(scratch, self._pieces(inputs, outputs))
        storage, total = backend.storage(scores.dtype), labels.spec.size
        classes, pixels = scores.shape[1], math.prod(scores.shape[2:])
        if isinstance(op, SoftmaxCrossEntropyLoss):
            logs = outputs[1] if len(outputs) > 1 and outputs[1] is not None else logs
            if scores.spec.size:
                record_softmax(backend, storage, self._rows(scores), scores, logs, logarithm=True)
            scores = logs
        alone = op.reduction == "none"
        if total:
            ignored = np.array([0 if op.ignore_index is None else op.ignore_index], np.int64).view(np.int32).tolist()
            faults, slot = backend.commands.fault(f"labels must be in [0, {classes}), or ignore_index; found {{}}")
            params = [total, classes, pixels, words_of(labels.spec), int(op.ignore_index is not None), *ignored]
            params += [int(weights is not None), slot]
            found = kernel("loss.each", storage=storage, result=storage if alone else "float")
            buffers = [scores, labels, scores if weights is None else weights, y if alone else losses, factors, faults]
            backend.commands.record(found, buffers, params, (total,))
        if not alone:
            found = kernel("loss.total", storage=storage, team=self._team)
            backend.commands.record(found, [losses, factors, y], [total, int(op.reduction == "mean")], *items(1, self._team, backend))
