"""Attention in its layouts, masks, windows and caches; rotary embeddings; linear attention by all its rules."""

import numpy as np

from mnnx.schema.ops.attention import Attention, FusedAttention, LinearAttention, PackedAttention, RotaryEmbedding
from tests.cases import booleans, case, f16, f32, f64, i64


def without_keys(q, k, v, _mask, past_key, past_value):
    """Zeros: a query that sees no key gets 0."""
    return np.zeros((*q.shape[:3], v.shape[3]), q.dtype), past_key, past_value


case(Attention(), f32(2, 3, 4, 8), f32(2, 3, 6, 8), f32(2, 3, 6, 8))
case(Attention(scale=0.01), f32(1, 2, 4, 8), f32(1, 2, 6, 8), f32(1, 2, 6, 5))
case(Attention(is_causal=True), f32(1, 2, 5, 4), f32(1, 2, 5, 4), f32(1, 2, 5, 4))
case(Attention(softcap=2.0), f32(1, 2, 5, 4), f32(1, 2, 5, 4), f32(1, 2, 5, 4))
case(Attention(), f32(1, 6, 5, 4), f32(1, 2, 7, 4), f32(1, 2, 7, 4))
case(Attention(q_num_heads=3, kv_num_heads=3), f32(2, 4, 24), f32(2, 6, 24), f32(2, 6, 24))
case(Attention(q_num_heads=9, kv_num_heads=3, is_causal=True), f32(2, 4, 72), f32(2, 6, 24), f32(2, 6, 30))
case(Attention(), f32(2, 3, 4, 8), f32(2, 3, 6, 8), f32(2, 3, 6, 8), f32(4, 6))
case(Attention(), f32(2, 3, 4, 8), f32(2, 3, 6, 8), f32(2, 3, 6, 8), f32(2, 1, 4, 6))
case(Attention(), f32(2, 3, 4, 8), f32(2, 3, 6, 8), f32(2, 3, 6, 8), booleans(3, 4, 6))
case(Attention(is_causal=True), f32(2, 3, 4, 8), f32(2, 3, 4, 8), f32(2, 3, 4, 8), booleans(4, 4))
case(Attention(), f32(1, 2, 3, 4), f32(1, 2, 5, 4), f32(1, 2, 5, 4), np.zeros((3, 5), bool))
for mode in range(4):
    op = Attention(qk_matmul_output_mode=mode, softcap=3.0 if mode else 0.0, is_causal=True)
    case(op, f32(1, 2, 3, 4), f32(1, 2, 2, 4), f32(1, 2, 2, 4), f32(3, 7), f32(1, 2, 5, 4), f32(1, 2, 5, 4), outputs=4)
for count in (1, 3):  # results; the present keys and values are the second and third
    cache, causal = (f32(2, 2, 5, 4), f32(2, 2, 5, 6)), Attention(is_causal=True)
    case(causal, f32(2, 4, 3, 4), f32(2, 2, 3, 4), f32(2, 2, 3, 6), None, *cache, outputs=count)
    case(causal, f32(2, 4, 1, 4), f32(2, 2, 1, 4), f32(2, 2, 1, 6), None, *cache, outputs=count)
    case(Attention(), f32(2, 4, 3, 4), f32(2, 2, 2, 4), f32(2, 2, 2, 6), booleans(2, 1, 3, 7), *cache, outputs=count)
    packed = Attention(q_num_heads=4, kv_num_heads=2, left_window_size=2, right_window_size=1, softcap=1.5)
    case(packed, f32(2, 3, 16), f32(2, 4, 8), f32(2, 4, 12), f32(4, 3, 9), *cache, outputs=count)
    case(packed, f32(2, 3, 16), f32(2, 4, 8), f32(2, 4, 12), None, f32(2, 2, 0, 4), f32(2, 2, 0, 6), outputs=count)
    case(packed, f32(2, 3, 16), f32(2, 4, 8), f32(2, 4, 12), outputs=count)
    none = f32(2, 2, 0, 4), f32(2, 2, 0, 6)
    case(Attention(), f32(2, 4, 3, 4), *none, None, *none, outputs=count, reference=without_keys)
    halves = [f16(2, 2, length, size) for length, size in ((3, 4), (3, 4), (3, 6), (9, 4), (9, 6))]
    case(causal, *halves[:3], None, *halves[3:], outputs=count, rtol=1e-2, atol=1e-2)
