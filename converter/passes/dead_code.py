"""Removes nodes that no output depends on, and captured inputs of subgraphs that their graphs no longer use."""

from __future__ import annotations

from mnnx.converter.graph import Graph
from mnnx.converter.passes.base import Context, Pass


class DeadCode(Pass):
    name = "dead-code"
    level = 0

    def run(self, graph: Graph, context: Context) -> None:
        outputs = {id(value) for value in graph.outputs}
        kept = []
        for node in reversed(graph.nodes):
            if any(v is not None and (v.users or id(v) in outputs) for v in node.outputs):
                kept.append(node)
            else:
                node.detach()
                context.count(f"{node.op.name} without users")
        graph.nodes = kept[::-1]
