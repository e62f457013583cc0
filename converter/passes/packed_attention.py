"""Attention of the parts of one tensor: where one product gives q, k and v side by side, they are read there, and not split."""

from __future__ import annotations

import math

import numpy as np

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.passes.attention_transposes import has_all_keys, is_special
from mnnx.converter.passes.base import SearchRule, made_by, only_user, substitute
from mnnx.schema.ops.attention import Attention, PackedAttention
from mnnx.schema.ops.shape import Split


class PackParts(SearchRule):
    """Split → Attention of its parts: PackedAttention."""

    name = "parts of one tensor"
    ops = (Attention,)

    def find(self, node: Node, graph: Graph) -> tuple[PackedAttention, list[Value]] | str:
        q, k, v, mask, *past = (*node.inputs, None)
        if any(value is not None for value in (*past, *node.outputs[1:])) or is_special(node.op):
            return "it has past or further results, or windows, a cap or another precision"
        split = made_by(q, Split)
        if split is None or split.outputs != [q, k, v] or any(only_user(value, graph) is not node for value in (q, k, v)):
            return "q, k and v aren't the parts of one Split that nobody else uses"
        x, heads, kv_heads = split.inputs[0], node.op.q_num_heads, node.op.kv_num_heads
        if x.rank != 3 or split.op.axis not in (-1, 2) or x.dtype != np.float32:
            return "not of rows of float32"
        size = q.shape[2] // heads if isinstance(q.shape[2], int) and heads else 0
        if size == 0 or [value.shape[2] for value in (q, k, v)] != [heads * size, kv_heads * size, kv_heads * size]:
            return "its heads aren't known to be of one size"
        if mask is not None and not has_all_keys(mask, k.shape[1]):
            return "its mask isn't known to be of floats or bools, one for each key"
        scale = 1 / math.sqrt(size) if node.op.scale is None else node.op.scale
        op = PackedAttention(q_num_heads=heads, kv_num_heads=kv_heads, scale=scale, is_causal=node.op.is_causal)
        return op, [x] if mask is None else [x, mask]

    def rewrite_found(self, node: Node, graph: Graph, found: tuple[PackedAttention, list[Value]]) -> None:
        split = node.inputs[0].producer
        op, inputs = found
        substitute(graph, node, Node(op, inputs, node.outputs[:1], node.name))
        graph.remove(split)
