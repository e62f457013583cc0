"""Attention, linear attention and rotary position embeddings."""

import math

import numpy as np

from mnnx.backends.cpu.numpy_executions.precision import widened
from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.schema.ops.attention import (
    Attention,
    AttentionSizes,
    FusedAttention,
    LinearAttention,
    PackedAttention,
    RotaryEmbedding,
    illegal_key_counts,
)
from mnnx.schema.ops.base import require


def _split_heads(x: np.ndarray, heads: int) -> np.ndarray:
    """[N, L, heads * D] → [N, heads, L, D]; what has rank 4 stays."""
    if x.ndim == 4:
        return x
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads).transpose(0, 2, 1, 3)


def _bias(op: Attention, s: AttentionSizes, dtype: np.dtype, mask: np.ndarray | None, valid: np.ndarray | None) -> np.ndarray:
    """What is added to the scores, -inf where a key may not be seen; broadcasts to them."""
    bias = np.zeros((1, 1, s.queries, s.total), dtype)
    if mask is not None:
        numbers = np.where(mask, 0, -np.inf) if mask.dtype == bool else widened(mask)
        bias = np.broadcast_to(bias, np.broadcast_shapes(bias.shape, (*mask.shape[:-1], s.total))).copy()
        bias[..., : mask.shape[-1]] += numbers.astype(dtype)
        bias[..., mask.shape[-1] :] = -np.inf
    keys = np.arange(s.total)
    offset = np.asarray(s.past) if valid is None else valid.reshape(-1, 1, 1, 1) - s.queries
    distance = keys - (np.arange(s.queries)[:, None] + offset)
    hidden = np.zeros(distance.shape, bool)
    if op.is_causal:
        hidden |= distance > 0
    if op.left_window_size >= 0:
        hidden |= distance < -op.left_window_size
    if op.right_window_size >= 0:
        hidden |= distance > op.right_window_size
    if valid is not None:
        hidden |= keys >= valid.reshape(-1, 1, 1, 1)
    return np.where(hidden, dtype.type(-np.inf), bias)


