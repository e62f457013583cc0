"""Nodes in an order in which every value is made before it is used; ONNX demands it, but not every file has it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx


def in_order(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The graph's nodes, each after the ones it depends on, otherwise in the file's order. Nodes on a cycle come last, as they are."""
    if _is_in_order(graph.node):
        return list(graph.node)
    makers = {output: index for index, node in enumerate(graph.node) for output in node.output if output}
    # Of several Constant nodes with one output the last counts, as for initializers; exporters have written such models.
    nodes = [n for i, n in enumerate(graph.node) if n.op_type != "Constant" or not n.output or makers.get(n.output[0]) == i]
    makers = {output: index for index, node in enumerate(nodes) for output in node.output if output}
    needs = [{makers[name] for name in used(node) if name in makers} - {index} for index, node in enumerate(nodes)]
    ordered: list[int] = []
    done: set[int] = set()
    started: set[int] = set()
    for root in range(len(needs)):
        stack = [root]
        while stack:
            index = stack[-1]
            waiting = [] if index in started else sorted(needs[index] - done - started, reverse=True)
            started.add(index)
            if waiting:
                stack += waiting
                continue
            stack.pop()
            if index not in done:
                done.add(index)
                ordered.append(index)
    return [nodes[index] for index in ordered]


def _is_in_order(nodes: Iterable[onnx.NodeProto]) -> bool:
    """Whether no value is made twice, or behind a node that uses it."""
    seen: set[str] = set()
    for node in nodes:
        outputs = [output for output in node.output if output]
        if not seen.isdisjoint(outputs):
            return False
        seen.update(used(node), outputs)
    return True


def used(node: onnx.NodeProto) -> Iterator[str]:
    """Names that a node uses, those that its subgraphs take from outside included."""
    yield from node.input
    for attribute in node.attribute:
        for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            own = {i.name for i in [*graph.input, *graph.initializer]} | {o for inner in graph.node for o in inner.output}
            yield from (name for inner in graph.node for name in used(inner) if name not in own)
            yield from (output.name for output in graph.output if output.name not in own)
