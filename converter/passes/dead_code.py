"""Removes nodes that no output depends on."""

from __future__ import annotations

from collections import Counter

from mnnx.converter.graph import Graph
from mnnx.converter.passes.base import Pass


class DeadCode(Pass):
    name = "dead-code"
    level = 0

    def run(self, graph: Graph, counts: Counter[str]) -> None:
        outputs = {id(value) for value in graph.outputs}
        kept = []
        for node in reversed(graph.nodes):
            if any(v is not None and (v.users or id(v) in outputs) for v in node.outputs):
                kept.append(node)
            else:
                node.detach()
                counts[f"{node.op.name} without users"] += 1
        graph.nodes = kept[::-1]
