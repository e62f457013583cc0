"""If, Loop and Scan: they run their bodies' graphs on the host's side, each body with plans and memory of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mnnx.interpreter.config import Limits
from mnnx.interpreter.pipeline import Hooks
from mnnx.interpreter.repetition import LoopForm, repeat, too_many_to_stack
from mnnx.schema.model import Graph
from mnnx.schema.ops.axes import normalize_axis
from mnnx.schema.ops.base import require
from mnnx.schema.ops.control_flow import If, Loop, Scan, truth

if TYPE_CHECKING:
    from mnnx.interpreter.runner import GraphRunner


def run_if(op: If, inputs: Sequence[Any], outputs: int, runner: GraphRunner, hooks: Hooks | None) -> list[Any]:
    graph = op.then_branch if truth(inputs[0], "condition") else op.else_branch
    require(len(graph.outputs) >= outputs, f"a branch must give {outputs} outputs, it gives {len(graph.outputs)}")
    return runner.body(graph).run(inputs[1:], hooks)


def run_loop(op: Loop, inputs: Sequence[Any], outputs: int, runner: GraphRunner, hooks: Hooks | None) -> list[Any]:
    trips = None if inputs[0] is None else int(np.asarray(inputs[0]).reshape(-1)[0])
    going = inputs[1] is None or truth(inputs[1], "condition")
    states, captures = list(inputs[2 : 2 + op.states]), inputs[2 + op.states :]
    stacked = range(1 + op.states, len(op.body.outputs))
    stacks: list[list[Any]] = [[] for _ in stacked]
    if going and (trips is None or trips > 0):
        body, captures = runner.loop_body(op, captures, hooks)
        if hooks is None:
            form = LoopForm(0, 0, [(0, 1), *((1 + i, 2 + i) for i in range(op.states))], {}, list(stacked))
            done = repeat(body, form, [np.asarray(0, np.int64), np.asarray(going), *states, *captures], trips)
            if done is not None:
                return [*done[0][1 : 1 + op.states], *done[1]]
    iteration = 0
    while going and (trips is None or iteration < trips):
        runner.runtime.count_iterations()
        results = body.run([np.asarray(iteration, np.int64), np.asarray(going), *states, *captures], hooks)
        going = truth(results[0], "condition that the body gives")
        states = results[1 : 1 + op.states]
        _push(stacks, results[1 + op.states :], runner.runtime.limits)
        iteration += 1
    if not iteration and stacks:
        first = [np.asarray(0, np.int64), np.asarray(True), *states, *inputs[2 + op.states :]]
        return [*states, *_empty_stacks(op.body, stacked, first, runner)]
    return [*states, *map(_stack, stacks)]


def _push(stacks: list[list[np.ndarray]], values: Sequence[Any], limits: Limits) -> None:
    """Adds an iteration's values to what will be stacked."""
    for stack, value in zip(stacks, values, strict=True):
        require(isinstance(value, np.ndarray), "what a body gives to be stacked must be tensors")
        stack.append(value)
        if len(stack) * value.nbytes > limits.tensor_bytes:
            raise too_many_to_stack(len(stack), limits)


def _stack(values: list[Any] | np.ndarray, axis: int = 0) -> np.ndarray:
    """Values of one shape, stacked along a new axis; an array has them along its first axis."""
    if isinstance(values, np.ndarray):
        return np.ascontiguousarray(np.moveaxis(values, 0, normalize_axis(axis, values.ndim)))
    shapes = {v.shape for v in values}
    require(len(shapes) == 1, f"values to stack must be of one shape, they are {sorted(shapes)}")
    return np.stack(values, normalize_axis(axis, values[0].ndim + 1))


