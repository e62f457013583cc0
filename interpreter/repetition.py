"""Loops whose iterations are all alike: the plan of the body runs again and again where its values lie, with no look at it in between.

That can be where one plan on one device is all of the body, and the states that it gives have the dtypes and shapes of those it takes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mnnx.backends.backend import Repetition
from mnnx.backends.tensor import DeviceTensor
from mnnx.errors import LimitExceeded
from mnnx.interpreter.config import Limits
from mnnx.interpreter.plan import Plan
from mnnx.interpreter.runtime import Runtime
from mnnx.schema import dtypes
from mnnx.schema.records import Record, Row

if TYPE_CHECKING:
    from mnnx.interpreter.runner import GraphRunner

#: Seconds after which a loop comes back to Python, which handles signals there (Ctrl-C), and its iterations up to the first time.
_PATIENCE, _FIRST_ITERATIONS = 0.05, 64
#: Bytes for values to stack that a loop gets at first, as it may end early, and the least iterations that they are for.
_FIRST_BYTES, _FIRST_ROWS = 1 << 20, 64


class LoopForm(Record):
    """What the inputs and outputs of a loop's body are, by their positions.

    index: the input that counts iterations. condition: the output that says whether to go on. states: outputs, each with the input that
    it becomes. slices: inputs, each with the array [iterations, …] whose row it is. stacks: outputs that are stacked.
    """

    index: int | None
    condition: int | None
    states: list[tuple[int, int]]
    slices: dict[int, np.ndarray]
    stacks: list[int]


class _Varies(Exception):
    """The iterations of a loop may differ."""


def repeat(body: GraphRunner, form: LoopForm, inputs: Sequence[Any], trips: int | None) -> tuple[list[Any], list[np.ndarray]] | None:
    """Runs a loop of at least one and at most `trips` iterations. `inputs`: those of the body in the first one.

    Returns the body's outputs of the last iteration, and what was stacked; None where iterations can differ, and nothing was done.
    """
    if not all(isinstance(value, np.ndarray) and value.dtype != dtypes.STRING for value in inputs):
        return None
    plan = body.first_plan(inputs)
    if plan.dynamic or plan.remaining or len(plan.pipelines) != 1 or plan.pipelines[0].transfers:
        return None
    if plan.loop is None:
        plan.loop = _loop_of(body, plan, form, inputs)
    if not plan.loop:
        return None
    host = dict(zip(body.graph.inputs, inputs, strict=True))
    for index, tensor in plan.uploads:
        tensor.copy_from_host(host[index])
    body.trail = [plan]
    slices = [(_with_dense_rows(form.slices[position]), target) for position, target in plan.loop.slices]
    stacks = _run(body.runtime, plan, plan.loop.repetition._replace(slices=slices), trips)
    results = body.results(plan, host)
    for output, copy in plan.loop.copies.items():
        results[output] = copy.copy_to_host()
    return results, stacks


def too_many_to_stack(iterations: int, limits: Limits) -> LimitExceeded:
    return LimitExceeded(
        f"{iterations} iterations made more than {limits.tensor_bytes >> 20} MiB to stack; "
        f"raise Limits.tensor_bytes (MNNX_MAX_TENSOR_MB) if that is meant"
    )


class _Loop(Row):
    """A plan that is repeated. repetition: without slices, and rows to stack in. slices: inputs that get slices, with their tensors.

    stacked: what is stacked. copies: by output, of states that lie in an input's memory, which gets another value afterwards.
    """

    repetition: Repetition
    slices: list[tuple[int, DeviceTensor]]
    stacked: list[DeviceTensor]
    copies: dict[int, DeviceTensor]


def _loop_of(body: GraphRunner, plan: Plan, form: LoopForm, given: Sequence[np.ndarray]) -> _Loop | bool:
    """The plan as a loop; False where iterations may differ. `given` are the body's inputs in the first one."""
    try:
        return _Places(body, plan, given).loop(form)
    except _Varies:
        return False


