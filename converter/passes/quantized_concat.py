"""Concats of bytes in place of the floats that they stand for.

Q(concat(D(x), D(y))) = concat(Q(D(x)), Q(D(y)))        concat(D(x), D(y)) = D(concat(x, y))  where both mean the same
"""

from __future__ import annotations

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.passes.base import Rule, made_by, only_user, substitute
from mnnx.converter.passes.quantized_values import dequantized, quantized
from mnnx.schema.ops.quantization import QuantizeLinear
from mnnx.schema.ops.shape import Concat


def _not_of_bytes(concat: Node) -> str | None:
    parts = [dequantized(value) for value in concat.inputs]
    if any(part is None or not part.per_tensor or part.integers.constant is not None for part in parts):
        return "not all parts are bytes with one constant scale"
    return None


class QuantizeBeforeConcat(Rule):
    """Starts from the QuantizeLinear. What is quantized again is then a copy, or a table of bytes."""

    name = "quantized before the Concat"
    ops = (QuantizeLinear,)

    def match(self, node: Node, graph: Graph) -> str | None:
        if quantized(node) is None:
            return "not a QuantizeLinear to bytes with one constant scale"
        concat = made_by(node.inputs[0], Concat)
        if concat is None:
            return "not of a Concat"
        if only_user(node.inputs[0], graph) is not node:
            return "the Concat is used elsewhere"
        return _not_of_bytes(concat)

    def rewrite(self, node: Node, graph: Graph) -> None:
        concat, dtype = node.inputs[0].producer, quantized(node).zero.dtype
        parts = []
        for place, value in enumerate(concat.inputs):
            small = Value(f"{value.name}/{node.outputs[0].name}/{place}", dtype, value.shape)
            graph.nodes.insert(graph.nodes.index(concat), Node(node.op, [value, *node.inputs[1:]], [small], f"{node.name}/{place}"))
            parts.append(small)
        substitute(graph, node, Node(concat.op, parts, node.outputs, concat.name))
        graph.remove(concat)


class DequantizeAfterConcat(Rule):
    """Starts from the Concat."""

    name = "dequantized after the Concat"
    ops = (Concat,)

    def match(self, node: Node, graph: Graph) -> str | None:
        if (why := _not_of_bytes(node)) is not None:
            return why
        first, *others = (dequantized(value) for value in node.inputs)
        if not all(first.same_as(other) for other in others):
            return "the parts have several scales or zero points"
        if graph.is_output(node.outputs[0]):
            return "its result is an output"
        return None if all(only_user(value, graph) is node for value in node.inputs) else "a part is used elsewhere"

    def rewrite(self, node: Node, graph: Graph) -> None:
        makers = [value.producer for value in node.inputs]
        integers, result = [maker.inputs[0] for maker in makers], node.outputs[0]
        small = Value(f"{result.name}/{integers[0].name}", integers[0].dtype, result.shape)
        place = graph.nodes.index(node)
        graph.nodes[place : place + 1] = [
            Node(node.op, integers, [small], node.name),
            Node(makers[0].op, [small, *makers[0].inputs[1:]], [result], makers[0].name),
        ]
        node.detach()
        for maker in makers:
            graph.remove(maker)
