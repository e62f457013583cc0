"""Takes out of an If, Loop or Scan what nobody uses: results of branches, what loops stack, states that nothing else depends on."""

from __future__ import annotations

from collections import Counter

from mnnx.converter.graph import Graph, Node
from mnnx.converter.subgraph_shapes import bodies
from mnnx.schema.ops.control_flow import If, Loop, Scan


def drop_unused_results(node: Node, graph: Graph, counts: Counter[str]) -> None:
    """Takes out results of a control-flow node of `graph` without users. What made them in its bodies is left there, to be swept."""
    used = [value is not None and bool(value.users or graph.is_output(value)) for value in node.outputs]
    if isinstance(node.op, If):
        for place in reversed(range(len(used))):
            if not used[place]:
                for body in bodies(node):
                    del body.outputs[place]
                del node.outputs[place]
                counts["result of If without users"] += 1
    elif isinstance(node.op, Loop) or (isinstance(node.op, Scan) and not node.op.batched):
        conditions = 1 if isinstance(node.op, Loop) else 0
        results = len(node.op.body.outputs) - conditions
        if len(used) > results:  # a broken model's node; a run says so
            return
        used += [False] * (results - len(used))
        needed = _needed_states(node, used, conditions)
        for place in reversed(range(node.op.states, results)):
            if not used[place]:
                _drop_stacked(node, place, conditions)
                counts[f"result of {node.op.name} without users"] += 1
        for state in sorted(set(range(node.op.states)) - needed, reverse=True):
            _drop_state(node, state, conditions)
            counts[f"state of {node.op.name} without users"] += 1


def _needed_states(node: Node, used: list[bool], conditions: int) -> set[int]:
    """The states on which the condition and the `used` results depend."""
    op, body = node.op, node.op.body
    inputs = {id(value): state for state, value in enumerate(body.inputs[2 * conditions :][: op.states])}
    open_values = body.outputs[:conditions] + [v for v, is_used in zip(body.outputs[conditions:], used, strict=True) if is_used]
    needed: set[int] = {state for state in range(op.states) if used[state]}
    seen: set[int] = set()
    while open_values:
        value = open_values.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if (state := inputs.get(id(value))) is not None:
            needed.add(state)
            open_values.append(body.outputs[conditions + state])
        elif value.producer is not None:
            open_values += [v for v in value.producer.inputs if v is not None]
    return needed


def _drop_stacked(node: Node, place: int, conditions: int) -> None:
    op = node.op
    del op.body.outputs[conditions + place]
    del node.outputs[place : place + 1]
    if isinstance(op, Scan):
        nth = place - op.states
        node.op = op.replace(
            output_axes=op.output_axes[:nth] + op.output_axes[nth + 1 :],
            output_directions=op.output_directions[:nth] + op.output_directions[nth + 1 :],
        )


def _drop_state(node: Node, state: int, conditions: int) -> None:
    del node.op.body.inputs[2 * conditions + state]
    del node.op.body.outputs[conditions + state]
    del node.outputs[state : state + 1]
    node.drop_input(2 * conditions + state)
    node.op = node.op.replace(states=node.op.states - 1)
