"""Means of quantized pixels."""

import math

import numpy as np

from mnnx.backends.cpu.numpy_executions.pooling import window_sums
from mnnx.backends.cpu.numpy_executions.quantization import saturated
from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.schema.ops.pooling import window_counts
from mnnx.schema.ops.quantized_pooling import QuantizedAveragePool, QuantizedGlobalAveragePool, QuantizedMean


@numpy_execution(QuantizedAveragePool)
def average_pool(op: QuantizedAveragePool, x: np.ndarray) -> np.ndarray:
    geometry = op.geometry(x.shape)
    return _quantized(op, window_sums(_centred(op, x), geometry), window_counts(geometry, op.count_include_pad))


@numpy_execution(QuantizedGlobalAveragePool)
def global_average_pool(op: QuantizedGlobalAveragePool, x: np.ndarray) -> np.ndarray:
    return _quantized(op, _centred(op, x).sum(tuple(range(2, x.ndim)), keepdims=True), math.prod(x.shape[2:]))


def _centred(op: QuantizedMean, x: np.ndarray) -> np.ndarray:
    return x.astype(np.int64) - op.x_zero


def _quantized(op: QuantizedMean, sums: np.ndarray, counts: np.ndarray | int) -> np.ndarray:
    return saturated(sums.astype(np.float32) * op.factors(counts), np.array(op.y_zero), op.made)
