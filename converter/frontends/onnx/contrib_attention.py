"""Importers of ONNX Runtime's attention ops (com.microsoft): projections, splits and masks around ONNX's Attention."""

from __future__ import annotations

import numpy as np

from mnnx.converter.frontends.onnx.contrib_quantization import dequantized
from mnnx.converter.frontends.onnx.node import OnnxNode
from mnnx.converter.frontends.onnx.registry import importer
from mnnx.converter.graph import Value
from mnnx.schema.ops.arithmetic import Add, Mul
from mnnx.schema.ops.attention import Attention, RotaryEmbedding
from mnnx.schema.ops.cast import Cast, CastLike
from mnnx.schema.ops.contrib import AttentionMask, GroupQueryAttention
from mnnx.schema.ops.generation import Range
from mnnx.schema.ops.indexing import Gather, GatherElements, TensorScatter
from mnnx.schema.ops.matmul import MatMul
from mnnx.schema.ops.normalization import RMSNormalization
from mnnx.schema.ops.shape import Concat, Expand, Reshape, Shape, Split, Squeeze, Transpose, Unsqueeze
from mnnx.schema.ops.slicing import Slice

DOMAIN = "com.microsoft"

_INT64 = np.dtype(np.int64)


def _ints(node: OnnxNode, *values: int) -> Value:
    return node.constant(list(values), np.int64)


def _length(node: OnnxNode, x: Value, axis: int) -> Value:
    """The size of a dim, int64 [1]."""
    return node.add(Shape(start=axis, end=axis + 1), x)


def _flat_heads(node: OnnxNode, x: Value) -> Value:
    """[N, L, H, D] → [N, L, H * D]"""
    return node.add(Reshape(), x, _ints(node, 0, 0, -1))


def _added(node: OnnxNode, mask: Value | None, bias: Value | None, x: Value, total: Value) -> Value | None:
    """What is added to the scores of the tokens x [N, Lq, …] and `total` keys: the bias, and mask_filter_value where the mask is off."""
    if mask is None:
        return bias
    op = AttentionMask(hidden=node.attribute("mask_filter_value", float, -10000.0))
    hidden = node.add(op, mask, node.add(Shape(end=2), x), total)
    return hidden if bias is None else node.add(Add(), node.add(CastLike(), hidden, bias), bias)


def _refuse(node: OnnxNode, *attributes: str, **inputs: Value | None) -> None:
    """Fails where one of these attributes is set or one of these inputs is given."""
    for name in attributes:
        if node.has(name) and node.attribute(name, int):
            node.fail(f"{name} isn't supported")
    for name, value in inputs.items():
        if value is not None:
            node.fail(f"its input {name} isn't supported")


def _attend(node: OnnxNode, q: Value, k: Value, v: Value, added: Value | None, past_key: Value | None, past_value: Value | None):
    """Attention on [N, L, H * D]; gives y, and where the node has more outputs than that, present key and value, and the scores."""
    heads = node.attribute("num_heads", int)
    op = Attention(
        q_num_heads=heads,
        kv_num_heads=heads,
        is_causal=node.attribute("unidirectional", bool, False),
        scale=node.attribute("scale", float, 0.0) or None,
        qk_matmul_output_mode=2,
    )
    inputs = (q, k, v, added, past_key, past_value)
    return node.add(op, *inputs, outputs=4) if any(node.output_names[1:]) else (node.add(op, *inputs),)


@importer("Attention", domain=DOMAIN)
def attention(
    node: OnnxNode,
    x: Value,
    weights: Value,
    bias: Value | None = None,
    mask: Value | None = None,
    past: Value | None = None,
    attention_bias: Value | None = None,
    past_length: Value | None = None,
):
    """Self-attention with its projection: q, k and v are x times thirds of the weights."""
    _refuse(node, "do_rotary", "past_present_share_buffer", past_sequence_length=past_length)
    projected = node.add(MatMul(), x, weights)
    if bias is not None:
        projected = node.add(Add(), projected, bias)
    sizes = node.attribute("qkv_hidden_sizes", tuple[int, ...], ())
    q, k, v = node.add(Split(num_outputs=3, axis=-1), projected, *([_ints(node, *sizes)] if sizes else []), outputs=3)
    past_key = past_value = None
    total = _length(node, x, 1)
    if past is not None:
        past_key, past_value = (node.add(Gather(), past, node.constant(i, np.int64)) for i in range(2))
        total = node.add(Add(), total, _length(node, past, 3))
    added = _added(node, mask, attention_bias, x, total)
    y, *present = _attend(node, q, k, v, added, past_key, past_value)
    if not present:
        return y
    axis = _ints(node, 0)
    return y, node.add(Concat(axis=0), *(node.add(Unsqueeze(), part, axis) for part in present[:2]))


