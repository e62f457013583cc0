"""Says for each pass what it did at a node, or why it did nothing."""

from __future__ import annotations

from difflib import get_close_matches

from mnnx.converter.graph import Graph, Node
from mnnx.converter.passes.base import Pass, Watcher
from mnnx.converter.report import NOT_CONCERNED, Explanation
from mnnx.errors import ConversionError


class Explainer(Watcher):
    """Watches the nodes that are called `what`, make a value of that name, or are an op of that type.

    Raises ConversionError where the graph has no such node.
    """

    def __init__(self, what: str, graph: Graph):
        self._explanations: dict[Explanation, None] = {}
        self._what = what
        self._before: list[tuple[Node, str]] = []
        if not self._nodes(graph):
            near = get_close_matches(what, {name for node in _all_nodes(graph) for name in _names(node)}, 3)
            hint = f"; do you mean {' or '.join(map(repr, near))}?" if near else ""
            raise ConversionError(f"there is nothing to explain: no node, result or op type is called {what!r}{hint}")

    @property
    def explanations(self) -> list[Explanation]:
        """In the order of the passes, each once."""
        return list(self._explanations)

    def before(self, number: int, one: Pass, graph: Graph) -> None:
        self._before = [(node, node.op.name) for node in self._nodes(graph)]

    def after(self, number: int, one: Pass, graph: Graph) -> None:
        left = {id(node): part for part in [graph, *graph.subgraphs()] for node in part.nodes}
        for node, op in self._before:
            if id(node) not in left:
                made = next((v.producer for v in node.outputs if v is not None and id(v.producer) in left), None)
                became = "it was taken out" if made is None else f"it became the {made.op.name} {made.name!r}"
                self._note(one, node.name, op, "", became)
            elif op != node.op.name:
                self._note(one, node.name, op, "", f"it became a {node.op.name}")
        for node in self._nodes(graph):
            reasons = list(one.reasons(node, left[id(node)]))
            for rule, reason in reasons:
                self._note(one, node.name, node.op.name, rule, reason)
            if not reasons:
                self._note(one, "", node.op.name, "", NOT_CONCERNED)

    def skipped(self, one: Pass, why: str) -> None:
        self._note(one, "", "", "", f"it doesn't run: {why}")

    def _nodes(self, graph: Graph) -> list[Node]:
        return [node for node in _all_nodes(graph) if self._what in _names(node)]

    def _note(self, one: Pass, node: str, op: str, rule: str, reason: str) -> None:
        self._explanations[Explanation(one.name, node, op, rule, reason)] = None  # a pass that runs again says the same


def _all_nodes(graph: Graph) -> list[Node]:
    return [node for part in [graph, *graph.subgraphs()] for node in part.nodes]


def _names(node: Node) -> set[str]:
    return {node.name, node.op.name, *(value.name for value in node.outputs if value is not None)}
