"""Normalizations."""

import math

import numpy as np

from mnnx.backends.cpu.numpy_executions.precision import widened
from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.schema.ops.normalization import (
    LRN,
    BatchNormalization,
    GroupNormalization,
    InstanceNormalization,
    LayerNormalization,
    LpNormalization,
    MeanVarianceNormalization,
    RMSNormalization,
)


def _per_channel(parameter: np.ndarray, x: np.ndarray) -> np.ndarray:
    """A [C] parameter, shaped to broadcast along dim 1 of x."""
    return widened(parameter).astype(x.dtype, copy=False).reshape(-1, *(1,) * (x.ndim - 2))


def standardized(x: np.ndarray, axes: tuple[int, ...], epsilon: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(x - mean) / sqrt(variance + epsilon), the mean and the reciprocal of the root, over `axes`, which are kept."""
    if not x.size:
        empty = np.zeros([1 if axis in axes else n for axis, n in enumerate(x.shape)], x.dtype)
        return x, empty, empty
    mean = x.mean(axis=axes, keepdims=True)
    centred = x - mean
    inverse = 1 / np.sqrt(np.square(centred).mean(axis=axes, keepdims=True) + x.dtype.type(epsilon))
    return centred * inverse, mean, inverse


@numpy_execution(BatchNormalization)
def batch_normalization(
    op: BatchNormalization, x: np.ndarray, scale: np.ndarray, bias: np.ndarray, mean: np.ndarray, variance: np.ndarray
) -> np.ndarray | tuple[np.ndarray, ...]:
    wide = widened(x)
    running: tuple[np.ndarray, ...] = ()
    if op.training_mode:
        axes = (0, *range(2, x.ndim))
        own = (wide.mean(axis=axes).reshape(mean.shape), wide.var(axis=axes).reshape(mean.shape))
        running = tuple(
            (widened(given) * op.momentum + current * (1 - op.momentum)).astype(given.dtype)
            for given, current in zip((mean, variance), own, strict=True)
        )
        mean, variance = own
    factor = _per_channel(scale, wide) / np.sqrt(_per_channel(variance, wide) + wide.dtype.type(op.epsilon))
    y = (wide - _per_channel(mean, wide)) * factor + _per_channel(bias, wide)
    y = y.astype(x.dtype, copy=False)
    return (y, *running) if op.training_mode else y


@numpy_execution(InstanceNormalization)
def instance_normalization(op: InstanceNormalization, x: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
    y = standardized(widened(x), tuple(range(2, x.ndim)), op.epsilon)[0]
    return (y * _per_channel(scale, y) + _per_channel(bias, y)).astype(x.dtype, copy=False)


@numpy_execution(GroupNormalization)
def group_normalization(op: GroupNormalization, x: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
    groups = widened(x).reshape(x.shape[0], op.num_groups, x.shape[1] // op.num_groups, *x.shape[2:])
    y = standardized(groups, tuple(range(2, groups.ndim)), op.epsilon)[0].reshape(x.shape)
    return (y * _per_channel(scale, y) + _per_channel(bias, y)).astype(x.dtype, copy=False)


@numpy_execution(LayerNormalization)
def layer_normalization(op: LayerNormalization, x: np.ndarray, scale: np.ndarray, bias: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
    y, mean, inverse = standardized(widened(x), tuple(range(op.axis % x.ndim, x.ndim)), op.epsilon)
    y = y * widened(scale)
    if bias is not None:
        y = y + widened(bias)
    return y.astype(x.dtype, copy=False), mean.astype(op.stash_type), inverse.astype(op.stash_type)


@numpy_execution(RMSNormalization)
def rms_normalization(op: RMSNormalization, x: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    wide = widened(x)
    axes = tuple(range(op.axis % x.ndim, x.ndim))
    mean = np.square(wide).sum(axis=axes, keepdims=True) / max(1, math.prod(x.shape[axes[0] :]))
    inverse = 1 / np.sqrt(mean + op.epsilon)
    return (wide * inverse * widened(scale)).astype(scale.dtype, copy=False), inverse.astype(op.stash_type)


@numpy_execution(LpNormalization)
def lp_normalization(op: LpNormalization, x: np.ndarray) -> np.ndarray:
    wide = widened(x)
    if op.p == 1:
        norm = np.abs(wide).sum(axis=op.axis, keepdims=True)
    else:
        norm = np.sqrt(np.square(wide).sum(axis=op.axis, keepdims=True))
    return (wide / np.where(norm == 0, 1, norm)).astype(x.dtype, copy=False)


@numpy_execution(LRN)
def lrn(op: LRN, x: np.ndarray) -> np.ndarray:
    wide = widened(x)
    channels, squares = x.shape[1], np.square(wide)
    sums = np.zeros_like(squares)
    for shift in range(-min((op.size - 1) // 2, channels - 1), min(op.size // 2, channels - 1) + 1):
        sums[:, max(0, -shift) : channels - max(0, shift)] += squares[:, max(0, shift) : channels - max(0, -shift)]
    return (wide / (op.bias + op.alpha / op.size * sums) ** op.beta).astype(x.dtype, copy=False)


@numpy_execution(MeanVarianceNormalization)
def mean_variance_normalization(op: MeanVarianceNormalization, x: np.ndarray) -> np.ndarray:
    wide = widened(x)
    mean, deviation = wide.mean(axis=op.axes, keepdims=True), wide.std(axis=op.axes, keepdims=True)
    return ((wide - mean) / (deviation + wide.dtype.type(1e-9))).astype(x.dtype, copy=False)