@importer("QAttention", domain=DOMAIN)
def qattention(
    node: OnnxNode,
    x: Value,
    weights: Value,
    bias: Value,
    x_scale: Value,
    weight_scale: Value,
    mask: Value | None = None,
    x_zero: Value | None = None,
    weight_zero: Value | None = None,
    past: Value | None = None,
):
    """Attention on quantized operands, computed in floats."""
    return attention(node, dequantized(node, x, x_scale, x_zero), dequantized(node, weights, weight_scale, weight_zero), bias, mask, past)


@importer("MultiHeadAttention", domain=DOMAIN)
def multi_head_attention(
    node: OnnxNode,
    q: Value,
    k: Value | None = None,
    v: Value | None = None,
    bias: Value | None = None,
    mask: Value | None = None,
    attention_bias: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    past_length: Value | None = None,
    cache_indirection: Value | None = None,
):
    """Attention on projected operands, which come apart or packed, k and v also with the heads in front of the length."""
    _refuse(node, past_sequence_length=past_length, cache_indirection=cache_indirection)
    cached = k is not None and k.rank == 4
    if k is None:  # [N, L, H, 3, D]
        q, k, v = _unpacked(node, q, 3)
    elif v is None:  # [N, L, H, 2, D]
        k, v = _unpacked(node, k, 2)
    elif cached:
        k, v = (_flat_heads(node, node.add(Transpose(perm=(0, 2, 1, 3)), value)) for value in (k, v))
    if bias is not None:
        q, k, v = _biased(node, bias, q, k, v, only_q=cached)
    total = _length(node, k, 1)
    if past_key is not None:
        total = node.add(Add(), total, _length(node, past_key, 2))
    return _attend(node, q, k, v, _added(node, mask, attention_bias, q, total), past_key, past_value)


def _unpacked(node: OnnxNode, packed: Value, parts: int) -> list[Value]:
    """[N, L, H, parts, D] → `parts` times [N, L, H * D]"""
    axis = _ints(node, 3)
    return [
        _flat_heads(node, node.add(Squeeze(), part, axis)) for part in node.add(Split(num_outputs=parts, axis=3), packed, outputs=parts)
    ]


def _biased(node: OnnxNode, bias: Value, q: Value, k: Value, v: Value, only_q: bool) -> list[Value]:
    """q, k and v with their parts of the bias; k and v that come from a cache have theirs already."""
    size = bias.shape[0] if bias.rank == 1 else None
    width = q.shape[-1] if q.rank else None
    if not isinstance(size, int):
        node.fail("its bias must have a known shape")
    if not isinstance(width, int):
        width = size // 3
    parts = [node.add(Slice(), bias, _ints(node, start), _ints(node, end), _ints(node, 0)) for start, end in _thirds(width, size)]
    return [node.add(Add(), q, parts[0]), *([k, v] if only_q else [node.add(Add(), k, parts[1]), node.add(Add(), v, parts[2])])]


def _thirds(width: int, size: int) -> list[tuple[int, int]]:
    return [(0, width), (width, 2 * width), (2 * width, size)]


@importer("RotaryEmbedding", domain=DOMAIN)
def rotary_embedding(node: OnnxNode, x: Value, positions: Value, cos: Value, sin: Value):
    if node.attribute("scale", float, 1.0) != 1.0:
        node.fail("a scale other than 1 isn't supported")
    heads, rotated = node.attribute("num_heads", int, 0), node.attribute("rotary_embedding_dim", int, 0)
    if not heads and x.rank != 4:
        sizes = (x.shape[-1] if x.rank else None, cos.shape[-1] if cos.rank else None)
        if not all(isinstance(size, int) and size > 0 for size in sizes):
            node.fail("needs num_heads where the shapes of its input and of the cosines aren't known")
        heads = sizes[0] // (2 * sizes[1])
    if positions.rank == 1:  # where the first token stands
        length = node.add(Shape(start=-2, end=-1), x)
        steps = node.add(Range(), node.constant(0, np.int64), node.add(Squeeze(), length), node.constant(1, np.int64))
        shape = node.add(Concat(axis=0), node.add(Shape(end=1), x), length)
        positions = node.add(Expand(), node.add(Add(), steps, positions), shape)
    op = RotaryEmbedding(interleaved=node.attribute("interleaved", bool, False), num_heads=heads, rotary_embedding_dim=rotated)
    return node.add(op, x, cos, sin, positions)


