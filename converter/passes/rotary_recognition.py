"""Recognises rotary position embeddings that exporters write out: x * cos + rotated(x) * sin, where rotated((a, b)) is (-b, a).

RotaryEmbedding takes half of cos and sin, so their two halves must be equal. They are where they are constants of equal halves, rows of
such a constant, or functions, element by element, of a Concat of one tensor and itself; the functions are then computed of that tensor.
"""

from __future__ import annotations

import numpy as np

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.passes.base import Rule, RulePass, made_by, only_user, other_input, scalar, substitute
from mnnx.schema.model import Dim
from mnnx.schema.ops.arithmetic import Add, Cos, Mul, Neg, Sin
from mnnx.schema.ops.attention import RotaryEmbedding
from mnnx.schema.ops.base import Op
from mnnx.schema.ops.cast import Cast
from mnnx.schema.ops.indexing import Gather
from mnnx.schema.ops.shape import Concat, Split, Unsqueeze
from mnnx.schema.ops.slicing import Slice
from mnnx.schema.records import Row

_FLOAT32 = np.dtype(np.float32)  # others have no native kernel everywhere


class _Step(Row):
    """An op, its inputs but the first, and the dtype of its result."""

    op: Op
    operands: tuple[Value, ...]
    dtype: np.dtype | None


class _Half(Row):
    """Half of cos or sin, [N, L, D/2]: what it is computed of, and the steps to it, the last one first."""

    start: Value
    steps: tuple[_Step, ...] = ()


class RecognizeRotary(Rule):
    """Starts from the sum, of x [N, H, L, D]."""

    name = "RotaryEmbedding"
    ops = (Add,)

    def match(self, node: Node, graph: Graph) -> str | None:
        found = self._find(node, graph)
        return found if isinstance(found, str) else None

    def rewrite(self, node: Node, graph: Graph) -> None:
        x, *halves = self._find(node, graph)
        tables = [_computed(half, node, graph) for half in halves]
        substitute(graph, node, Node(RotaryEmbedding(), [x, *tables], node.outputs, node.name))

    def _find(self, node: Node, graph: Graph) -> tuple[Value, _Half, _Half] | str:
        """x and the halves of cos and sin."""
        parts = self._parts(node)
        if parts is None:
            return "not x * cos + rotated(x) * sin, with x of rank 4 and an even number of columns"
        x, rotated, cos, sin = parts
        if any(only_user(value, graph) is None for value in (*node.inputs, rotated)):
            return "a part of it is used elsewhere"
        if any(value.dtype != _FLOAT32 for value in (x, cos, sin)):
            return "not known to be of float32"
        if None in x.shape:
            return "the number of sequences or positions isn't known"
        halves = _half(cos, x), _half(sin, x)
        return next((half for half in halves if isinstance(half, str)), None) or (x, *halves)

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


def _unrotated(value: Value) -> Value | None:
    """x where `value` is (-b, a) of the halves (a, b) of x's rows."""
    joined = made_by(value, Concat)
    if joined is None or len(joined.inputs) != 2 or joined.op.axis not in (-1, 3):
        return None
    negated, first = made_by(joined.inputs[0], Neg), joined.inputs[1]
    if negated is None:
        return None
    (x, start), (same, middle) = _half_of(first), _half_of(negated.inputs[0])
    return x if x is same and (start, middle) == (0, 1) else None


