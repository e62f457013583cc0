"""Puts the branch that is taken in the place of an If whose condition is a constant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from mnnx.converter.graph import Graph, Node
from mnnx.converter.passes.base import Pass
from mnnx.schema.ops.control_flow import If
from mnnx.schema.ops.shape import Identity


class KnownBranches(Pass):
    """Puts the branch that is taken in the place of an If whose condition is constant."""

    name = "known-branches"

    def run(self, graph: Graph, counts: Counter[str]) -> None:
        graph.nodes = list(_with_branches(graph, graph.nodes, counts))

    def reasons(self, node: Node, graph: Graph) -> Iterator[tuple[str, str]]:
        if isinstance(node.op, If):
            yield "branch", "its condition is computed"


def _with_branches(graph: Graph, nodes: list[Node], counts: Counter[str]) -> Iterator[Node]:
    """The nodes, with those of branches that are taken in the places of their Ifs."""
    for node in nodes:
        if isinstance(node.op, If) and _condition(node) is not None:
            counts["If"] += 1
            yield from _with_branches(graph, _taken(graph, node), counts)
        else:
            yield node


def _condition(node: Node) -> bool | None:
    condition = node.inputs[0].constant if node.inputs and node.inputs[0] is not None else None
    return bool(condition.reshape(-1)[0]) if condition is not None and condition.size == 1 else None


def _taken(graph: Graph, node: Node) -> list[Node]:
    """The nodes of the branch, connected to the graph, and what gives outputs of the graph their names."""
    body = node.op.then_branch if _condition(node) else node.op.else_branch
    for inner, outer in zip(body.inputs, node.inputs[1:], strict=True):
        body.replace_value(inner, outer)
    node.detach()
    named = []
    for result, made in zip(node.outputs, body.outputs, strict=True):
        if result is None:
            continue
        if graph.is_output(result):
            named.append(Node(Identity(), [made], [result], node.name))
        else:
            result.producer = None
            graph.replace_value(result, made)
    nodes, body.nodes = [*body.nodes, *named], []
    return nodes
