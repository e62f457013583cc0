"""Rules that put one op in the place of the smaller ones in which exporters write it out."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.passes.base import SearchRule, substitute
from mnnx.schema.ops.base import Op


class Found(NamedTuple):
    """An op of x and further operands."""

    x: Value
    op: Op
    operands: tuple[Value | None, ...] = ()


class Recognition(SearchRule):
    """Puts one op in the place of a node whose result is, by a formula, a function of one value."""

    formula: str

    def find(self, node: Node, graph: Graph) -> Found | str:
        found = self._find(node)
        if found is None:
            return f"not {self.formula}"
        x, y = found.x, node.outputs[0]
        return "its numbers have more dims than x" if None not in (x.rank, y.rank) and x.rank != y.rank else found

    def rewrite_found(self, node: Node, graph: Graph, found: Found) -> None:
        substitute(graph, node, Node(found.op, [found.x, *found.operands], node.outputs, node.name))

    @abstractmethod
    def _find(self, node: Node) -> Found | None:
        """What the node's result is, or None."""