def _half_of(value: Value) -> tuple[Value | None, int]:
    """Which half of the rows of what, of rank 4, a value is: 0 or 1."""
    node = made_by(value, Split, Slice)
    x, *numbers = node.inputs if node is not None else (None,)
    columns = x.shape[-1] if x is not None and x.rank == 4 else None
    given = [one for one in numbers if one is not None]
    if not isinstance(columns, int) or columns % 2 or any(one.constant is None for one in given):
        return None, 0
    lists = [one.constant.reshape(-1).tolist() for one in given]
    if isinstance(node.op, Split):
        halved = node.op.num_outputs == 2 and lists in ([], [[columns // 2] * 2])
        return (x, node.outputs.index(value)) if halved and node.op.axis in (-1, 3) else (None, 0)
    if len(given) < len(numbers) or len(lists) < 3:
        return None, 0
    starts, ends, axes, steps = (*lists, [1])[:4]
    if axes not in ([-1], [3]) or steps != [1]:
        return None, 0
    taken = range(columns)[starts[0] : ends[0]]
    return next(((x, half) for half in (0, 1) if taken == range(columns)[half * columns // 2 :][: columns // 2]), (None, 0))


def _half(table: Value, x: Value) -> _Half | str:
    """Half of cos or sin, [N, 1, L, D] or what broadcasts to x [N, H, L, D] as that does."""
    batch, _, length, columns = x.shape
    wanted = (batch, length, columns // 2)
    if table.constant is not None:
        half = _equal_half(table)
        if half is None or (1,) * (4 - table.rank) + table.shape != (batch, 1, length, columns):
            return "cos or sin is no constant of equal halves, the same for all heads, with rows for each sequence"
        return _Half(Value(half.name, constant=half.constant.reshape(wanted)))
    steps: list[_Step] = []
    heads, value = False, table
    while (node := made_by(value, Unsqueeze, Cos, Sin, Cast, Mul)) is not None:
        value, *operands = node.inputs
        if isinstance(node.op, Unsqueeze):
            if heads or not _adds_heads(node):
                break
            heads = True
            continue
        if isinstance(node.op, Mul):
            value, *operands = node.inputs if scalar(node.inputs[1]) is not None else node.inputs[::-1]
            if scalar(operands[0]) is None or operands[0].rank > 1:
                break
        steps.append(_Step(node.op, tuple(operands), node.outputs[0].dtype))
    found = _rows(value, columns) if heads else _doubled(value)
    if found is None:
        return "cos or sin isn't known to have equal halves and to be the same for all heads"
    half, shape = found
    return half._replace(steps=(*steps, *half.steps)) if shape == wanted else "cos or sin isn't known to have rows for each sequence"


def _rows(value: Value, columns: int) -> tuple[_Half, tuple[Dim, ...] | None] | None:
    """Half of [N, L, D], where both halves are equal, and its shape."""
    gather = made_by(value, Gather)
    if gather is None:
        half = _twice(value, 2)
        return None if half is None else (_Half(half), half.shape)
    table, indices = gather.inputs
    half = _equal_half(table)
    if half is None or half.shape[1:] != (columns // 2,) or gather.op.axis not in (0, -2) or indices.shape is None:
        return None
    return _Half(half, (_Step(gather.op, (indices,), table.dtype),)), (*indices.shape, columns // 2)


def _doubled(value: Value) -> tuple[_Half, tuple[Dim, ...] | None] | None:
    """As `_rows`, of [N, 1, L, D]."""
    added = made_by(_twice(value, 3), Unsqueeze)
    return (_Half(added.inputs[0]), added.inputs[0].shape) if added is not None and _adds_heads(added) else None


def _twice(value: Value, axis: int) -> Value | None:
    """What `value` is two of, side by side along the last axis, which is `axis`."""
    joined = made_by(value, Concat)
    if joined is None or len(joined.inputs) != 2 or joined.inputs[0] is not joined.inputs[1] or joined.op.axis not in (-1, axis):
        return None
    return joined.inputs[0]


def _adds_heads(node: Node) -> bool:
    """Whether an Unsqueeze makes [N, 1, L, D] of [N, L, D]."""
    axes = node.inputs[1].constant
    return axes is not None and node.inputs[0].rank == 3 and axes.reshape(-1).tolist() in ([1], [-3])


def _equal_half(table: Value) -> Value | None:
    """Half of the rows of a constant, where both halves are equal."""
    if table.constant is None or not 2 <= table.rank <= 4 or table.shape[-1] % 2:
        return None
    first, second = np.split(table.constant, 2, axis=-1)
    return Value(f"{table.name}/half", constant=np.ascontiguousarray(first)) if np.array_equal(first, second) else None


def _computed(half: _Half, node: Node, graph: Graph) -> Value:
    """Half of cos or sin, by nodes before `node`."""
    value = half.start
    for step in reversed(half.steps):
        result = Value(f"{node.outputs[0].name}/{step.op.name}", step.dtype)
        graph.nodes.insert(graph.nodes.index(node), Node(step.op, [value, *step.operands], [result]))
        value = result
    return value


class RotaryRecognition(RulePass):
    """Makes RotaryEmbedding of the smaller ops in which exporters write it."""

    name = "rotary-recognition"
    level = 2
    rules = (RecognizeRotary(),)
