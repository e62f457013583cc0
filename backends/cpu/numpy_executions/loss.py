"""Loss functions in NumPy."""

import numpy as np

from mnnx.backends.cpu.numpy_executions.activation import log_softmax
from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.schema.ops import loss as ops
from mnnx.schema.ops.base import require


@numpy_execution(ops.NegativeLogLikelihoodLoss)
def negative_log_likelihood(op: ops.ClassLoss, scores: np.ndarray, labels: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    wide = scores if scores.dtype == np.float64 else scores.astype(np.float32)
    counted = np.ones(labels.shape, bool) if op.ignore_index is None else labels != op.ignore_index
    classes = np.where(counted, labels, 0)
    require(
        not classes.size or (classes.min() >= 0 and classes.max() < scores.shape[1]),
        f"labels must be in [0, {scores.shape[1]}), or ignore_index; found {labels.min()} … {labels.max()}" if labels.size else "",
    )
    chosen = np.take_along_axis(wide, np.expand_dims(classes, 1), 1).squeeze(1) if classes.size else np.zeros(labels.shape, wide.dtype)
    weight = np.where(counted, 1 if weights is None else weights.astype(wide.dtype)[classes], 0).astype(wide.dtype)
    losses = np.where(counted, -chosen * weight, 0)
    if op.reduction == "none":
        return losses.astype(scores.dtype, copy=False)
    total = np.sum(losses)
    with np.errstate(all="ignore"):
        return np.asarray(total if op.reduction == "sum" else total / np.sum(weight)).astype(scores.dtype)


@numpy_execution(ops.SoftmaxCrossEntropyLoss)
def softmax_cross_entropy(op: ops.ClassLoss, scores: np.ndarray, labels: np.ndarray, weights: np.ndarray | None = None):
    with np.errstate(all="ignore"):
        logs = log_softmax(scores, 1)
    widened = None if weights is None else weights.astype(logs.dtype)
    loss = negative_log_likelihood(op, logs, labels, widened)
    return loss.astype(scores.dtype, copy=False), logs.astype(scores.dtype, copy=False)
