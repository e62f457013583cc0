"""Takes out of a loop's body what is the same in all iterations, to be computed once before the first."""

from __future__ import annotations

from mnnx.interpreter.needed import needed_nodes
from mnnx.schema.model import Graph, Node
from mnnx.schema.ops.control_flow import If, Loop, Scan
from mnnx.schema.ops.shape import Flatten, Identity, Reshape, Shape, Size, Squeeze, Unsqueeze

#: Mostly views, which cost nothing where they are.
_RENAMING = (Flatten, Identity, Reshape, Squeeze, Unsqueeze)


def hoist(body: Graph, own_inputs: int) -> tuple[Graph, Graph] | None:
    """A graph that computes what depends on nothing but captures, and the body with that graph's outputs as further inputs.

    The captures are the body's inputs from `own_inputs` on, and the inputs of the first graph. None where there is nothing to gain. What
    follows from shapes alone is left in the body, whose plans know it then.
    """
    shapes = {index for index, value in enumerate(body.values) if value.constant is not None}  # what plans compute, and constants
    fixed = shapes.union(body.inputs[own_inputs:])
    nodes: list[Node] = []
    for node in body.nodes:
        inputs = {i for i in node.inputs if i >= 0}
        if not inputs <= fixed or not node.op.deterministic or isinstance(node.op, (If, Loop, Scan)):
            continue
        nodes.append(node)
        fixed.update(node.outputs)
        if isinstance(node.op, (Shape, Size)) or inputs <= shapes:
            shapes.update(node.outputs)
    moved = _worth_moving(body, [node for node in nodes if not shapes.issuperset(node.outputs)])
    made = {i for node in moved for i in node.outputs if i >= 0}
    rest = [node for node in body.nodes if made.isdisjoint(node.outputs)]
    used = {i for node in rest for i in node.inputs}
    results = tuple(sorted(made & used))
    if not results:
        return None
    first = Graph(body.name, body.values, body.inputs[own_inputs:], results, nodes)
    first.nodes = needed_nodes(first, results)
    return first, Graph(body.name, body.values, (*body.inputs, *results), body.outputs, rest)


def _worth_moving(body: Graph, nodes: list[Node]) -> list[Node]:
    """Those of the nodes that don't make an output of the body, and whose work is more than a view, or part of such work."""
    used: set[int] = set()
    moved: list[Node] = []
    for node in reversed(nodes):
        needed = not used.isdisjoint(node.outputs) or not isinstance(node.op, _RENAMING)
        if needed and not set(body.outputs).intersection(node.outputs):
            moved.append(node)
            used.update(node.inputs)
    return moved[::-1]
