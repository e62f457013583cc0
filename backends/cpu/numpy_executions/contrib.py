"""NumPy executions of the ops that ONNX Runtime adds to ONNX."""

from __future__ import annotations

import numpy as np

from mnnx.backends.cpu.numpy_executions import registry
from mnnx.backends.cpu.numpy_executions.precision import widened
from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.schema.ops.attention import RotaryEmbedding
from mnnx.schema.ops.base import require
from mnnx.schema.ops.contrib import AttentionMask, GroupQueryAttention, Inverse


@numpy_execution(Inverse)
def inverse(op: Inverse, x: np.ndarray) -> np.ndarray:
    wide = widened(x)
    singular = np.linalg.det(wide) == 0
    with np.errstate(all="ignore"):
        regular = np.where(singular[..., None, None], np.eye(x.shape[-1], dtype=wide.dtype), wide)
        return np.where(singular[..., None, None], np.nan, np.linalg.inv(regular)).astype(x.dtype)


@numpy_execution(AttentionMask)
def attention_mask(op: AttentionMask, mask: np.ndarray, sizes: np.ndarray, total: np.ndarray) -> np.ndarray:
    (batch, queries), keys = sizes.reshape(-1).tolist(), int(total.reshape(()))
    if mask.ndim == 1:
        ends, starts = mask[:batch], mask[batch:] if mask.size > batch else np.zeros(batch)
        places = np.arange(keys)
        return ((places >= starts[:, None]) & (places < ends[:, None]))[:, None, None]
    if mask.ndim == 4:
        return mask[:, :, keys - queries : keys, :keys] > 0
    return (mask > 0).reshape(batch, 1, -1, keys)


@numpy_execution(GroupQueryAttention)
def group_query_attention(
    op: GroupQueryAttention,
    q,
    k,
    v,
    past_key,
    past_value,
    seqlens_k,
    total_length,
    cos=None,
    sin=None,
    position_ids=None,
    attention_bias=None,
    head_sink=None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    head = op.head_size(q.shape, k is None)
    batch, length = q.shape[:2]
    if k is None:
        widths = np.array([op.num_heads, op.kv_num_heads]) * head
        q, k, v = np.split(q, np.cumsum(widths), -1)
    q, k, v = (x.reshape(batch, length, -1, head).swapaxes(1, 2) for x in (q, k, v))
    past, total = 0 if past_key is None else past_key.shape[2], int(total_length.reshape(()))
    ends = seqlens_k.reshape(-1).astype(np.int64) + 1
    starts = ends - length if length != total else np.zeros_like(ends)
    room = max(past, total)
    legal = ((starts >= 0) & (starts + length <= room) & (starts <= past) & (ends <= total) & (ends > 0)).all()
    require(legal, f"seqlens_k {seqlens_k.reshape(-1)[:8]} doesn't fit {length} new keys, a cache of {past} and a total length of {total}")
    places = starts[:, None] + np.arange(length)  # of the new tokens in their sequences
    if op.do_rotary:
        rotate = RotaryEmbedding(interleaved=op.rotary_interleaved, rotary_embedding_dim=2 * cos.shape[1])
        at = (places if position_ids is None else position_ids).astype(np.int64)
        q, k = (registry.run(rotate, [np.ascontiguousarray(x), cos, sin, at])[0] for x in (q, k))
    present = []
    for new, old in ((k, past_key), (v, past_value)):
        cache = np.zeros((batch, op.kv_num_heads, room, head), q.dtype)
        if old is not None:
            cache[:, :, :past] = old
        cache[np.arange(batch)[:, None, None], np.arange(op.kv_num_heads)[:, None], places[:, None]] = new
        present.append(cache)
    y = _cached_attention(op, q, *(cache[:, :, :total] for cache in present), places, ends, attention_bias, head_sink)
    return y.swapaxes(1, 2).reshape(batch, length, -1).astype(q.dtype), *present


def _cached_attention(op: GroupQueryAttention, q, k, v, places, ends, bias, sink) -> np.ndarray:
    """y [N, H, L, D] of q [N, H, L, D] at `places` [N, L] over keys and values [N, Hkv, T, D], of which `ends` [N] are there."""
    batch, heads, length, head = q.shape
    grouped = widened(q).reshape(batch, op.kv_num_heads, -1, length, head)
    scale = np.float32(1 / np.sqrt(head) if op.scale is None else op.scale)
    scores = (grouped * scale) @ widened(k)[:, :, None].swapaxes(-1, -2)
    scores = scores.reshape(batch, heads, length, -1)
    if op.softcap > 0:
        scores = np.float32(op.softcap) * np.tanh(scores / np.float32(op.softcap))
    if bias is not None:
        scores = scores + widened(bias)
    key = np.arange(k.shape[2])
    seen = np.broadcast_to(key < ends[:, None, None], (batch, length, len(key)))
    if op.causal:
        seen = seen & (key <= places[..., None])
    if op.local_window_size > 0:
        seen = seen & (key > places[..., None] - op.local_window_size)
    scores = np.where(seen[:, None], scores, -np.inf)
    if op.smooth_softmax or sink is not None:
        sink = np.zeros(heads, scores.dtype) if sink is None else widened(sink)
        scores = np.concatenate([scores, np.broadcast_to(sink[:, None, None], (*scores.shape[:3], 1))], -1)
    largest = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isinf(largest), 0, largest))
    weights /= np.maximum(weights.sum(-1, keepdims=True), np.finfo(weights.dtype).tiny)
    weights = weights[..., : len(key)].reshape(batch, op.kv_num_heads, -1, length, len(key))
    return (weights @ widened(v)[:, :, None]).reshape(q.shape)
