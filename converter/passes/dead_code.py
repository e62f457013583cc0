"""Removes nodes that no output depends on, and what subgraphs capture, keep or give without use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from mnnx.converter.graph import Graph, Node
from mnnx.converter.passes.base import Pass
from mnnx.converter.passes.unused_results import drop_unused_results
from mnnx.converter.subgraph_shapes import bodies


class DeadCode(Pass):
    """Removes nodes that no output depends on, and what subgraphs capture, keep or give without use."""

    name = "dead-code"
    level = 0

    def run(self, graph: Graph, counts: Counter[str]) -> None:
        outputs = {id(value) for value in graph.outputs}
        kept = []
        for node in reversed(graph.nodes):
            if any(v is not None and (v.users or id(v) in outputs) for v in node.outputs):
                kept.append(node)
                if node.op.subgraphs:
                    drop_unused_results(node, graph, counts)
                    self._drop_captures(node, counts)
            else:
                node.detach()
                counts[f"{node.op.name} without users"] += 1
        graph.nodes = kept[::-1]

    def reasons(self, node: Node, graph: Graph) -> Iterator[tuple[str, str]]:
        outputs = [value for value in node.outputs if value is not None]
        used = next((f"its result {v.name!r} is used by the node {v.users[0].name!r}" for v in outputs if v.users), "")
        yield "removal", used or "its result is an output of the graph"

    def _drop_captures(self, node: Node, counts: Counter[str]) -> None:
        """Takes out captured inputs that none of the subgraphs uses once they are swept themselves."""
        graphs = bodies(node)
        for body in graphs:
            self.run(body, counts)
        for index in reversed(range(node.op.own_inputs, len(node.inputs))):
            places = [index - len(node.inputs) + len(body.inputs) for body in graphs]  # the captures are a body's last inputs
            values = [(body, body.inputs[place]) for body, place in zip(graphs, places, strict=True)]
            if not any(value.users or body.is_output(value) for body, value in values):
                node.drop_input(index)
                for body, place in zip(graphs, places, strict=True):
                    del body.inputs[place]
                counts[f"captured input of {node.op.name} without users"] += 1
