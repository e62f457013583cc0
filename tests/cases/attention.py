"""Attention in its layouts, masks, windows and caches; rotary embeddings; linear attention by all its rules."""

import numpy as np

from mnnx.schema.ops.attention import Attention, LinearAttention, RotaryEmbedding
from tests.cases import booleans, case, f16, f32, f64, i64

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
case(Attention(left_window_size=1, right_window_size=1), f32(1, 2, 6, 4), f32(1, 2, 6, 4), f32(1, 2, 6, 4))
case(Attention(), f32(2, 2, 3, 4), f32(2, 2, 5, 4), f32(2, 2, 5, 4), None, None, None, i64(3, 5))
case(Attention(is_causal=True), f32(2, 2, 3, 4), f32(2, 2, 5, 4), f32(2, 2, 5, 4), f32(3, 4), None, None, i64(2, 4))
case(Attention(), f64(1, 2, 3, 4), f64(1, 2, 3, 4), f64(1, 2, 3, 4))
case(Attention(), f16(1, 2, 3, 4), f16(1, 2, 3, 4), f16(1, 2, 3, 4), rtol=1e-2, atol=1e-2)
case(Attention(softmax_precision=np.dtype(np.float32)), f16(1, 2, 3, 4), f16(1, 2, 3, 4), f16(1, 2, 3, 4), rtol=1e-2, atol=1e-2)

POSITIONS = np.array([[0, 1, 2], [7, 3, 0]], np.int64)
case(RotaryEmbedding(), f32(2, 4, 3, 8), f32(50, 4), f32(50, 4), POSITIONS)
case(RotaryEmbedding(interleaved=True), f32(2, 4, 3, 8), f32(50, 4), f32(50, 4), POSITIONS)
case(RotaryEmbedding(), f32(2, 4, 3, 8), f32(2, 3, 4), f32(2, 3, 4))
case(RotaryEmbedding(num_heads=4), f32(2, 3, 32), f32(50, 4), f32(50, 4), POSITIONS)
case(RotaryEmbedding(rotary_embedding_dim=4), f32(2, 4, 3, 8), f32(50, 2), f32(50, 2), POSITIONS)
case(RotaryEmbedding(rotary_embedding_dim=4, interleaved=True, num_heads=2), f32(2, 3, 16), f32(2, 3, 2), f32(2, 3, 2))

INPUTS = (f32(2, 5, 24), f32(2, 5, 12), f32(2, 5, 9), f32(2, 3, 4, 3))
DECAY, DECAY_PER_HEAD = f32(2, 5, 12, low=-1, high=0), f32(2, 5, 3, low=-1, high=0)
HEADS = {"q_num_heads": 6, "kv_num_heads": 3}
case(LinearAttention(**HEADS, update_rule="linear"), *INPUTS, outputs=2)
case(LinearAttention(**HEADS, update_rule="linear"), *INPUTS[:3], outputs=2)
case(LinearAttention(**HEADS, update_rule="gated", scale=0.5), *INPUTS, DECAY, outputs=2)
case(LinearAttention(**HEADS, update_rule="delta"), *INPUTS, None, f32(2, 5, 3), outputs=2)
case(LinearAttention(**HEADS), *INPUTS, DECAY_PER_HEAD, f32(2, 5, 1), outputs=2)