case(Attention(softcap=2.0, is_causal=True), f32(1, 6, 300, 8), f32(1, 2, 300, 8), f32(1, 2, 300, 8), f32(1, 6, 300, 300))
case(Attention(left_window_size=1, right_window_size=1), f32(1, 2, 6, 4), f32(1, 2, 6, 4), f32(1, 2, 6, 4))
case(Attention(), f32(2, 2, 3, 4), f32(2, 2, 5, 4), f32(2, 2, 5, 4), None, None, None, i64(3, 5))
case(Attention(is_causal=True), f32(2, 2, 3, 4), f32(2, 2, 5, 4), f32(2, 2, 5, 4), f32(3, 4), None, None, i64(2, 4))
case(Attention(), f32(2, 2, 3, 4), f32(2, 2, 5, 4), f32(2, 2, 5, 4), booleans(2, 1, 3, 4))
for mask in (None, f32(3, 5), booleans(2, 1, 3, 5), f32(1, 4, 3, 5), f32(2, 4, 3, 5)):
    lengths = (mask, None, None, i64(3, 5))
    case(Attention(is_causal=True), f32(2, 4, 3, 4), f32(2, 2, 5, 4), f32(2, 2, 5, 4), *lengths)
    case(Attention(left_window_size=1, softcap=2.0), f32(2, 4, 3, 4), f32(2, 2, 5, 4), f32(2, 2, 5, 4), *lengths)
    case(Attention(q_num_heads=4, kv_num_heads=2), f32(2, 3, 16), f32(2, 5, 8), f32(2, 5, 8), *lengths, outputs=3)
case(Attention(), f64(1, 2, 3, 4), f64(1, 2, 3, 4), f64(1, 2, 3, 4))
case(Attention(), f16(1, 2, 3, 4), f16(1, 2, 3, 4), f16(1, 2, 3, 4), rtol=1e-2, atol=1e-2)
case(Attention(softmax_precision=np.dtype(np.float32)), f16(1, 2, 3, 4), f16(1, 2, 3, 4), f16(1, 2, 3, 4), rtol=1e-2, atol=1e-2)

# Blocks of queries and keys that are whole, ragged, and several.
for queries, keys, size in ((1, 7, 8), (7, 1, 20), (7, 300, 64), (128, 128, 20), (300, 130, 8), (33, 900, 20)):
    q, k, v = f32(1, 2, queries, size), f32(1, 2, keys, size), f32(1, 2, keys, size + 4)
    case(Attention(), q, k, v)
    case(Attention(is_causal=True), q, k, v)
    case(Attention(left_window_size=5, right_window_size=3), q, k, v, booleans(1, 2, 1, keys))
    case(Attention(is_causal=True), q, k, v, f32(queries, keys))
case(Attention(q_num_heads=6, kv_num_heads=2), f32(2, 40, 96), f32(2, 50, 32), f32(2, 50, 40), booleans(2, 6, 40, 50))
case(Attention(), f32(1, 1, 3, 4, low=-90, high=90), f32(1, 1, 900, 4, low=-90, high=90), f32(1, 1, 900, 4))


def fused(op: FusedAttention):
    """The op's definition, in float64."""

    def compute(q, k, v, mask=None):
        bias = 0.0 if mask is None else np.where(mask, 0, -np.inf) if mask.dtype == bool else mask
        q, k, v = (x.astype(np.float64).transpose(perm or range(x.ndim)) for x, perm in ((q, op.q_perm), (k, op.k_perm), (v, op.v_perm)))
        k, v = (np.repeat(x, op.kv_groups, axis=-3) if op.kv_groups > 1 else x for x in (k, v))
        scores = op.scale * q @ k + bias
        scores = np.where(np.tri(*scores.shape[-2:]), scores, -np.inf) if op.is_causal else scores
        with np.errstate(invalid="ignore"):
            weights = np.exp(scores - np.max(scores, -1, keepdims=True, initial=-np.inf))
            weights /= weights.sum(-1, keepdims=True)
        y = (np.nan_to_num(weights) if op.zero_blind else weights) @ v
        return y.transpose(op.y_perm or range(y.ndim)).astype(np.float32)

    return compute


