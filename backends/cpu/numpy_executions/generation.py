"""Constants, ranges, random numbers and windows in NumPy."""

import math

import numpy as np

from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.schema import dtypes
from mnnx.schema.ops import generation as ops
from mnnx.schema.ops.base import require
from mnnx.schema.ops.elementwise import FLOATS, INTEGERS


def generator(seed: float | None) -> np.random.Generator:
    """A random generator: the same for the same seed, another one each time without a seed."""
    return np.random.default_rng(None if seed is None or not math.isfinite(seed) else abs(int(seed)))


@numpy_execution(ops.ConstantOfShape)
def constant_of_shape(op: ops.ConstantOfShape, shape: np.ndarray) -> np.ndarray:
    dims = tuple(int(dim) for dim in shape.reshape(-1))
    return np.zeros(dims, np.float32) if op.value is None else np.full(dims, op.value.reshape(-1)[0], op.value.dtype)


@numpy_execution(ops.Range)
def run_range(op: ops.Range, start: np.ndarray, limit: np.ndarray, delta: np.ndarray) -> np.ndarray:
    first, last, step = (array.reshape(-1)[0] for array in (start, limit, delta))
    steps = np.arange(op.count(first, last, step))
    if start.dtype in INTEGERS:
        with np.errstate(over="ignore"):
            return steps.astype(start.dtype) * step + first
    wide = op.stash_type if start.dtype.itemsize < 4 and op.stash_type in FLOATS else np.dtype("float64")
    return (steps.astype(wide) * wide.type(step) + wide.type(first)).astype(start.dtype)


@numpy_execution(ops.EyeLike)
def eye_like(op: ops.EyeLike, x: np.ndarray) -> np.ndarray:
    rows, columns = x.shape
    offset = min(max(op.k, -rows), columns)
    return np.eye(rows, columns, offset).astype(x.dtype if op.dtype is None else op.dtype)


@numpy_execution(ops.RandomNormal)
def random_normal(op: ops.RandomNormal) -> np.ndarray:
    return np.asarray(generator(op.seed).normal(op.mean, abs(op.scale), op.shape)).astype(op.dtype)


@numpy_execution(ops.RandomNormalLike)
def random_normal_like(op: ops.RandomNormalLike, x: np.ndarray) -> np.ndarray:
    return np.asarray(generator(op.seed).normal(op.mean, abs(op.scale), x.shape)).astype(x.dtype if op.dtype is None else op.dtype)


@numpy_execution(ops.RandomUniform)
def random_uniform(op: ops.RandomUniform) -> np.ndarray:
    return _uniform(op, op.shape).astype(op.dtype)


@numpy_execution(ops.RandomUniformLike)
def random_uniform_like(op: ops.RandomUniformLike, x: np.ndarray) -> np.ndarray:
    return _uniform(op, x.shape).astype(x.dtype if op.dtype is None else op.dtype)


def _uniform(op: ops.RandomUniform | ops.RandomUniformLike, shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray(op.low + (op.high - op.low) * generator(op.seed).random(shape))


@numpy_execution(ops.Bernoulli)
def bernoulli(op: ops.Bernoulli, probability: np.ndarray) -> np.ndarray:
    dtype = probability.dtype if op.dtype is None else op.dtype
    return np.asarray(generator(op.seed).random(probability.shape) < probability.astype(np.float64)).astype(dtype)


@numpy_execution(ops.Multinomial)
def multinomial(op: ops.Multinomial, x: np.ndarray) -> np.ndarray:
    logits = x.astype(np.float64)
    with np.errstate(all="ignore"):
        totals = np.cumsum(np.exp(logits - logits.max(axis=1, keepdims=True)), axis=1)
    draws = generator(op.seed).random((len(totals), op.sample_size)) * totals[:, -1:]
    result = np.empty(draws.shape, op.dtype)
    for row, (total, draw) in enumerate(zip(totals, draws, strict=True)):
        result[row] = np.minimum(np.searchsorted(total, draw, side="right"), len(total) - 1)
    return result


@numpy_execution(ops.Dropout)
def dropout(op: ops.Dropout, x: np.ndarray, ratio: np.ndarray | None = None, training: np.ndarray | None = None):
    drop = 0.5 if ratio is None else float(ratio.reshape(-1)[0])
    if training is None or not training.any() or drop == 0:
        return x, np.ones(x.shape, bool)
    require(0 <= drop < 1, f"ratio must be in [0, 1); found {drop}")
    mask = np.asarray(generator(op.seed).random(x.shape) >= drop)
    wide = x.astype(np.float32) if x.dtype.itemsize < 4 else x
    return np.asarray(mask * wide * wide.dtype.type(1 / (1 - drop))).astype(x.dtype, copy=False), mask


@numpy_execution(ops.HannWindow, ops.HammingWindow, ops.BlackmanWindow)
def window(op: ops.Window, size: np.ndarray) -> np.ndarray:
    count = int(size.reshape(-1)[0])
    angle = np.arange(count) * (2 * np.pi / max(count if op.periodic else count - 1, 1))
    constant, first, second = {
        ops.HannWindow: (0.5, 0.5, 0),
        ops.HammingWindow: (25 / 46, 21 / 46, 0),
        ops.BlackmanWindow: (0.42, 0.5, 0.08),
    }[type(op)]
    values = constant - first * np.cos(angle) + second * np.cos(2 * angle)
    if not dtypes.is_float(op.output_datatype):
        values = values.astype(np.float32)  # so that a 1 with an error in its last place is an integer 1
    return values.astype(op.output_datatype)


@numpy_execution(ops.MelWeightMatrix)
def mel_weight_matrix(op: ops.MelWeightMatrix, *inputs: np.ndarray) -> np.ndarray:
    bins, length, rate = (int(array.reshape(-1)[0]) for array in inputs[:3])
    low, high = (2595 * np.log10(1 + float(array.reshape(-1)[0]) / 700) for array in inputs[3:])
    edges = 700 * (10 ** ((np.arange(bins + 2) * ((high - low) / (bins + 2)) + low) / 2595) - 1)
    edges = np.floor((length + 1) * edges / rate)
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    row = np.arange(length // 2 + 1)[:, None]
    with np.errstate(all="ignore"):
        rising = np.where((row >= left) & (row <= centre), np.where(centre > left, (row - left) / (centre - left), 1.0), 0.0)
        result = np.where((row >= centre) & (row < right), (right - row) / (right - centre), rising)
    return result.astype(op.output_datatype)
