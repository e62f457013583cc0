"""Loss functions. ONNX SoftmaxCrossEntropyLoss-13, NegativeLogLikelihoodLoss-22."""

import numpy as np

from mnnx.schema.ops.base import Op, Spec, op, require
from mnnx.schema.ops.elementwise import FLOATS, require_dtype, require_inputs

_LABELS = frozenset({np.dtype("int32"), np.dtype("int64")})


class ClassLoss(Op):
    """Inputs (scores [N, C, …], labels [N, …] of int32 or int64, weights [C] or left out); a loss per label, reduced as `reduction` says.

    `reduction`: none, sum, or mean (weighted, over the labels that aren't `ignore_index`; those have no loss).
    """

    ignore_index: int | None = None
    reduction: str = "mean"

    def check(self):
        require(self.reduction in ("none", "sum", "mean"), f"reduction must be none, sum or mean; found {self.reduction!r}")

    def infer(self, *inputs):
        require_inputs(inputs, 2, 3)
        scores, labels, weights = (*inputs, None)[:3]
        require_dtype(scores, FLOATS, "scores")
        require_dtype(labels, _LABELS, "labels")
        require(
            scores.rank >= 2 and labels.shape == scores.shape[:1] + scores.shape[2:],
            f"labels must have the shape of scores without its axis 1; found {labels} beside {scores}",
        )
        if weights is not None:
            require(
                weights.dtype == scores.dtype and weights.shape == scores.shape[1:2],
                f"weights must be one per class, of the dtype of scores; found {weights} beside {scores}",
            )
        return Spec(scores.dtype, labels.shape if self.reduction == "none" else ())


@op("NegativeLogLikelihoodLoss")
class NegativeLogLikelihoodLoss(ClassLoss):
    """Scores are log-probabilities; minus the score of the label, times its weight."""


@op("SoftmaxCrossEntropyLoss")
class SoftmaxCrossEntropyLoss(ClassLoss):
    """NegativeLogLikelihoodLoss of LogSoftmax(scores) over axis 1; the second result is that LogSoftmax."""

    def infer(self, *inputs):
        loss = super().infer(*inputs)
        return loss, Spec(inputs[0].dtype, inputs[0].shape)