HEADS_OUT = {"q_perm": (0, 2, 1, 3), "k_perm": (0, 2, 3, 1), "v_perm": (0, 2, 1, 3), "y_perm": (0, 2, 1, 3)}
SOME_BLIND = np.where(np.tri(3, 5, -1, dtype=bool), np.float32(0), np.float32(-np.inf))
LOW = np.where(booleans(2, 1, 1, 50), np.float32(0), np.float32(-1e9))
for op, *inputs in (
    (FusedAttention(), f32(5, 8), f32(8, 7), f32(7, 3)),
    (FusedAttention(scale=0.3), f32(2, 3, 40, 20), f32(2, 3, 20, 50), f32(2, 3, 50, 64), f32(40, 50)),
    (FusedAttention(scale=0.3, **HEADS_OUT), f32(2, 40, 3, 20), f32(2, 50, 3, 20), f32(2, 50, 3, 32), LOW),
    (FusedAttention(**HEADS_OUT), f32(1, 40, 3, 20), f32(1, 700, 3, 20), f32(1, 700, 3, 10)),
    (FusedAttention(k_perm=(1, 2, 0)), f32(9, 6), f32(11, 4, 6), f32(4, 11, 5), f32(2, 1, 9, 11)),
    (FusedAttention(), f32(3, 1, 6), f32(6, 5), f32(2, 1, 5, 4)),
    (FusedAttention(), f32(2, 1, 6), f32(2, 6, 5), f32(2, 5, 4), f32(4, 1)),
    (FusedAttention(), f32(2, 3, 6), f32(2, 6, 5), f32(2, 5, 4), np.full((3, 5), -np.inf, np.float32)),
    (FusedAttention(zero_blind=True), f32(2, 3, 6), f32(2, 6, 5), f32(2, 5, 4), SOME_BLIND),
    (FusedAttention(zero_blind=True), f32(2, 3, 6), f32(2, 6, 5), f32(2, 5, 4), np.tri(3, 5, -1, dtype=bool)),
    (FusedAttention(), f32(2, 3, 6), f32(2, 6, 5), f32(2, 5, 4), booleans(2, 1, 5) | (np.arange(5) == 2)),
    (FusedAttention(is_causal=True, **HEADS_OUT), f32(2, 40, 3, 20), f32(2, 50, 3, 20), f32(2, 50, 3, 32)),
    (FusedAttention(is_causal=True, kv_groups=2), f32(4, 5, 8), f32(2, 8, 7), f32(2, 7, 4), f32(4, 5, 7)),
    (FusedAttention(kv_groups=3), f32(2, 6, 5, 8), f32(2, 2, 8, 7), f32(2, 2, 7, 4), f32(2, 1, 1, 7)),
    (FusedAttention(kv_groups=2, zero_blind=True, **HEADS_OUT), f32(2, 3, 4, 8), f32(2, 5, 2, 8), f32(2, 5, 2, 4), SOME_BLIND),
    (FusedAttention(kv_groups=2), f32(4, 5, 8), f32(2, 8, 7), f32(2, 7, 4), f32(4, 5, 7)),
    (FusedAttention(kv_groups=4, k_perm=(0, 1, 3, 2)), f32(1, 4, 1, 8), f32(1, 1, 300, 8), f32(1, 1, 300, 8)),
    (FusedAttention(), f32(2, 0, 6), f32(2, 6, 5), f32(2, 5, 4)),
    (FusedAttention(), f32(2, 3, 6), f32(2, 6, 0), f32(2, 0, 4)),
    (FusedAttention(), f32(2, 3, 6), f32(2, 6, 0), f32(2, 0, 4), f32(3, 1)),
):
    case(op, *inputs, reference=fused(op))


