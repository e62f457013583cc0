"""Turns states that a Loop or Scan never changes into captured values.

Exporters of frameworks whose loops see only their own variables (TensorFlow's while) carry weights and other constants through a loop as
states that the body gives back as they are. Captured, they need not be handed on, and constants can be folded in the body.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.passes.base import Pass, made_by
from mnnx.schema.ops.control_flow import Loop, Scan
from mnnx.schema.ops.shape import Identity


class LoopStates(Pass):
    """Makes captured values of the states that a Loop or Scan gives back as they are."""

    name = "loop-states"

    def run(self, graph: Graph, counts: Counter[str]) -> None:
        nodes = []
        for node in graph.nodes:
            nodes.append(node)
            if isinstance(node.op, Loop) or (isinstance(node.op, Scan) and not node.op.batched):
                for state in reversed(range(node.op.states)):
                    if _is_unchanged(node, state):
                        nodes += _capture(graph, node, state)
                        counts[f"unchanged state of {node.op.name}"] += 1
        graph.nodes = nodes

    def reasons(self, node: Node, graph: Graph) -> Iterator[tuple[str, str]]:
        if isinstance(node.op, Loop | Scan):
            yield "unchanged state", "it has scan batches" if getattr(node.op, "batched", False) else "it changes all of its states"


def _first_input(node: Node) -> int:
    """Where the states begin among the inputs of the node and those of its body."""
    return 2 if isinstance(node.op, Loop) else 0


def _first_output(node: Node) -> int:
    """Where the states begin among the outputs of the body."""
    return 1 if isinstance(node.op, Loop) else 0


def _is_unchanged(node: Node, state: int) -> bool:
    body = node.op.body
    given, result = body.inputs[_first_input(node) + state], body.outputs[_first_output(node) + state]
    identity = made_by(result, Identity)
    unchanged = result is given or (identity is not None and identity.inputs[0] is given)
    return unchanged and node.inputs[_first_input(node) + state] is not None


def _capture(graph: Graph, node: Node, state: int) -> list[Node]:
    """Makes the state a capture; returns what has to stand behind the node so that an output of the graph keeps its name."""
    op, place = node.op, _first_input(node) + state
    value, initial = op.body.inputs.pop(place), node.inputs[place]
    result = node.outputs.pop(state) if state < len(node.outputs) else None
    op.body.inputs.append(value)
    del op.body.outputs[_first_output(node) + state]
    node.drop_input(place)
    node.add_input(initial)
    node.op = op.replace(states=op.states - 1)
    return [] if result is None else _give_back(graph, initial, result, node.name)


def _give_back(graph: Graph, initial: Value, result: Value, name: str) -> list[Node]:
    if graph.is_output(result):
        return [Node(Identity(), [initial], [result], name)]
    result.producer = None
    graph.replace_value(result, initial)
    return []
