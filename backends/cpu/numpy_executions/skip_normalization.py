"""Normalizations of sums."""

from __future__ import annotations

import numpy as np

from mnnx.backends.cpu.numpy_executions.normalization import standardized
from mnnx.backends.cpu.numpy_executions.precision import widened
from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.schema.ops.base import require
from mnnx.schema.ops.skip_normalization import EmbedLayerNormalization, SkipLayerNormalization, SkipSimplifiedLayerNormalization


def _sum(x: np.ndarray, skip: np.ndarray, shift: np.ndarray | None) -> np.ndarray:
    total = widened(x) + widened(skip)
    return total if shift is None else total + widened(shift)


@numpy_execution(SkipLayerNormalization)
def skip_layer_normalization(
    op: SkipLayerNormalization,
    x: np.ndarray,
    skip: np.ndarray,
    scale: np.ndarray,
    bias: np.ndarray | None = None,
    shift: np.ndarray | None = None,
) -> tuple[np.ndarray, ...]:
    total = _sum(x, skip, shift)
    y, mean, inverse = standardized(total, (x.ndim - 1,), op.epsilon)
    y = y * widened(scale)
    if bias is not None:
        y = y + widened(bias)
    return y.astype(x.dtype), mean.astype(np.float32), inverse.astype(np.float32), total.astype(x.dtype)


@numpy_execution(SkipSimplifiedLayerNormalization)
def skip_simplified_layer_normalization(
    op: SkipSimplifiedLayerNormalization, x: np.ndarray, skip: np.ndarray, scale: np.ndarray, shift: np.ndarray | None = None
) -> tuple[np.ndarray | None, ...]:
    total = _sum(x, skip, shift)
    mean = np.square(total).sum(axis=-1, keepdims=True) / max(1, x.shape[-1])
    inverse = 1 / np.sqrt(mean + total.dtype.type(op.epsilon))
    return (total * inverse * widened(scale)).astype(x.dtype), None, inverse.astype(np.float32), total.astype(x.dtype)


@numpy_execution(EmbedLayerNormalization)
def embed_layer_normalization(
    op: EmbedLayerNormalization,
    ids: np.ndarray,
    segment_ids: np.ndarray | None,
    words: np.ndarray,
    positions: np.ndarray,
    segments: np.ndarray | None,
    scale: np.ndarray,
    bias: np.ndarray,
    position_ids: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    places = np.arange(ids.shape[1])[None] if position_ids is None else position_ids
    total = _rows_of("words", words, ids) + _rows_of("positions", positions, places)
    if segments is not None and segment_ids is not None:
        total = total + _rows_of("segments", segments, segment_ids)
    y = standardized(total, (2,), op.epsilon)[0] * widened(scale) + widened(bias)
    return y.astype(words.dtype), total.astype(words.dtype)


def _rows_of(name: str, table: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """The rows of a table at these ids, which count from its end where they are negative."""
    rows = len(table)
    outside = ids[(ids < -rows) | (ids >= rows)]
    require(not outside.size, f"an id of {name} is {outside.reshape(-1)[:1].tolist()}, outside [-{rows}, {rows})")
    return widened(table)[ids]
