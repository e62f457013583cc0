"""Lowers the converter's graph to the model that is written: values become indices, subgraphs become graphs of the model."""

from __future__ import annotations

import numpy as np

from mnnx.converter.graph import Graph, Value, unique_names
from mnnx.schema import model as schema
from mnnx.schema.ops.base import Op


def lower(graph: Graph) -> list[schema.Graph]:
    """The main graph first, then every subgraph."""
    graphs: list[schema.Graph] = []
    _lower(graph, graphs)
    return graphs


def _lower(graph: Graph, graphs: list[schema.Graph]) -> schema.Graph:
    position = len(graphs)
    graphs.append(None)  # keeps the place: the main graph stands first
    indices: dict[int, int] = {}
    values: list[schema.Value] = []
    names = unique_names(graph)
    for value in graph.values():
        indices[id(value)] = len(values)
        values.append(schema.Value(names[id(value)], value.dtype, value.shape, value.kind, _contiguous(value)))
    nodes = []
    for node in graph.nodes:
        inputs = tuple(-1 if v is None else indices[id(v)] for v in node.inputs)
        outputs = tuple(-1 if v is None else indices[id(v)] for v in node.outputs)
        nodes.append(schema.Node(node.name, _lower_op(node.op, graphs), inputs, outputs))
    lowered = schema.Graph(
        graph.name, values, tuple(indices[id(v)] for v in graph.inputs), tuple(indices[id(v)] for v in graph.outputs), nodes
    )
    graphs[position] = lowered
    return lowered


def _lower_op(op: Op, graphs: list[schema.Graph]) -> Op:
    subgraphs = {key: _lower(getattr(op, key), graphs) for key in op.subgraphs}
    return op.replace(**subgraphs) if subgraphs else op


def _contiguous(value: Value) -> np.ndarray | None:
    return None if value.constant is None else np.ascontiguousarray(value.constant).reshape(value.constant.shape)