def _empty_stacks(body: Graph, outputs: Sequence[int], inputs: Sequence[Any], runner: GraphRunner) -> list[np.ndarray]:
    """What is stacked of no iteration, along the first axis: of the dtypes and shapes that the body would give of these inputs, or where
    only a run could tell them, of what is declared of its outputs, with 0 for open dims."""
    expected = runner.body(body).expected(inputs)
    stacks = []
    for place in outputs:
        value, spec = body.values[body.outputs[place]], expected[place]
        shape = tuple(d if isinstance(d, int) else 0 for d in value.shape or ()) if spec is None else spec.shape
        dtype = (np.float32 if value.dtype is None else value.dtype) if spec is None else spec.dtype
        stacks.append(np.zeros((0, *shape), dtype))
    return stacks


def run_scan(op: Scan, inputs: Sequence[Any], outputs: int, runner: GraphRunner, hooks: Hooks | None) -> list[Any]:
    if not op.batched:
        return _scan(op, inputs, runner, hooks)
    lengths, inputs = inputs[0], inputs[1:]
    given, captures = inputs[: op.states + op.scans], inputs[op.states + op.scans :]
    batch = given[0].shape[0]
    require(all(g.ndim >= 1 and g.shape[0] == batch for g in given), f"all inputs must have the batch size {batch}")
    rows = []
    for b in range(batch):
        length = None if lengths is None else int(lengths.reshape(-1)[b])
        scans = [g[b] if length is None else g[b][:length] for g in given[op.states :]]
        rows.append(_scan(op, [*(g[b] for g in given[: op.states]), *scans, *captures], runner, hooks))
    return [np.stack(column) for column in zip(*rows, strict=True)]


def _scan(op: Scan, inputs: Sequence[Any], runner: GraphRunner, hooks: Hooks | None) -> list[Any]:
    states, scans = list(inputs[: op.states]), inputs[op.states : op.states + op.scans]
    captures = inputs[op.states + op.scans :]
    require(all(isinstance(s, np.ndarray) and s.ndim >= 1 for s in scans), "scan inputs must be tensors with an axis to scan")
    axes = op.input_axes or (0,) * op.scans
    backward = op.input_directions or (0,) * op.scans
    moved = [np.moveaxis(s, normalize_axis(a, s.ndim), 0)[:: -1 if b else 1] for s, a, b in zip(scans, axes, backward, strict=True)]
    lengths = {len(m) for m in moved}
    require(len(lengths) == 1, f"scan inputs must have one length along their scan axes, they have {sorted(lengths)}")
    stacks: Sequence[Any] = [[] for _ in op.body.outputs[op.states :]]
    out_axes = op.output_axes or (0,) * len(stacks)
    out_backward = op.output_directions or (0,) * len(stacks)
    require(len(out_axes) == len(stacks) == len(out_backward), f"one output axis and direction per scan output ({len(stacks)})")
    steps = lengths.pop()

    def given(step: int) -> list[Any]:
        return [*states, *(np.asarray(m[step], order="C") for m in moved), *captures]

    outputs = range(op.states, len(op.body.outputs))
    if steps:
        body, captures = runner.loop_body(op, captures, hooks)
        slices = {op.states + i: m for i, m in enumerate(moved)}
        form = LoopForm(None, None, [(i, i) for i in range(op.states)], slices, list(outputs))
        done = repeat(body, form, given(0), steps) if hooks is None else None
        if done is not None:
            states, stacks = done[0][: op.states], done[1]
        else:
            for step in range(steps):
                runner.runtime.count_iterations()
                results = body.run(given(step), hooks)
                states = results[: op.states]
                _push(stacks, results[op.states :], runner.runtime.limits)
    elif stacks:
        slices = [np.zeros(m.shape[1:], m.dtype) for m in moved]
        stacks = _empty_stacks(op.body, outputs, [*states, *slices, *captures], runner)
    return [*states, *(_stack(stack[::-1] if b else stack, axis) for stack, axis, b in zip(stacks, out_axes, out_backward, strict=True))]


#: Control-flow op → its function; it gets the op, host values of its inputs, how many outputs are wanted, the runner and the hooks.
RUNNERS: dict[type, Callable[..., list[Any]]] = {If: run_if, Loop: run_loop, Scan: run_scan}