@importer("MRotaryEmbedding", domain=DOMAIN)
def multimodal_rotary_embedding(node: OnnxNode, x: Value, positions: Value, cos: Value, sin: Value):
    """Each angle is that of one of three positions [3, N, L] of a token: in sections, or, with mrope_layout 1, in turns."""
    sections = node.attribute("mrope_section", tuple[int, ...])
    if len(sections) != 3 or node.attribute("mrope_layout", int, 0) not in (0, 1):
        node.fail(f"needs three sections, and mrope_layout 0 or 1; the sections are {list(sections)}")
    stream = np.repeat(np.arange(3), sections)
    if node.attribute("mrope_layout", int, 0):
        stream[:] = 0
        for index in (1, 2):
            stream[index : sections[index] * 3 : 3] = index
    choice = node.constant(np.broadcast_to(stream, (1, 1, 1, len(stream))), np.int64)
    tables = []
    for table in (cos, sin):
        angles = node.add(Gather(), table, positions)  # [3, N, L, angles]
        shape = node.add(Concat(axis=0), _ints(node, 1), node.add(Shape(start=1), angles))
        chosen = node.add(GatherElements(axis=0), angles, node.add(Expand(), choice, shape))
        tables.append(node.add(Squeeze(), chosen, _ints(node, 0)))
    heads, rotated = node.attribute("num_heads", int, 0), node.attribute("rotary_embedding_dim", int, 0)
    if not heads and x.rank != 4:
        width = x.shape[-1] if x.rank else None
        if not isinstance(width, int):
            node.fail("needs num_heads where the shape of its input isn't known")
        heads = width // (2 * len(stream))
    op = RotaryEmbedding(interleaved=node.attribute("interleaved", bool, False), num_heads=heads, rotary_embedding_dim=rotated)
    return node.add(op, x, *tables)


@importer("DecoderMaskedMultiHeadAttention", domain=DOMAIN)
def decoder_masked_multi_head_attention(
    node: OnnxNode,
    q: Value,
    k: Value | None = None,
    v: Value | None = None,
    mask: Value | None = None,
    attention_bias: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    past_length: Value | None = None,
    beam_width: Value | None = None,
    cache_indirection: Value | None = None,
    bias: Value | None = None,
):
    """MultiHeadAttention of one new token, with its inputs in another order; past keys and values have room for the new ones."""
    _refuse(node, "output_qk", cache_indirection=cache_indirection)
    if not node.attribute("past_present_share_buffer", bool, False):
        return multi_head_attention(node, q, k, v, bias, mask, attention_bias, past_key, past_value)
    if past_key is None or past_value is None or past_length is None or k is None or v is None:
        node.fail("needs q, k and v apart, and past keys, values and their number where past_present_share_buffer is set")
    if bias is not None:
        q, k, v = _biased(node, bias, q, k, v, only_q=False)
    place = node.add(Reshape(), node.add(Cast(to=_INT64), past_length), _ints(node, -1))
    places = node.add(Expand(), place, node.add(Shape(end=1), q))
    heads = _ints(node, 0, 0, node.attribute("num_heads", int), -1)
    total = node.add(Add(), place, _ints(node, 1))
    present, seen = [], []
    for new, past in ((k, past_key), (v, past_value)):
        new = node.add(Transpose(perm=(0, 2, 1, 3)), node.add(Reshape(), new, heads))
        present.append(node.add(TensorScatter(axis=-2), past, new, places))
        filled = node.add(Slice(), present[-1], _ints(node, 0), total, _ints(node, 2))
        seen.append(_flat_heads(node, node.add(Transpose(perm=(0, 2, 1, 3)), filled)))
    return multi_head_attention(node, q, *seen, None, mask, attention_bias)[0], *present


@importer("GroupQueryAttention", domain=DOMAIN)
def group_query_attention(node: OnnxNode, q: Value, k: Value | None, v: Value | None, *others: Value | None):
    names = ("k_scale", "v_scale", "q_norm_weight", "k_norm_weight", "query_seqlens")
    more = dict(zip(names, others[9:], strict=False))
    q_norm, k_norm = more.pop("q_norm_weight", None), more.pop("k_norm_weight", None)
    _refuse(node, "sliding_window_cache", **more)
    op = node.op(GroupQueryAttention, scale=node.attribute("scale", float, 0.0) or None)
    if q_norm is not None and k_norm is not None:
        if k is None:
            q, k, v = _split_heads(node, op, q, q_norm)
        q, k = _normalized_heads(node, "q", q, q_norm), _normalized_heads(node, "k", k, k_norm)
    return node.add(op, q, k, v, *others[:9], outputs=4 if op.qk_output else 3)


def _split_heads(node: OnnxNode, op: GroupQueryAttention, packed: Value, norm: Value) -> list[Value]:
    """q, k and v of [N, L, (H + 2 Hkv) * D]; `norm` is [D]."""
    heads = node.constant([op.num_heads, op.kv_num_heads, op.kv_num_heads], np.int64)
    return node.add(Split(num_outputs=3, axis=-1), packed, node.add(Mul(), heads, node.add(Shape(), norm)), outputs=3)


def _normalized_heads(node: OnnxNode, name: str, x: Value, weight: Value) -> Value:
    """[N, L, H * D] with each head divided by its root mean square, times the weight [D]."""
    epsilon = node.attribute(f"{name}_norm_epsilon", float, node.attribute("qk_norm_epsilon", float, 1e-6))
    shape = node.add(Concat(axis=0), _ints(node, 0, 0, -1), node.add(Shape(), weight))
    return _flat_heads(node, node.add(RMSNormalization(epsilon=epsilon), node.add(Reshape(), x, shape), weight))