@numpy_execution(Attention)
def attention(
    op: Attention,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    mask: np.ndarray | None = None,
    past_key: np.ndarray | None = None,
    past_value: np.ndarray | None = None,
    nonpad_kv_seqlen: np.ndarray | None = None,
) -> tuple[np.ndarray, ...]:
    s = op.sizes(q.shape, k.shape, v.shape, None if past_key is None else past_key.shape)
    key, value = _split_heads(k, s.kv_heads), _split_heads(v, s.kv_heads)
    if past_key is not None:
        key, value = np.concatenate([past_key, key], axis=2), np.concatenate([past_value, value], axis=2)
    wide_q = widened(_split_heads(q, s.q_heads)).reshape(s.batch, s.kv_heads, s.q_heads // s.kv_heads, s.queries, s.head)
    scale = wide_q.dtype.type(1 / math.sqrt(s.head) if op.scale is None else op.scale)
    scores = np.matmul(wide_q * scale, widened(key)[:, :, None].swapaxes(-1, -2))
    scores = scores.reshape(s.batch, s.q_heads, s.queries, s.total)
    kept = [scores]
    if op.softcap > 0:
        scores = np.tanh(scores / scores.dtype.type(op.softcap)) * scores.dtype.type(op.softcap)
    kept.append(scores)

    if nonpad_kv_seqlen is not None:
        illegal = nonpad_kv_seqlen[(nonpad_kv_seqlen < 0) | (nonpad_kv_seqlen > s.total)]
        require(not illegal.size, illegal_key_counts(s.total).format(", ".join(map(str, illegal))))
    bias = _bias(op, s, scores.dtype, mask, nonpad_kv_seqlen)
    blind = np.isneginf(bias.max(axis=-1, keepdims=True, initial=-np.inf))
    scores = scores + bias
    kept.append(scores)
    precise = widened(scores.astype(op.softmax_precision)) if op.softmax_precision else scores
    with np.errstate(invalid="ignore"):
        weights = np.exp(precise - precise.max(axis=-1, keepdims=True, initial=-np.inf))
        weights = np.where(blind, 0, weights / weights.sum(axis=-1, keepdims=True)).astype(scores.dtype)
    kept.append(weights)

    y = np.matmul(weights.reshape(*wide_q.shape[:-1], s.total), widened(value)[:, :, None].astype(weights.dtype))
    y = y.reshape(s.batch, s.q_heads, s.queries, s.v_head)
    if q.ndim == 3:
        y = y.transpose(0, 2, 1, 3).reshape(s.batch, s.queries, s.q_heads * s.v_head)
    return y.astype(q.dtype, copy=False), key, value, kept[op.qk_matmul_output_mode].astype(q.dtype)


@numpy_execution(FusedAttention)
def fused_attention(op: FusedAttention, q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
    wide_q, wide_k, wide_v = (widened(x.transpose(perm) if perm else x) for x, perm in ((q, op.q_perm), (k, op.k_perm), (v, op.v_perm)))
    if op.kv_groups > 1:
        wide_k, wide_v = (x.repeat(op.kv_groups, axis=-3) for x in (wide_k, wide_v))
    scores = np.matmul(wide_q, wide_k) * np.asarray(op.scale, wide_q.dtype)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + widened(mask)
    if op.is_causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    with np.errstate(invalid="ignore"):
        peak = scores.max(axis=-1, keepdims=True, initial=-np.inf)
        weights = np.exp(scores - peak)
        weights /= weights.sum(axis=-1, keepdims=True)
        y = np.matmul(np.where(np.isneginf(peak), 0, weights) if op.zero_blind else weights, wide_v)
    return (y.transpose(op.y_perm) if op.y_perm else y).astype(q.dtype, copy=False)


@numpy_execution(PackedAttention)
def packed_attention(op: PackedAttention, x: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
    s = op.sizes(x.shape)
    q, k, v = np.split(x, [s.q_heads * s.head, (s.q_heads + s.kv_heads) * s.head], axis=2)
    plain = Attention(q_num_heads=s.q_heads, kv_num_heads=s.kv_heads, scale=op.scale, is_causal=op.is_causal)
    return attention(plain, q, k, v, mask)[0]


@numpy_execution(RotaryEmbedding)
def rotary_embedding(
    op: RotaryEmbedding, x: np.ndarray, cos: np.ndarray, sin: np.ndarray, position_ids: np.ndarray | None = None
) -> np.ndarray:
    batch, heads, length, size, rotated = op.sizes(x.shape)
    if position_ids is not None:
        fits = not position_ids.size or 0 <= position_ids.min() <= position_ids.max() < len(cos)
        require(fits, f"position_ids must be in 0 … {len(cos) - 1}")
        cos, sin = cos[position_ids], sin[position_ids]
    cos, sin = widened(cos)[:, None], widened(sin)[:, None]
    y = widened(_split_heads(x, heads)).copy()
    half = rotated // 2
    first, second = (slice(0, rotated, 2), slice(1, rotated, 2)) if op.interleaved else (slice(half), slice(half, rotated))
    a, b = y[..., first].copy(), y[..., second].copy()
    y[..., first] = cos * a - sin * b
    y[..., second] = sin * a + cos * b
    if x.ndim == 3:
        y = y.transpose(0, 2, 1, 3).reshape(batch, length, heads * size)
    return y.astype(x.dtype, copy=False)


@numpy_execution(LinearAttention)
def linear_attention(
    op: LinearAttention,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    past_state: np.ndarray | None = None,
    decay: np.ndarray | None = None,
    beta: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    batch, length, _ = q.shape
    heads = op.kv_num_heads
    query = widened(q).reshape(batch, length, heads, op.q_num_heads // heads, -1)
    key, value = (widened(t).reshape(batch, length, heads, -1) for t in (k, v))
    dtype = query.dtype
    state_dtype = q.dtype if past_state is None else past_state.dtype
    state = np.zeros((batch, heads, key.shape[-1], value.shape[-1]), dtype) if past_state is None else past_state.astype(dtype)
    scale = dtype.type(op.scale or 1 / math.sqrt(key.shape[-1]))
    factors = np.exp(widened(decay)).reshape(batch, length, heads, -1, 1) if "gated" in op.update_rule else None
    rates = widened(beta)[..., None] if "delta" in op.update_rule else None
    y = np.empty((*query.shape[:-1], value.shape[-1]), dtype)
    for token in range(length):
        if factors is not None:
            state = state * factors[:, token]
        written = value[:, token]
        if rates is not None:
            written = rates[:, token] * (written - np.matmul(key[:, token, :, None], state)[:, :, 0])
        state = state + key[:, token, :, :, None] * written[:, :, None]
        y[:, token] = np.matmul(query[:, token], state) * scale
    return y.reshape(batch, length, -1).astype(q.dtype, copy=False), state.astype(state_dtype)
