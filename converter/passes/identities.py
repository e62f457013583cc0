"""Removes ops that give back their input: Identity (an imported Dropout, too), Cast to the dtype at hand, Transpose that moves nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.passes.base import Pass
from mnnx.schema.ops.cast import Cast
from mnnx.schema.ops.shape import Identity, Transpose


class IdentityElimination(Pass):
    """Removes Identity, Dropout, Cast to the dtype at hand and Transpose that moves nothing."""

    name = "identity-elimination"

    def run(self, graph: Graph, counts: Counter[str]) -> None:
        kept = []
        for node in graph.nodes:
            if _gives_back_its_input(node) and self._bypass(node, graph):
                counts[node.op.name] += 1
            else:
                kept.append(node)
        graph.nodes = kept

    def reasons(self, node: Node, graph: Graph) -> Iterator[tuple[str, str]]:
        if not isinstance(node.op, Identity | Cast | Transpose):
            return
        gives_back = _gives_back_its_input(node)
        yield "removal", "an output of the graph has to keep its name" if gives_back else "it isn't known to give back its input"

    def _bypass(self, node: Node, graph: Graph) -> bool:
        """Takes the node out; False where it has to stay so that a graph output keeps its name."""
        source, result = node.inputs[0], node.outputs[0]
        if graph.is_output(result):
            if source.producer is None or source.constant is not None or graph.is_output(source):
                return False
            _rename_output(graph, source, result)
        else:
            graph.replace_value(result, source)
        node.detach()
        return True


def _rename_output(graph: Graph, source: Value, result: Value) -> None:
    """Lets the producer of `source` make the graph output `result` itself."""
    producer = source.producer
    producer.outputs[producer.outputs.index(source)] = result
    result.producer = producer
    result.dtype = source.dtype if result.dtype is None else result.dtype
    result.shape = source.shape if result.shape is None else result.shape
    graph.replace_value(source, result)


def _gives_back_its_input(node: Node) -> bool:
    op = node.op
    if not node.inputs or node.inputs[0] is None:  # a broken model's node; the op itself says so when it is planned
        return False
    if isinstance(op, Identity):
        return True
    if isinstance(op, Cast):
        return node.inputs[0].dtype is not None and node.inputs[0].dtype == op.to
    if isinstance(op, Transpose):
        return bool(op.perm) and op.perm == tuple(range(len(op.perm)))
    return False