class _Places:
    """Where the inputs and outputs of a body's plan lie."""

    def __init__(self, body: GraphRunner, plan: Plan, given: Sequence[np.ndarray]):
        self._body = body
        self._plan = plan
        self._given = given
        self._inputs = dict(plan.uploads)
        self._backend = plan.pipelines[0].backend
        self._copies: dict[int, DeviceTensor] = {}

    def loop(self, form: LoopForm) -> _Loop:
        index = None if form.index is None else self._input(form.index)
        condition = None if form.condition is None else self._output(form.condition)
        if condition is not None and (condition.dtype != np.bool_ or condition.spec.size != 1):
            raise _Varies
        slices = [(position, target) for position in form.slices if (target := self._input(position)) is not None]
        states = [state for pair in form.states for state in self._state(*pair)]
        copies = [(self._output(output), copy) for output, copy in self._copies.items()]
        stacked = [self._output(position) for position in form.stacks]
        return _Loop(Repetition(index, condition, [], [], copies + states), slices, stacked, self._copies)

    def _input(self, position: int) -> DeviceTensor | None:
        """None for one that the body doesn't read."""
        return self._inputs.get(self._body.graph.inputs[position])

    def _output(self, position: int) -> DeviceTensor:
        index = self._body.graph.outputs[position]
        found = self._plan.tensors.get(index) or self._inputs.get(index)
        if found is None:
            array = self._plan.known.get(index, self._body.runtime.constant(self._body.graph, index))
            if array is None:
                raise _Varies  # an input that it gives back without reading it
            found = self._backend.constant("", array)
        if found.backend is not self._backend or found.layout:
            raise _Varies
        return found

    def _state(self, output: int, given: int) -> list[tuple[DeviceTensor, DeviceTensor]]:
        """A state's result with the tensor in which the next iteration reads it, where it has to be put there."""
        graph = self._body.graph
        if graph.outputs[output] == graph.inputs[given]:
            return []
        result, target, first = self._output(output), self._input(given), self._given[given]
        if (first.dtype, first.shape) != (result.dtype, result.shape):
            raise _Varies
        if target is not None and target.memory is result.memory and target.offset == result.offset:
            return []
        if any(_overlap(tensor, result) for tensor in self._inputs.values()):
            memory = self._backend.allocate(result.spec.nbytes)
            result = self._copies[output] = DeviceTensor(result.name, result.spec, self._backend, memory)
        return [] if target is None else [(result, target)]


def _overlap(a: DeviceTensor, b: DeviceTensor) -> bool:
    return a.memory is b.memory and a.offset < b.offset + b.spec.nbytes and b.offset < a.offset + a.spec.nbytes


def _with_dense_rows(array: np.ndarray) -> np.ndarray:
    return array if array[0].flags.c_contiguous else np.ascontiguousarray(array)


def _run(runtime: Runtime, plan: Plan, loop: Repetition, trips: int | None) -> list[np.ndarray]:
    """Runs the loop and returns what was stacked."""
    stacks = _Stacks(plan.loop.stacked, runtime.limits, trips)
    done, at_once, going = 0, _FIRST_ITERATIONS, True
    while going and done != trips:
        if runtime.iterations_left <= 0:
            runtime.count_iterations()
        some = min(at_once, runtime.iterations_left, stacks.make_room(done), at_once if trips is None else trips - done)
        start = time.perf_counter()
        reached, going = plan.pipelines[0].repeat(loop._replace(stacks=stacks.pairs()), done, done + some)
        runtime.count_iterations(reached - done)
        done = reached
        if time.perf_counter() - start < _PATIENCE / 4:
            at_once *= 4
    return stacks.arrays(done)


class _Stacks:
    """Memory for values to stack, which grows with the iterations."""

    def __init__(self, tensors: list[DeviceTensor], limits: Limits, trips: int | None):
        self._tensors = tensors
        self._limits = limits
        self._trips = trips
        largest = max((tensor.spec.nbytes for tensor in tensors), default=0)
        self._most = limits.tensor_bytes // largest if largest else None
        self._resize(max(_FIRST_ROWS, _FIRST_BYTES // largest if largest else 0))

    def _resize(self, rows: int) -> None:
        self._rows = min([rows, *(most for most in (self._most, self._trips) if most is not None)])
        self._arrays = [np.empty((self._rows, *tensor.shape), tensor.dtype) for tensor in self._tensors]

    def make_room(self, done: int) -> int:
        """How many more iterations there is room for, after `done` of them; at least one. Raises LimitExceeded."""
        if done == self._rows:
            if done == self._most:
                raise too_many_to_stack(done + 1, self._limits)
            old = self._arrays
            self._resize(2 * done)
            for array, rows in zip(self._arrays, old, strict=True):
                array[:done] = rows
        return self._rows - done

    def pairs(self) -> list[tuple[DeviceTensor, np.ndarray]]:
        return list(zip(self._tensors, self._arrays, strict=True))

    def arrays(self, done: int) -> list[np.ndarray]:
        """The rows of `done` iterations, in arrays of their own."""
        return [array if len(array) == done else array[:done].copy() for array in self._arrays]
