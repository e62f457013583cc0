"""Ops that ONNX Runtime adds to ONNX, against their definitions written out."""

import numpy as np

from mnnx.schema.ops.contrib import AttentionMask, GroupQueryAttention, Inverse
from tests.cases import case, f32, f64, i64, integers

case(Inverse(), f32(3, 4, 4) + 4 * np.eye(4, dtype=np.float32), reference=lambda x: np.linalg.inv(x))
case(Inverse(), f64(2, 2), reference=lambda x: np.linalg.inv(x))
case(Inverse(), np.ones((2, 2), np.float32), reference=lambda x: np.full((2, 2), np.nan, np.float32))
case(Inverse(), f32(0, 3, 3), reference=lambda x: x)

total = np.array(5, np.int64)
case(
    AttentionMask(),
    integers("int32", 2, high=6),
    i64(2, 3),
    total,
    reference=lambda m, *_: (np.arange(5) < m[:, None])[:, None, None],
)
case(
    AttentionMask(),
    np.array([5, 3, 1, 0], np.int32),
    i64(2, 3),
    total,
    reference=lambda *_: np.array([[False, True, True, True, True], [True, True, True, False, False]])[:, None, None],
)
case(AttentionMask(), integers("int32", 2, 5, high=2), i64(2, 3), total, reference=lambda m, *_: m[:, None, None] > 0)
case(AttentionMask(), integers("int64", 2, 3, 5, high=2), i64(2, 3), total, reference=lambda m, *_: m[:, None] > 0)
case(AttentionMask(), f32(2, 1, 8, 8), i64(2, 3), total, reference=lambda m, *_: m[:, :, 2:5, :5] > 0)


def attended(op, q, keys, values, places, end):
    """One query q [D] of a sequence at `place`, over the keys and values [T, D] that it sees."""
    first = 0 if op.local_window_size < 0 else max(0, places - op.local_window_size + 1)
    last = min(end, places + 1) if op.causal else end
    scores = keys[first:last] @ q / np.sqrt(len(q))
    weights = np.exp(scores - scores.max())
    return weights / (weights.sum() + op.smooth_softmax * np.exp(-scores.max())) @ values[first:last]


def cached(op, lengths):
    """The reference for sequences that have `lengths` keys before this call."""

    def reference(q, k, v, past_key, past_value, seqlens, total):
        batch, length, width = q.shape
        head = width // op.num_heads
        room = max(past_key.shape[2], int(total))
        present = [np.zeros((batch, op.kv_num_heads, room, head), np.float32) for _ in range(2)]
        y = np.zeros_like(q)
        for n, start in enumerate(lengths):
            for cache, old, new in zip(present, (past_key, past_value), (k, v), strict=True):
                cache[n, :, : old.shape[2]] = old[n]
                cache[n, :, start : start + length] = new[n].reshape(length, op.kv_num_heads, head).swapaxes(0, 1)
            for i in range(length):
                for h in range(op.num_heads):
                    shared = h * op.kv_num_heads // op.num_heads
                    part = slice(h * head, (h + 1) * head)
                    y[n, i, part] = attended(op, q[n, i, part], *(c[n, shared] for c in present), start + i, int(seqlens[n]) + 1)
        return y, *present

    return reference


def group_query(lengths, queries, past, **attributes):
    op = GroupQueryAttention(num_heads=4, kv_num_heads=2, **attributes)
    batch, ends = len(lengths), np.array(lengths, np.int32) + queries
    inputs = (f32(batch, queries, 32), f32(batch, queries, 16), f32(batch, queries, 16), f32(batch, 2, past, 8), f32(batch, 2, past, 8))
    case(op, *inputs, ends - 1, np.array(ends.max(), np.int32), reference=cached(op, lengths), outputs=3)


group_query((4, 4), 1, 4)
group_query((6, 3), 1, 6)
group_query((5,), 3, 5)
group_query((5,), 3, 16, local_window_size=4)
group_query((4, 2), 1, 9, smooth_softmax=True)
group_query((2,), 3, 2, causal=False)
