"""Activation functions along an axis in NumPy; those of single elements are rows of backends/elementwise.py."""

import numpy as np

from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.schema.ops import activation as ops
from mnnx.schema.ops.axes import normalize_axis


def log_softmax(x: np.ndarray, axis: int) -> np.ndarray:
    """x minus the logarithm of the sum of its exponentials along `axis`, in float32 at least; any shape."""
    shifted, total = _exponentials(x, axis)
    return shifted - np.log(total)


def _exponentials(x: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """x less its largest element along `axis`, and the sum of the exponentials of that."""
    wide = x if x.dtype == np.float64 else x.astype(np.float32)
    shifted = wide - np.max(wide, axis=axis, keepdims=True, initial=-np.inf)
    return shifted, np.sum(np.exp(shifted), axis=axis, keepdims=True)


@numpy_execution(ops.Softmax)
def softmax(op: ops.Softmax, x: np.ndarray) -> np.ndarray:
    if x.ndim == 0:
        return np.ones((), x.dtype)
    with np.errstate(all="ignore"):
        shifted, total = _exponentials(x, op.axis)
        return (np.exp(shifted) / total).astype(x.dtype, copy=False)


@numpy_execution(ops.LogSoftmax)
def run_log_softmax(op: ops.LogSoftmax, x: np.ndarray) -> np.ndarray:
    if x.ndim == 0:
        return np.zeros((), x.dtype)
    with np.errstate(all="ignore"):
        return log_softmax(x, op.axis).astype(x.dtype, copy=False)


@numpy_execution(ops.Hardmax)
def hardmax(op: ops.Hardmax, x: np.ndarray) -> np.ndarray:
    if x.ndim == 0:
        return np.ones((), x.dtype)
    axis = normalize_axis(op.axis, x.ndim)
    result = np.zeros(x.shape, x.dtype)
    if x.size:
        first = np.argmax(x.astype(np.float32) if x.dtype.itemsize < 4 else x, axis=axis, keepdims=True)
        np.put_along_axis(result, first, x.dtype.type(1), axis)
    return result
