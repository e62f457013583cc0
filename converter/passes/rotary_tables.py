"""Half of the tables of cos and sin that exporters write for rotary position embeddings, where both halves of each row are equal.

They are in constants of equal halves, in a Concat of one tensor and itself along the rows, and in what is computed of such a tensor without
regard to its columns: element by element, or by taking and adding rows. All that is then computed of the half.
"""

from __future__ import annotations

import numpy as np

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.inference import infer_node
from mnnx.converter.passes.base import made_by, scalar
from mnnx.converter.shape_values import constant_ints
from mnnx.schema.ops.arithmetic import Cos, Mul, Neg, Sin
from mnnx.schema.ops.base import Op
from mnnx.schema.ops.cast import Cast
from mnnx.schema.ops.indexing import Gather
from mnnx.schema.ops.shape import Concat, Squeeze, Unsqueeze
from mnnx.schema.ops.slicing import Slice
from mnnx.schema.records import Row

_ELEMENTWISE = (Cast, Cos, Mul, Neg, Sin)
_WALKED = (*_ELEMENTWISE, Gather, Slice, Squeeze, Unsqueeze)


class _Step(Row):
    """An op, and its inputs but the first."""

    op: Op
    operands: tuple[Value | None, ...]


class Half(Row):
    """What half of a table is computed of, and the steps to it, the last one first."""

    start: Value
    steps: tuple[_Step, ...] = ()

    def compute(self, node: Node, graph: Graph) -> Value:
        """Adds nodes that compute it, before `node`."""
        value = self.start
        for step in reversed(self.steps):
            result = Value(f"{node.outputs[0].name}/{step.op.name}")
            new = Node(step.op, [value, *step.operands], [result])
            graph.nodes.insert(graph.nodes.index(node), new)
            infer_node(new)
            value = result
        return value


def half_of(table: Value, x: Value) -> Half | str:
    """Half of cos or sin, as [N or 1, L, D/2]; `table` broadcasts to x [N, H, L, D] and is the same for all heads."""
    batch, _, length, columns = x.shape
    if table.shape is None or not 2 <= table.rank <= 4:
        return "the rank of cos or sin isn't 2, 3 or 4, or isn't known"
    shape = (1,) * (4 - table.rank) + table.shape
    if length is None or shape[1:] != (1, length, columns) or (shape[0] != 1 and (shape[0] is None or shape[0] != batch)):
        return "cos or sin isn't known to have a row for each position, the same for all heads"
    half = _half(table)
    if half is None:
        return "cos or sin isn't known to have equal halves"
    if half.start.constant is not None and not half.steps:
        array = half.start.constant
        return Half(Value(half.start.name, constant=array.reshape(shape[0], *array.shape[-2:])))
    if table.rank == 4:
        place = next((i for i, step in enumerate(half.steps) if not isinstance(step.op, _ELEMENTWISE)), len(half.steps))
        inner = half.steps[place:]
        if inner and isinstance(inner[0].op, Unsqueeze) and constant_ints(inner[0].operands[0]) in ([1], [-3]):
            return half._replace(steps=half.steps[:place] + inner[1:])
        return _after(half, Squeeze(), 1)
    return _after(half, Unsqueeze(), 0) if table.rank == 2 else half


def _after(half: Half, op: Op, axis: int) -> Half:
    axes = Value(f"{half.start.name}/{op.name}/axes", constant=np.array([axis], np.int64))
    return half._replace(steps=(_Step(op, (axes,)), *half.steps))


def _half(value: Value) -> Half | None:
    """Half of the columns, the last axis, of a value whose halves are equal."""
    steps: list[_Step] = []
    while True:
        if value.constant is not None:
            half = _equal_half(value)
            break
        joined = made_by(value, Concat)
        if joined is not None:
            twice = len(joined.inputs) == 2 and joined.inputs[0] is joined.inputs[1] and joined.op.axis in (-1, (value.rank or 0) - 1)
            half = joined.inputs[0] if twice else None
            break
        step = _step(value)
        if step is None:
            return None
        value, found = step
        steps.append(found)
    if half is not None and made_by(half, Unsqueeze) is not None and (step := _step(half)) is not None:
        half, found = step
        steps.append(found)
    return None if half is None else Half(half, tuple(steps))


def _step(value: Value) -> tuple[Value, _Step] | None:
    """The node that makes a value without regard to its columns: its first operand, and the rest."""
    node = made_by(value, *_WALKED)
    if node is None or value.rank is None or node.inputs[0] is None or node.inputs[0].rank is None:
        return None
    first, *operands = node.inputs
    rank = first.rank
    match node.op:
        case Mul():
            first, *operands = node.inputs if scalar(node.inputs[1]) is not None else node.inputs[::-1]
            keeps = scalar(operands[0]) is not None and operands[0].rank <= 1
        case Gather():
            keeps = rank >= 2 and node.op.axis not in (-1, rank - 1)
        case Slice():
            axes = constant_ints(operands[2]) if len(operands) > 2 else None
            keeps = axes is not None and not {-1, rank - 1} & set(axes)
        case Squeeze() | Unsqueeze():
            axes, largest = constant_ints(operands[0]) if operands else None, max(rank, value.rank)
            keeps = axes is not None and not {-1, largest - 1} & set(axes)
        case _:
            keeps = True
    return (first, _Step(node.op, tuple(operands))) if keeps else None


def _equal_half(table: Value) -> Value | None:
    """Half of the columns of a constant, where both halves are equal."""
    if table.rank < 1 or table.shape[-1] % 2:
        return None
    first, second = np.split(table.constant, 2, axis=-1)
    return Value(f"{table.name}/half", constant=np.ascontiguousarray(first)) if np.array_equal(first, second) else None