def packed(op: PackedAttention):
    """The op's definition, one query after another, in float64."""

    def compute(x, mask=None):
        batch, length, width = x.shape
        heads, fewer = op.q_num_heads, op.kv_num_heads
        size = width // (heads + 2 * fewer)
        apart = x.astype(np.float64).reshape(batch, length, heads + 2 * fewer, size)
        bias = 0.0 if mask is None else np.where(mask, 0, -np.inf) if mask.dtype == bool else mask
        bias = np.broadcast_to(bias, (batch, heads, length, length))
        y = np.zeros((batch, length, heads, size))
        for n, h, i in np.ndindex(batch, heads, length):
            group = h // (heads // fewer)
            scores = op.scale * apart[n, :, heads + group] @ apart[n, i, h] + bias[n, h, i]
            scores[i + 1 if op.is_causal else length :] = -np.inf
            weights = np.exp(scores - scores.max()) if np.isfinite(scores.max()) else np.zeros(length)
            y[n, i, h] = weights @ apart[n, :, heads + fewer + group] / max(weights.sum(), 1e-30)
        return y.reshape(batch, length, heads * size).astype(x.dtype)

    return compute


for op, *inputs in (
    (PackedAttention(q_num_heads=2, kv_num_heads=2, scale=0.5), f32(2, 5, 48)),
    (PackedAttention(q_num_heads=4, kv_num_heads=2, scale=0.3, is_causal=True), f32(1, 40, 160), f32(40, 40)),
    (PackedAttention(q_num_heads=3, kv_num_heads=1), f32(2, 7, 25), booleans(2, 1, 1, 7)),
    (PackedAttention(q_num_heads=3, kv_num_heads=3), f32(2, 7, 27), np.zeros((2, 3, 7, 7), bool)),
    (PackedAttention(q_num_heads=2, kv_num_heads=2), f32(1, 400, 96), f32(1, 2, 1, 400)),
    (PackedAttention(q_num_heads=2, kv_num_heads=2), f32(2, 0, 48)),
):
    case(op, *inputs, reference=packed(op))
HALF = PackedAttention(q_num_heads=2, kv_num_heads=2)
case(HALF, f16(2, 5, 48), reference=packed(HALF), rtol=1e-2, atol=1e-2)

POSITIONS = np.array([[0, 1, 2], [7, 3, 0]], np.int64)
case(RotaryEmbedding(), f32(2, 4, 3, 8), f32(50, 4), f32(50, 4), POSITIONS)
case(RotaryEmbedding(interleaved=True), f32(2, 4, 3, 8), f32(50, 4), f32(50, 4), POSITIONS)
case(RotaryEmbedding(), f32(2, 4, 3, 8), f32(2, 3, 4), f32(2, 3, 4))
case(RotaryEmbedding(num_heads=4), f32(2, 3, 32), f32(50, 4), f32(50, 4), POSITIONS)
case(RotaryEmbedding(rotary_embedding_dim=4), f32(2, 4, 3, 8), f32(50, 2), f32(50, 2), POSITIONS)
case(RotaryEmbedding(rotary_embedding_dim=4, interleaved=True, num_heads=2), f32(2, 3, 16), f32(2, 3, 2), f32(2, 3, 2))
case(RotaryEmbedding(), f32(2, 4, 3, 8), f32(1, 3, 4), f32(1, 3, 4))
case(RotaryEmbedding(num_heads=4, interleaved=True), f32(2, 3, 32), f32(1, 3, 4), f32(1, 3, 4))
case(RotaryEmbedding(), f16(2, 4, 3, 8), f16(50, 4), f16(50, 4), POSITIONS)
case(RotaryEmbedding(rotary_embedding_dim=6), f32(2, 4, 3, 9), f32(2, 3, 3), f32(2, 3, 3))

INPUTS = (f32(2, 5, 24), f32(2, 5, 12), f32(2, 5, 9), f32(2, 3, 4, 3))
DECAY, DECAY_PER_HEAD = f32(2, 5, 12, low=-1, high=0), f32(2, 5, 3, low=-1, high=0)
HEADS = {"q_num_heads": 6, "kv_num_heads": 3}
case(LinearAttention(**HEADS, update_rule="linear"), *INPUTS, outputs=2)
case(LinearAttention(**HEADS, update_rule="linear"), *INPUTS[:3], outputs=2)
case(LinearAttention(**HEADS, update_rule="gated", scale=0.5), *INPUTS, DECAY, outputs=2)
case(LinearAttention(**HEADS, update_rule="delta"), *INPUTS, None, f32(2, 5, 3), outputs=2)
case(LinearAttention(**HEADS), *INPUTS, DECAY_PER_HEAD, f32(2, 5, 1), outputs=2)
