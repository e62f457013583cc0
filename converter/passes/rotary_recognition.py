"""Recognises rotary position embeddings that exporters write out: x * cos + rotated(x) * sin, where rotated((a, b)) is (-b, a).

RotaryEmbedding takes half of cos and sin, so their two halves must be equal. Where only the first columns are rotated, and joined with the
others, it takes all of them.
"""

from __future__ import annotations

import numpy as np

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.passes.base import RulePass, SearchRule, made_by, only_user, other_input, substitute
from mnnx.converter.passes.rotary_tables import Half, half_of
from mnnx.schema.ops.arithmetic import Add, Mul, Neg
from mnnx.schema.ops.attention import RotaryEmbedding
from mnnx.schema.ops.shape import Concat, Split
from mnnx.schema.ops.slicing import Slice

_FLOAT32 = np.dtype(np.float32)  # others have no native kernel everywhere


class RecognizeRotary(SearchRule):
    """Starts from the sum, of x [N, H, L, D]."""

    name = "RotaryEmbedding"
    ops = (Add,)

    def rewrite_found(self, node: Node, graph: Graph, found: tuple[Value, Half, Half]) -> None:
        x, *halves = found
        tables = [half.compute(node, graph) for half in halves]
        substitute(graph, node, Node(RotaryEmbedding(), [x, *tables], node.outputs, node.name))

    def find(self, node: Node, graph: Graph) -> tuple[Value, Half, Half] | str:
        """x and the halves of cos and sin."""
        parts = self._parts(node)
        if parts is None:
            return "not x * cos + rotated(x) * sin, with x of rank 4 and an even number of columns"
        x, rotated, cos, sin = parts
        if any(only_user(value, graph) is None for value in (*node.inputs, rotated)):
            return "a part of it is used elsewhere"
        if any(value.dtype != _FLOAT32 for value in (x, cos, sin)):
            return "not known to be of float32"
        halves = half_of(cos, x), half_of(sin, x)
        if (reason := next((half for half in halves if isinstance(half, str)), None)) is not None:
            return reason
        return (x, *halves) if (1,) * (4 - cos.rank) + cos.shape == (1,) * (4 - sin.rank) + sin.shape else "cos and sin differ in shape"

    def _parts(self, node: Node) -> tuple[Value, Value, Value, Value] | None:
        """x, rotated(x), cos and sin."""
        for one, other in (node.inputs, node.inputs[::-1]):
            turned, plain = made_by(one, Mul), made_by(other, Mul)
            if turned is None or plain is None:
                continue
            for rotated, sin in (turned.inputs, turned.inputs[::-1]):
                x = _unrotated(rotated)
                if x is not None and x in plain.inputs:
                    return x, rotated, other_input(plain, x), sin
        return None


class TakeInOtherColumns(SearchRule):
    """The first columns, rotated, and those behind them, as they are."""

    name = "columns that aren't rotated"
    ops = (Concat,)

    def find(self, node: Node, graph: Graph) -> tuple[Value, Node, int] | str:
        """What is rotated, by which node, and how many columns of it."""
        reason = "not the first columns of a tensor, rotated and used once, and the others"
        rotary = made_by(node.inputs[0], RotaryEmbedding)
        if rotary is None or len(node.inputs) != 2 or node.op.axis not in (-1, 3) or rotary.op.num_heads or rotary.op.rotary_embedding_dim:
            return reason
        (x, taken), (same, rest) = _columns_of(rotary.inputs[0]), _columns_of(node.inputs[1])
        if x is None or x is not same or only_user(node.inputs[0], graph) is None:
            return reason
        return (x, rotary, len(taken)) if taken == range(len(taken)) and rest == range(len(taken), x.shape[-1]) else reason

    def rewrite_found(self, node: Node, graph: Graph, found: tuple[Value, Node, int]) -> None:
        x, rotary, count = found
        op = rotary.op.replace(rotary_embedding_dim=count)
        substitute(graph, node, Node(op, [x, *rotary.inputs[1:]], node.outputs, rotary.name))


def _unrotated(value: Value) -> Value | None:
    """x where `value` is (-b, a) of the halves (a, b) of x's rows."""
    joined = made_by(value, Concat)
    if joined is None or len(joined.inputs) != 2 or joined.op.axis not in (-1, 3):
        return None
    negated, first = made_by(joined.inputs[0], Neg), joined.inputs[1]
    if negated is None:
        return None
    (x, taken), (same, others) = _columns_of(first), _columns_of(negated.inputs[0])
    if x is None or x is not same:
        return None
    half = x.shape[-1] // 2
    return x if (taken, others) == (range(half), range(half, 2 * half)) and x.shape[-1] == 2 * half else None


def _columns_of(value: Value) -> tuple[Value | None, range]:
    """Which columns of what, of rank 4 and with a known number of them, a value is."""
    node = made_by(value, Split, Slice)
    x, *numbers = node.inputs if node is not None else (None,)
    columns = x.shape[-1] if x is not None and x.rank == 4 else None
    given = [one for one in numbers if one is not None]
    if not isinstance(columns, int) or any(one.constant is None for one in given):
        return None, range(0)
    lists = [one.constant.reshape(-1).tolist() for one in given]
    if isinstance(node.op, Split):
        count, place = len(node.outputs), node.outputs.index(value)
        if node.op.axis not in (-1, 3) or (not lists and columns % count):
            return None, range(0)
        sizes = lists[0] if lists else [columns // count] * count
        start = sum(sizes[:place])
        return x, range(start, start + sizes[place])
    if len(given) < len(numbers) or len(lists) < 3:
        return None, range(0)
    starts, ends, axes, steps = (*lists, [1])[:4]
    return (x, range(columns)[starts[0] : ends[0]]) if axes in ([-1], [3]) and steps == [1] else (None, range(0))


class RotaryRecognition(RulePass):
    """Makes RotaryEmbedding of the smaller ops in which exporters write it."""

    name = "rotary-recognition"
    level = 2
    rules = (RecognizeRotary(), TakeInOtherColumns())
