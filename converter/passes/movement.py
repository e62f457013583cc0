"""Simplifies chains of data movement.

Two Transposes become one, or none; a Reshape of a Reshape needs the last one only; a Squeeze and an Unsqueeze of the same axes cancel. What
moves the result of functions of single elements can move their argument: done where that is a constant, which folding then moves, or
another Transpose, which may cancel. A Concat takes in the Concats that it is made of. Slices that take all parts of a tensor are a Split.
"""

from __future__ import annotations

from mnnx.backends import elementwise
from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.passes.base import Rule, RulePass, is_pure, made_by, only_user, substitute, substitute_by
from mnnx.converter.passes.slices import SplitOfSlices
from mnnx.converter.passes.transposed_dims import PlaceOfSplit, SplitBeforeTranspose, TakeBeforeTranspose, TransposeOfOneMore
from mnnx.schema.ops.shape import Concat, Flatten, Reshape, Squeeze, Transpose, Unsqueeze

_MOVES = (Flatten, Reshape, Squeeze, Transpose, Unsqueeze)


class MergeTransposes(Rule):
    """Transpose(p) then Transpose(q) is Transpose(p[q])."""

    name = "Transpose of Transpose"
    ops = (Transpose,)

    def match(self, node: Node, graph: Graph) -> str | None:
        first = made_by(node.inputs[0], Transpose)
        return None if first is not None and first.op.perm and node.op.perm else "not two Transposes with permutations"

    def rewrite(self, node: Node, graph: Graph) -> None:
        first = node.inputs[0].producer
        perm = tuple(first.op.perm[i] for i in node.op.perm)
        if perm == tuple(range(len(perm))):
            substitute_by(graph, node, first.inputs[0])
        else:
            substitute(graph, node, Node(Transpose(perm=perm), first.inputs, node.outputs, node.name))


class MergeReshapes(Rule):
    """What is reshaped again in full needs no shape before that."""

    name = "Reshape of Reshape"
    ops = (Reshape,)

    def match(self, node: Node, graph: Graph) -> str | None:
        if made_by(node.inputs[0], Reshape, Flatten, Squeeze, Unsqueeze) is None:
            return "not a Reshape of a Reshape"
        shape = node.inputs[1].constant
        if shape is None or (not node.op.allowzero and 0 in shape):
            return "its shape is computed, or copies a dim of the first result"
        return None

    def rewrite(self, node: Node, graph: Graph) -> None:
        node.set_input(0, node.inputs[0].producer.inputs[0])


class CancelSqueezes(Rule):
    """An Unsqueeze of a Squeeze with the same axes, or the other way round."""

    name = "Squeeze and Unsqueeze"
    ops = (Squeeze, Unsqueeze)

    def match(self, node: Node, graph: Graph) -> str | None:
        first = made_by(node.inputs[0], Unsqueeze if isinstance(node.op, Squeeze) else Squeeze)
        if first is None:
            return "not of the opposite op"
        axes = [other.inputs[1].constant if len(other.inputs) > 1 and other.inputs[1] is not None else None for other in (first, node)]
        if any(array is None for array in axes):
            return "the axes are not given, or computed"
        one, other = (sorted(array.reshape(-1).tolist()) for array in axes)
        return None if one == other else "the axes differ"

    def rewrite(self, node: Node, graph: Graph) -> None:
        substitute_by(graph, node, node.inputs[0].producer.inputs[0])


class MoveBeforeFunction(Rule):
    """move(f(x)) = f(move(x)) where f computes each element by itself. Starts from what moves."""

    name = "movement before a function"
    ops = _MOVES

    def match(self, node: Node, graph: Graph) -> str | None:
        function = node.inputs[0].producer
        if function is None or only_user(node.inputs[0], graph) is not node:
            return "not of a node's result that is used once"
        if any(value is not None and value.constant is None for value in node.inputs[1:]):
            return "where it moves is computed"
        if _argument(function) is None:
            return "not of a function of single elements"
        source = self._source(function, graph)
        if source.constant is None and not (isinstance(node.op, Transpose) and made_by(source, Transpose) is not None):
            return "the function is neither of a constant nor, before a Transpose, of another one"
        return None

    def rewrite(self, node: Node, graph: Graph) -> None:
        function, result = node.inputs[0].producer, node.outputs[0]
        argument = _argument(function)
        moved = Value(f"{argument.name}/{result.name}", argument.dtype, result.shape)
        index = graph.nodes.index(function)
        graph.nodes[index] = Node(node.op, [argument, *node.inputs[1:]], [moved], node.name)
        operands = [moved if value is argument else value for value in function.inputs]
        substitute(graph, node, Node(function.op, operands, node.outputs, function.name))
        function.detach()

    def _source(self, function: Node, graph: Graph) -> Value:
        """What a chain of such functions, each used once, starts from."""
        value = _argument(function)
        while value.producer is not None and only_user(value, graph) is not None and _argument(value.producer) is not None:
            value = _argument(value.producer)
        return value


def _argument(node: Node) -> Value | None:
    """The operand with dims of a node that computes each element by itself, where all its other operands are scalars."""
    if type(node.op) not in elementwise.TABLE or not is_pure(node.op) or len(node.outputs) != 1:
        return None
    with_dims = [value for value in node.inputs if value is not None and value.rank != 0]
    return with_dims[0] if len(with_dims) == 1 and with_dims[0].rank is not None else None


class FlattenConcat(Rule):
    """A Concat of Concats along the same axis."""

    name = "Concat of Concat"
    ops = (Concat,)

    def match(self, node: Node, graph: Graph) -> str | None:
        return None if any(self._inner(value, node, graph) for value in node.inputs) else "not of a Concat along its axis that is used once"

    def rewrite(self, node: Node, graph: Graph) -> None:
        inner = [self._inner(value, node, graph) for value in node.inputs]
        parts = [part for value, made in zip(node.inputs, inner, strict=True) for part in (made.inputs if made else [value])]
        substitute(graph, node, Node(node.op, parts, node.outputs, node.name))
        for made in filter(None, inner):
            graph.remove(made)

    def _inner(self, value: Value | None, node: Node, graph: Graph) -> Node | None:
        made = made_by(value, Concat)
        return made if made is not None and made.op.axis == node.op.axis and only_user(value, graph) is node else None


class MovementSimplification(RulePass):
    """Merges and cancels Transposes, Reshapes, Squeezes, Concats and Slices, and moves constants before functions are computed of them."""

    name = "movement"
    level = 2
    rules = (
        MergeTransposes(),
        MergeReshapes(),
        CancelSqueezes(),
        SplitBeforeTranspose(),
        TransposeOfOneMore(),
        PlaceOfSplit(),
        TakeBeforeTranspose(),
        MoveBeforeFunction(),
        FlattenConcat(),
        SplitOfSlices(),
    )
