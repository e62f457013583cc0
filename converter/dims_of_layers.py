"""The dtype and dims of what fused layers give: those of some of their inputs, whatever names the dims of the others have."""

from __future__ import annotations

import numpy as np

from mnnx.converter.graph import Node
from mnnx.converter.shape_values import DimOf, Elements, elements
from mnnx.schema.model import Dim
from mnnx.schema.ops.attention import Attention
from mnnx.schema.ops.contrib import AttentionMask, GroupQueryAttention
from mnnx.schema.ops.contrib_experts import MoE
from mnnx.schema.ops.skip_normalization import EmbedLayerNormalization

_LAYERS = (Attention, AttentionMask, EmbedLayerNormalization, GroupQueryAttention, MoE)


def result_of_layer(node: Node) -> tuple[np.dtype | None, list[Dim]] | None:
    """The dtype and dims of a node's first result, as far as they are known; None for other ops, and where ranks are no layer's."""
    if not isinstance(node.op, _LAYERS) or not node.inputs or node.inputs[0] is None:
        return None
    x = node.inputs[0]
    shape = x.shape or ()
    match node.op:
        case MoE() if x.rank:
            return x.dtype, list(shape)
        case EmbedLayerNormalization() if x.rank == 2:
            words = node.inputs[2]
            return words.dtype, [*shape, words.shape[1] if words.rank == 2 else None]
        case GroupQueryAttention() if x.rank == 3:
            packed = node.inputs[1] is None
            heads = node.op.num_heads + 2 * node.op.kv_num_heads if packed else node.op.num_heads
            return x.dtype, [*shape[:2], _scaled(shape[2], node.op.num_heads, heads)]
        case Attention() if x.rank in (3, 4):
            v = node.inputs[2].shape
            width = v[-1] if v is not None and len(v) == x.rank else None
            return x.dtype, [*shape[:-1], width if x.rank == 4 else _scaled(width, node.op.q_num_heads, node.op.kv_num_heads)]
        case AttentionMask() if x.rank:
            return np.dtype(np.float32), _mask(x.rank, *(elements(value) for value in node.inputs[1:]))
    return None


def _scaled(dim: Dim, factor: int, divisor: int) -> Dim:
    """A dim of `divisor` heads for `factor` ones."""
    if factor == divisor:
        return dim
    return dim * factor // divisor if isinstance(dim, int) and divisor > 0 else None


def _mask(rank: int, sizes: Elements | None, total: Elements | None) -> list[Dim]:
    """[N, 1, Lq or 1, total], by the elements of an AttentionMask's sizes and total."""
    batch, queries = sizes.items if sizes is not None and len(sizes.items) == 2 else (None, None)
    keys = total.items[0] if total is not None and len(total.items) == 1 else None
    dims = (batch, 1, queries if rank > 2 else 1, keys)
    return [item.name if isinstance(item, DimOf) else item for item in dims]
