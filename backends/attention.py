"""Attention as products of strided matrices, for any device."""

from __future__ import annotations

import math

import numpy as np

from mnnx.backends.backend import Specs
from mnnx.backends.matrices import Matrices
from mnnx.schema.ops.attention import Attention, AttentionSizes, FusedAttention, PackedAttention
from mnnx.schema.records import Row

#: How far a window reaches on a side where it has no bound.
UNBOUNDED = 1 << 40


class Problem(Row):
    """y = softmax(scale * q @ k + mask) @ v, k given as [D, Lk]; query i sees the keys i + first … i + last. blind: what a query that sees
    no key gets."""

    q: Matrices
    k: Matrices
    v: Matrices
    mask: Matrices | None
    y: Matrices
    scale: float
    first: int = -UNBOUNDED
    last: int = UNBOUNDED
    blind: float = math.nan


def fused_problem(op: FusedAttention, inputs: Specs, outputs: Specs) -> Problem:
    q, k, v, mask = (None if spec is None else spec.shape for spec in (*inputs, None)[:4])
    inverse = tuple(int(i) for i in np.argsort(op.y_perm))
    keys, groups = Matrices.of(k, op.k_perm), op.kv_groups
    if mask is not None:
        mask = Matrices.of((1,) * ((2 if groups == 1 else 3) - len(mask)) + mask)
    # y' […, Lq, Dv] lies in y as the inverse permutation takes it.
    parts = [Matrices.of(q, op.q_perm), keys, Matrices.of(v, op.v_perm), mask, Matrices.of(outputs[0].shape, inverse)]
    if groups > 1:
        kv_heads = keys.batch[-1]
        parts = [None if part is None else part.grouped(kv_heads) for part in parts]
    blind = 0.0 if op.zero_blind or not keys.columns else math.nan  # the sum of no values is 0
    return Problem(*parts, op.scale, last=0 if op.is_causal else UNBOUNDED, blind=blind)


def plain_problem(op: Attention, inputs: Specs, present: bool = False) -> Problem:
    """present: k and v are taken from the present keys and values [N, Hkv, past and new ones, D], rather than from the inputs."""
    q, k, v, mask, past = (None if spec is None else spec.shape for spec in (*inputs, None, None)[:5])
    s = op.sizes(q, k, v, past)
    group = s.q_heads // s.kv_heads

    def heads(kv: int, grouped: int, length: int, size: int, split: bool = len(q) == 4) -> Matrices:
        if split:
            return Matrices.of((s.batch, kv, grouped, length, size))
        return Matrices.of((s.batch, length, kv, grouped, size), (0, 2, 3, 1, 4))

    split = present or len(q) == 4
    return Problem(
        heads(s.kv_heads, group, s.queries, s.head),
        heads(s.kv_heads, 1, s.total, s.head, split).transposed,
        heads(s.kv_heads, 1, s.total, s.v_head, split),
        None if mask is None else _mask(mask, s),
        heads(s.kv_heads, group, s.queries, s.v_head),
        1 / math.sqrt(s.head) if op.scale is None else op.scale,
        s.past - op.left_window_size if op.left_window_size >= 0 else -UNBOUNDED,
        min(s.past if op.is_causal else UNBOUNDED, s.past + op.right_window_size if op.right_window_size >= 0 else UNBOUNDED),
        0.0,
    )


def packed_problem(op: PackedAttention, inputs: Specs, outputs: Specs) -> Problem:
    """q, k and v are parts of the first input."""
    x, mask = (*inputs, None)[:2]
    s = op.sizes(x.shape)
    tokens = Matrices.of((s.batch, s.queries, s.q_heads + 2 * s.kv_heads, s.head), (0, 2, 1, 3))
    return Problem(
        tokens.part(0, s.q_heads).grouped(s.kv_heads),
        tokens.part(s.q_heads, s.kv_heads).grouped(s.kv_heads).transposed,
        tokens.part(s.q_heads + s.kv_heads, s.kv_heads).grouped(s.kv_heads),
        None if mask is None else _mask(mask.shape, s),
        Matrices.of((s.batch, s.queries, s.q_heads, s.head), (0, 2, 1, 3)).grouped(s.kv_heads),
        op.scale,
        last=0 if op.is_causal else UNBOUNDED,
        blind=0.0,
    )


def _mask(shape: tuple[int, ...], s: AttentionSizes) -> Matrices:
    """A mask that broadcasts to [N, H, Lq, Lk], with the heads in groups."""
    shape = (1,) * (4 - len(shape)) + shape
    return Matrices.of((shape[0], *((s.kv_heads, s.q_heads // s.kv_heads) if shape[1] > 1 else (1, 1)), *shape[2:]))
