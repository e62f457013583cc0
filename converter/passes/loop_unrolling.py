"""Puts the iterations of a Loop in its place, where it is known how many there are.

None and one always. Several where the body is small and it pays: the number of the iteration or the first value of a state, which are
constant then, lets fold what is computed of them, and shapes that change from one iteration to the next become fixed. Other loops are
run as well by one plan of their body.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.inference import infer_node, spec_of
from mnnx.converter.passes.base import Pass
from mnnx.converter.sizes import open_dim
from mnnx.converter.subgraph_shapes import bodies, infer_anew, trip_count
from mnnx.schema.ops.base import Op
from mnnx.schema.ops.control_flow import Loop
from mnnx.schema.ops.shape import Concat, Identity, Unsqueeze

#: The most nodes that the iterations of a loop may become.
MOST_NODES = 64


class LoopUnrolling(Pass):
    """Puts the iterations of a Loop in its place, where they are known and few, and that makes constants or fixed shapes."""

    name = "loop-unrolling"

    def run(self, graph: Graph, counts: Counter[str]) -> None:
        graph.nodes = list(_with_iterations(graph, graph.nodes, counts))

    def reasons(self, node: Node, graph: Graph) -> Iterator[tuple[str, str]]:
        if isinstance(node.op, Loop) and (reason := _why_not(node)) is not None:
            yield "unrolling", reason


def _with_iterations(graph: Graph, nodes: list[Node], counts: Counter[str]) -> Iterator[Node]:
    """The nodes, with those of iterations in the places of their Loops."""
    for node in nodes:
        if isinstance(node.op, Loop) and _why_not(node) is None:
            counts["Loop"] += 1
            yield from _with_iterations(graph, _unrolled(graph, node), counts)
        else:
            yield node


def _why_not(node: Node) -> str | None:
    body, states = node.op.body, node.op.states
    trips = trip_count(node)
    if trips is None:
        return "how many iterations it has isn't known"
    if len(node.outputs) > len(body.outputs) - 1 or any(value is None for value in node.inputs[2 : 2 + states]):
        return "it is broken"
    if trips == 0:
        stacked = zip(node.outputs[states:], body.outputs[1 + states :], strict=False)
        return None if all(spec_of(made) for _, made in stacked) else "the shapes of what no iteration stacks aren't known"
    if trips == 1:
        return None
    if any(not inner.op.deterministic for part in (body, *body.subgraphs()) for inner in part.nodes):
        return "its body is random"
    if trips * _size(body) > MOST_NODES:
        return f"its iterations would be more than {MOST_NODES} nodes"
    constant = any(value.constant is not None for value in node.inputs[2 : 2 + states])
    pairs = zip(body.inputs[2 : 2 + states], body.outputs[1 : 1 + states], strict=True)
    changing = any(given.shape is None or given.shape != made.shape for given, made in pairs)
    pays = constant or changing or body.inputs[0].users
    return None if pays else "neither the number of the iteration is used nor a state's first value constant, and no shape changes"


def _size(graph: Graph) -> int:
    """How many nodes a graph has, those of subgraphs included, and of loops whose iterations are known those of all iterations."""
    inner = (((isinstance(node.op, Loop) and trip_count(node)) or 1) * sum(map(_size, bodies(node))) for node in graph.nodes)
    return len(graph.nodes) + sum(inner)


def _unrolled(graph: Graph, node: Node) -> list[Node]:
    """What computes the outputs of a Loop that is to be unrolled: nodes on values of the graph, in order."""
    body, count = node.op.body, node.op.states
    states, captures = list(node.inputs[2 : 2 + count]), node.inputs[2 + count :]
    stacks: list[list[Value]] = [[] for _ in body.outputs[1 + count :]]
    nodes: list[Node] = []
    for iteration in range(trip_count(node)):
        number, going = (Value(f"{node.name}/{iteration}", constant=np.array(value)) for value in (np.int64(iteration), True))
        place = {id(inner): outer for inner, outer in zip(body.inputs, [number, going, *states, *captures], strict=True)}
        nodes += _copied_nodes(body, place, f"@{iteration}")
        made = [place.get(id(value), value) for value in body.outputs]
        states = made[1 : 1 + count]
        for stack, value in zip(stacks, made[1 + count :], strict=True):
            stack.append(value)
    for inner in body.nodes:
        inner.detach()
    body.nodes = []
    node.detach()
    for state, result in zip(states, node.outputs, strict=False):
        nodes += _called(graph, result, state, node.name)
    for stack, value, result in zip(stacks, body.outputs[1 + count :], node.outputs[count:], strict=False):
        if result is not None:
            nodes += _stacked(graph, stack, value, result, node.name)
    return nodes


def _copied_nodes(source: Graph, place: dict[int, Value], mark: str) -> list[Node]:
    """The nodes of a graph on other values: `place` has those that stand for its inputs, and gets those for its results, by id. Names get a
    mark; dims that were called by a value's name are called by the new one."""
    nodes = []
    for node in source.nodes:
        inputs = [None if v is None else place.get(id(v), v) for v in node.inputs]
        outputs = [None if v is None else _copied_value(v, mark) for v in node.outputs]
        place |= {id(old): new for old, new in zip(node.outputs, outputs, strict=True) if old is not None}
        nodes.append(Node(_copied_op(node, mark), inputs, outputs, f"{node.name}{mark}"))
        infer_anew(nodes[-1], infer_node)
    return nodes


def _copied_value(value: Value, mark: str) -> Value:
    """A value like another, with other names. (A constant that a body gives stays what it is.)"""
    name = f"{value.name}{mark}"
    shape = None if value.shape is None else tuple(d if isinstance(d, int) else open_dim(name, i) for i, d in enumerate(value.shape))
    return Value(name, value.dtype, shape, kind=value.kind)


def _copied_op(node: Node, mark: str) -> Op:
    graphs = {key: _copied_graph(getattr(node.op, key), mark) for key in node.op.subgraphs}
    return node.op.replace(**graphs) if graphs else node.op


def _copied_graph(source: Graph, mark: str) -> Graph:
    copy = Graph(source.name)
    copy.inputs = [_copied_value(value, mark) for value in source.inputs]
    place = {id(old): new for old, new in zip(source.inputs, copy.inputs, strict=True)}
    copy.nodes = _copied_nodes(source, place, mark)
    copy.outputs = [place.get(id(value), value) for value in source.outputs]
    return copy


def _called(graph: Graph, result: Value | None, made: Value, name: str) -> list[Node]:
    """Puts a value in the place of a result; returns what gives an output of the graph its name."""
    if result is None:
        return []
    if graph.is_output(result):
        return [Node(Identity(), [made], [result], name)]
    result.producer = None
    graph.replace_value(result, made)
    return []


def _stacked(graph: Graph, values: list[Value], made: Value, result: Value, name: str) -> list[Node]:
    """What stacks the values of all iterations, which the body makes as `made`, along a new first axis."""
    if not values:
        return _called(graph, result, Value(result.name, constant=np.zeros((0, *made.shape), made.dtype)), name)
    axes = Value(f"{result.name}/axes", constant=np.array([0]))
    rows = [Value(f"{result.name}/{i}", value.dtype) for i, value in enumerate(values)]
    nodes = [Node(Unsqueeze(), [value, axes], [row], name) for value, row in zip(values, rows, strict=True)]
    if len(rows) == 1:
        nodes[0].outputs[0] = result
        result.producer = nodes[0]
    else:
        nodes.append(Node(Concat(axis=0), rows, [result], name))
    for node in nodes:
        infer_node(node)
    return nodes
