"""Makes a converter graph of a model that was read: the inverse of `writer.lower`."""

from __future__ import annotations

from mnnx.converter.graph import Graph, Node, Value
from mnnx.schema import model as schema
from mnnx.schema.ops.base import Op


def lift(source: schema.Graph) -> Graph:
    """The graph, with those of its nodes' subgraphs. Constants stay views of the model's file."""
    graph = Graph(source.name)
    values = [Value(v.name, v.dtype, v.shape, v.constant, v.kind) for v in source.values]
    graph.inputs = [values[i] for i in source.inputs]
    for node in source.nodes:
        inputs, outputs = ([None if i < 0 else values[i] for i in indices] for indices in (node.inputs, node.outputs))
        graph.nodes.append(Node(_lift_op(node.op), inputs, outputs, node.name))
    graph.outputs = [values[i] for i in source.outputs]
    return graph


def _lift_op(op: Op) -> Op:
    subgraphs = {key: lift(getattr(op, key)) for key in op.subgraphs}
    return op.replace(**subgraphs) if subgraphs else op
