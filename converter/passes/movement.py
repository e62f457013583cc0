"""Simplifies chains of data movement: two Transposes become one, or none; a Reshape of a Reshape needs the last one only."""

from __future__ import annotations

from mnnx.converter.graph import Graph, Node
from mnnx.converter.passes.base import Rule, RulePass, made_by, substitute
from mnnx.schema.ops.shape import Flatten, Identity, Reshape, Squeeze, Transpose, Unsqueeze


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
        op = Identity() if perm == tuple(range(len(perm))) else Transpose(perm=perm)
        substitute(graph, node, Node(op, first.inputs, node.outputs, node.name))


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


class MovementSimplification(RulePass):
    """Makes one Transpose of two, or none, and leaves out a Reshape before another."""

    name = "movement"
    level = 2
    rules = (MergeTransposes(), MergeReshapes())
