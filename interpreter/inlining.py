"""Puts nodes in the place of one that they compute: the branch of an If whose condition a plan knows, the parts of a composed op."""

from __future__ import annotations

from mnnx.interpreter.needed import needed_nodes
from mnnx.schema.model import Graph, Node, Value
from mnnx.schema.ops.base import require
from mnnx.schema.ops.shape import Identity


class Inliner:
    """Extends one graph by the values of branches and parts, each of them once; indices that were given stay as they are."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self._inlined: dict[tuple[int, bool | None], tuple[Node, list[Node]]] = {}

    def inline(self, node: Node, condition: bool) -> list[Node]:
        """What computes the outputs of an If under a known condition: nodes on values of the graph, in order.

        A branch has no other user than its If, so its own values can be the graph's: what is computed of constants alone in one of
        them is the same wherever the branch runs.
        """
        key = (id(node), condition)
        if key not in self._inlined:
            branch = node.op.then_branch if condition else node.op.else_branch
            self._inlined[key] = (node, self._copied(node, branch))
        return self._inlined[key][1]

    def parts(self, node: Node) -> list[Node]:
        """What computes the outputs of a node of a composed op."""
        key = (id(node), None)
        if key not in self._inlined:
            inputs = [None if i < 0 else i for i in node.inputs]
            parts = node.op.parts(inputs, node.outputs, lambda: self._further(node.name))
            self._inlined[key] = (node, [Node(node.name, op, tuple(read), tuple(made)) for op, read, made in parts])
        return self._inlined[key][1]

    def _further(self, name: str) -> int:
        self.graph.values.append(Value(name))
        return len(self.graph.values) - 1

    def _copied(self, node: Node, branch: Graph) -> list[Node]:
        count = len(node.outputs)
        require(len(branch.outputs) >= count, f"a branch must give {count} outputs, it gives {len(branch.outputs)}")
        wanted = [(inner, outer) for inner, outer in zip(branch.outputs, node.outputs, strict=False) if outer >= 0]
        nodes = needed_nodes(branch, [inner for inner, _ in wanted])
        place = {-1: -1, **dict(zip(branch.inputs, node.inputs[1:], strict=True))}
        made = {i for inner in nodes for i in inner.outputs}
        given_back: list[Node] = []  # outputs that no node of the branch makes, or that it gives twice
        for inner, outer in wanted:
            if inner in made and inner not in place:
                place[inner] = outer
            else:
                given_back.append(Node(node.name, Identity(), (inner,), (outer,)))
        values = self.graph.values
        for index, value in enumerate(branch.values):
            if index not in place:
                place[index] = len(values)
                values.append(value)
        outputs = [Node(n.name, n.op, tuple(place[i] for i in n.inputs), n.outputs) for n in given_back]
        return [Node(n.name, n.op, *(tuple(place[i] for i in indices) for indices in (n.inputs, n.outputs))) for n in nodes] + outputs
