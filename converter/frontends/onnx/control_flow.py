"""If, Loop, Scan: their subgraphs are imported closed, and what they capture becomes inputs."""

from __future__ import annotations

from mnnx.converter.frontends.onnx.node import OnnxNode
from mnnx.converter.frontends.onnx.registry import importer
from mnnx.converter.graph import Node, Value
from mnnx.schema.ops.control_flow import If, Loop, Scan


def _close(subs) -> list[Value]:
    """Gives all subgraphs the same further inputs, one per outer Value that any of them captures; returns those Values."""
    captured = list(dict.fromkeys(outer for sub in subs for outer in sub.captured))
    for sub in subs:
        for outer in captured:
            sub.graph.inputs.append(sub.captured.get(outer) or Value(outer.name, outer.dtype, outer.shape, kind=outer.kind))
    return captured


def _keep_dims_apart(node: OnnxNode, sub) -> None:
    """Gives the dims that a loop's body names names of their own: a dim that changes from one iteration to the next may be called like one
    outside."""
    captured = {id(inner) for inner in sub.captured.values()}
    names: dict[str, str] = {}
    for graph in (sub.graph, *sub.graph.subgraphs()):
        for value in graph.values():
            if value.shape is not None and value.constant is None and id(value) not in captured:
                for dim in value.shape:
                    if isinstance(dim, str) and dim not in names:
                        names[dim] = node.fresh_dim(dim)
                value.shape = tuple(names.get(dim, dim) for dim in value.shape)


def _finish(node: OnnxNode, op, inputs) -> tuple[Value | None, ...]:
    outputs = [Value(name) if name else None for name in node.output_names]
    node.graph.nodes.append(Node(op, inputs, outputs, node.fresh_name()))
    return tuple(outputs)


@importer("If")
def if_(node: OnnxNode, condition: Value):
    branches = [node.subgraph("then_branch"), node.subgraph("else_branch")]
    for branch in branches:
        if branch.graph.inputs:
            node.fail(f"a branch must have no inputs; it has {', '.join(repr(value.name) for value in branch.graph.inputs)}")
        if len(branch.graph.outputs) != len(node.output_names):
            node.fail(f"has {len(node.output_names)} outputs, but a branch gives {len(branch.graph.outputs)}")
    captured = _close(branches)
    op = If(then_branch=branches[0].graph, else_branch=branches[1].graph)
    return _finish(node, op, [condition, *captured])


@importer("Loop")
def loop(node: OnnxNode, trip_count: Value | None = None, condition: Value | None = None, *states: Value):
    body = node.subgraph("body")
    if len(body.graph.inputs) != len(states) + 2:
        node.fail(f"its body must take {len(states) + 2} inputs (iteration, condition, states), it takes {len(body.graph.inputs)}")
    if len(body.graph.outputs) < len(states) + 1:
        node.fail(f"its body must give at least {len(states) + 1} outputs, it gives {len(body.graph.outputs)}")
    _keep_dims_apart(node, body)
    captured = _close([body])
    return _finish(node, Loop(body=body.graph, states=len(states)), [trip_count, condition, *states, *captured])


@importer("Scan")
def scan(node: OnnxNode, *inputs: Value | None):
    body = node.subgraph("body")
    scans = node.attribute("num_scan_inputs", int)
    old = node.opset < 9
    states = len(body.graph.inputs) - scans
    if states < 0 or len(inputs) - old != len(body.graph.inputs):
        node.fail(f"its body must take {len(inputs) - old} inputs, as many as the node, it takes {len(body.graph.inputs)}")
    _keep_dims_apart(node, body)
    captured = _close([body])
    ints = tuple[int, ...]
    op = Scan(
        body=body.graph,
        states=states,
        scans=scans,
        batched=old,
        input_axes=() if old else node.attribute("scan_input_axes", ints, ()),
        input_directions=node.attribute("directions" if old else "scan_input_directions", ints, ()),
        output_axes=() if old else node.attribute("scan_output_axes", ints, ()),
        output_directions=() if old else node.attribute("scan_output_directions", ints, ()),
    )
    return _finish(node, op, [*inputs, *captured])
