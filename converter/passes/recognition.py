"""Rules that put one op in the place of the smaller ones in which exporters write it out."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.passes.base import Rule, substitute
from mnnx.schema.ops.base import Op


class Found(NamedTuple):
    """An op of x and further operands."""

    x: Value
    op: Op
    operands: tuple[Value | None, ...] = ()


class Recognition(Rule):
    """Puts one op in the place of a node whose result is, by a formula, a function of one value."""

    formula: str

    def match(self, node: Node, graph: Graph) -> str | None:
        found = self._find(node)
        if found is None:
            return f"not {self.formula}"
        x, y = found.x, node.outputs[0]
        return "its numbers have more dims than x" if None not in (x.rank, y.rank) and x.rank != y.rank else None

    def rewrite(self, node: Node, graph: Graph) -> None:
        found = self._find(node)
        substitute(graph, node, Node(found.op, [found.x, *found.operands], node.outputs, node.name))

    @abstractmethod
    def _find(self, node: Node) -> Found | None:
        """What the node's result is, or None."""
