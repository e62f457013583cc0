"""Reads the operands of ONNX's Attention where they lie before Transposes, and writes its result behind one.

PyTorch's exporter writes [N, L, H * D] → Reshape → [N, L, H, D] → Transpose → Attention → Transpose → Reshape. Attention itself takes all
of its operands as [N, L, H * D]; where some of them come in another way, `mnnx::FusedAttention` takes the perms of the others.
"""

from __future__ import annotations

import math

import numpy as np

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.inference import infer_node
from mnnx.converter.passes.base import SearchRule, made_by, only_user, substitute
from mnnx.converter.passes.repeated_heads import keeps_rows, unmoved
from mnnx.schema.model import Dim
from mnnx.schema.ops.attention import Attention, FusedAttention
from mnnx.schema.ops.shape import Reshape, Transpose
from mnnx.schema.records import Row

_FLOAT32, _BOOL = np.dtype(np.float32), np.dtype(bool)
_HEADS_OUT = (0, 2, 1, 3)


class _Packed(Row):
    """q, k and v as [N, L, H, D], and the Transpose behind."""

    operands: tuple[Value, Value, Value]
    transpose: Node


class PackHeads(SearchRule):
    """Attention between Transposes of heads and lengths: it takes and gives [N, L, H * D]."""

    name = "heads in rows"
    ops = (Attention,)

    def find(self, node: Node, graph: Graph) -> _Packed | str:
        moved = [made_by(value, Transpose) for value in node.inputs[:3]]
        if any(one is None or one.op.perm != _HEADS_OUT for one in moved):
            return "q, k and v aren't all behind a Transpose of heads and lengths"
        user = only_user(node.outputs[0], graph)
        if user is None or not isinstance(user.op, Transpose) or user.op.perm != _HEADS_OUT:
            return "no Transpose of heads and lengths stands behind it"
        operands = tuple(one.inputs[0] for one in moved)
        if any(value.rank != 4 or not all(isinstance(dim, int) and dim > 0 for dim in value.shape[2:]) for value in operands):
            return "its heads and their sizes aren't known"
        return _Packed(operands, user)

    def rewrite_found(self, node: Node, graph: Graph, found: _Packed) -> None:
        q, k, v = found.operands
        rows = [_packed(value, node, graph) for value in found.operands]
        apart = found.transpose.outputs[0]
        flat = only_user(apart, graph)
        if flat is not None and isinstance(flat.op, Reshape) and _is_packed(flat.outputs[0], apart):
            y = flat.outputs[0]
            graph.remove(flat)
            graph.remove(found.transpose)
        else:
            y = Value(f"{apart.name}/rows")
            shape = Value(f"{apart.name}/shape", constant=np.array([0, 0, q.shape[2], v.shape[3]], np.int64))
            substitute(graph, found.transpose, Node(Reshape(), [y, shape], [apart], found.transpose.name))
        op = node.op.replace(q_num_heads=q.shape[2], kv_num_heads=k.shape[2])
        new = Node(op, [*rows, *node.inputs[3:]], [y, *node.outputs[1:]], node.name)
        substitute(graph, node, new)
        infer_node(new)


def _packed(x: Value, before: Node, graph: Graph) -> Value:
    """[N, L, H, D] as [N, L, H * D]: what it was made of, or else a Reshape of it before a node."""
    node = made_by(x, Reshape)
    if node is not None and _is_packed(node.inputs[0], x):
        return node.inputs[0]
    shape = Value(f"{x.name}/rows/shape", constant=np.array([0, 0, x.shape[2] * x.shape[3]], np.int64))
    new = Node(Reshape(), [x, shape], [Value(f"{x.name}/rows", x.dtype)])
    graph.nodes.insert(graph.nodes.index(before), new)
    infer_node(new)
    return new.outputs[0]


def _is_packed(rows: Value, x: Value) -> bool:
    """Whether `rows` is known to be x [N, L, H, D] as [N, L, H * D]."""
    return rows.rank == 3 and None not in rows.shape and rows.shape == (*x.shape[:2], x.shape[2] * x.shape[3])


class ReadTransposed(SearchRule):
    """Transposes → Attention → Transpose: FusedAttention with their perms."""

    name = "Transposes around Attention"
    ops = (Attention,)

    def find(self, node: Node, graph: Graph) -> tuple[FusedAttention, list[Value], Node] | str:
        """The op, its operands, and the node whose result it gives."""
        q, k, v, mask, *past = (*node.inputs, None)
        if any(value is not None for value in (*past, *node.outputs[1:])) or is_special(node.op):
            return "it has past or further results, or windows, a cap or another precision"
        if any(value.rank != 4 or value.dtype != _FLOAT32 for value in (q, k, v)):
            return "its operands aren't known to be of float32, with heads in a dim of their own"
        heads, kv_heads, size = q.shape[1], k.shape[1], q.shape[3]
        if not all(isinstance(dim, int) and dim > 0 for dim in (heads, kv_heads, size)):
            return "its heads aren't known"
        if mask is not None and not has_all_keys(mask, k.shape[2]):
            return "its mask isn't known to be of floats or bools, one for each key"
        (q, q_perm), (k, k_perm), (v, v_perm) = (unmoved(value, swapped=False) for value in (q, k, v))
        user = only_user(node.outputs[0], graph)
        moved = user is not None and isinstance(user.op, Transpose) and keeps_rows(user.op.perm)
        if not (q_perm or k_perm or v_perm or moved):
            return "no Transpose of dims before the last one stands around it"
        op = FusedAttention(
            scale=1 / math.sqrt(size) if node.op.scale is None else node.op.scale,
            q_perm=q_perm,
            k_perm=(*k_perm[:2], k_perm[3], k_perm[2]) if k_perm else (0, 1, 3, 2),
            v_perm=v_perm,
            y_perm=user.op.perm if moved else (),
            kv_groups=heads // kv_heads,
            zero_blind=True,
            is_causal=node.op.is_causal,
        )
        return op, [q, k, v] + ([] if mask is None else [mask]), user if moved else node

    def rewrite_found(self, node: Node, graph: Graph, found: tuple[FusedAttention, list[Value], Node]) -> None:
        op, operands, last = found
        substitute(graph, last, Node(op, operands, last.outputs, node.name))
        if last is not node:
            graph.remove(node)


def is_special(op: Attention) -> bool:
    """Whether it has windows, a cap for scores, or another precision than float32."""
    windowed = op.left_window_size >= 0 or op.right_window_size >= 0
    return windowed or op.softcap != 0 or op.softmax_precision not in (None, _FLOAT32)


def has_all_keys(mask: Value, keys: Dim) -> bool:
    """Whether a mask is known to be of floats or bools, with one for each of so many keys."""
    return mask.dtype in (_FLOAT32, _BOOL) and bool(mask.rank) and keys is not None and mask.shape[-1] == keys
