"""Which nodes of a graph some of its values depend on."""

from __future__ import annotations

from collections.abc import Sequence

from mnnx.schema.model import Graph, Node


def needed_nodes(graph: Graph, outputs: Sequence[int]) -> list[Node]:
    """The nodes that `outputs` depend on, in the graph's order."""
    wanted = set(outputs)
    needed: list[Node] = []
    for node in reversed(graph.nodes):
        if any(i in wanted for i in node.outputs if i >= 0):
            wanted.update(i for i in node.inputs if i >= 0)
            needed.append(node)
    return needed[::-1]
