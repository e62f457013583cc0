"""Where values lie: lifetimes of the steps' outputs → buffers in arenas of their backends → tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np

from mnnx.backends.backend import Backend
from mnnx.backends.tensor import DeviceTensor
from mnnx.errors import LimitExceeded
from mnnx.interpreter.memory import Buffer, MemoryPlan, lower_bound, plan_memory
from mnnx.interpreter.ordering import best_order
from mnnx.interpreter.pipeline import Pipeline
from mnnx.interpreter.step import Step
from mnnx.interpreter.unit import Unit
from mnnx.interpreter.values import Values
from mnnx.schema.ops.base import Spec
from mnnx.schema.records import Row


class _Share(Row):
    """What lies in one backend's arenas: values' buffers, and steps with working memory of their own."""

    backend: Backend
    buffers: dict[int, Buffer]
    working: list[Step]

    def all(self) -> list[Buffer]:
        return [*{id(b): b for b in self.buffers.values()}.values(), *(step.working_memory for step in self.working)]

    def plan(self) -> MemoryPlan:
        return plan_memory(self.all(), self.backend.alignment, self.backend.largest_allocation)


def order(values: Values, steps: Sequence[Step], kept: Collection[int], keep_inputs: bool) -> Sequence[Step]:
    """The steps in the order that takes least memory, of those that `ordering` knows; `kept` and `keep_inputs` are as for `place`.

    They stay as they are where steps run side by side, and on several backends, as more changes between these would cost more than memory.
    """
    backends = {id(step.backend): step.backend for step in steps}.values()
    if len(backends) != 1 or (values.runtime.inter_op_threads > 1 and any(backend.runs_abreast for backend in backends)):
        return steps

    def shares(steps: Sequence[Step]) -> list[_Share]:
        for position, step in enumerate(steps):
            step.wave = position
        return _shares(values, steps, kept, keep_inputs)

    return best_order(
        values,
        steps,
        kept,
        bound=lambda steps: sum(lower_bound(share.all(), share.backend.alignment) for share in shares(steps)),
        arena=lambda steps: sum(share.plan().arena_bytes for share in shares(steps)),
    )


def place(values: Values, steps: Sequence[Step], kept: Collection[int], keep_inputs: bool) -> MemoryPlan:
    """Plans the arenas and makes the tensors of all values that lie in them, and the steps' working memory.

    `kept` outlive the steps; with `keep_inputs`, so does what comes from the host.
    """
    totals = MemoryPlan((), 0)
    for share in _shares(values, steps, kept, keep_inputs):
        backend, plan = share.backend, share.plan()
        _check_limit(values, plan)
        arenas = [backend.allocate(max(nbytes, backend.alignment)) for nbytes in plan.arenas]  # empty tensors have an address too
        for index, buffer in share.buffers.items():
            name, layout = values.name(index), values.layout(index)
            values.tensors[index] = DeviceTensor(name, values.specs[index], backend, arenas[buffer.arena], buffer.offset, layout=layout)
        for step in share.working:
            spec, place = Spec(np.dtype(np.uint8), (step.working_memory.nbytes,)), step.working_memory
            step.scratch = DeviceTensor(f"{step.node.name}/scratch", spec, backend, arenas[place.arena], place.offset)
        totals = MemoryPlan(totals.arenas + plan.arenas, totals.lower_bound_bytes + plan.lower_bound_bytes)
    return totals


def _shares(values: Values, steps: Sequence[Step], kept: Collection[int], keep_inputs: bool) -> list[_Share]:
    """The buffers that steps need in the order of their waves, by backend."""
    for step in steps:
        nbytes = step.execution.scratch_bytes(*([values.spec(i) for i in indices] for indices in (step.inputs, step.outputs)))
        step.working_memory = Buffer(nbytes, step.wave, step.wave) if nbytes else None
    buffers, owners = _lifetimes(values, steps, kept, keep_inputs)
    return [
        _Share(
            backend,
            {i: b for i, b in buffers.items() if owners[i] is backend},
            [step for step in steps if step.working_memory and step.backend is backend],
        )
        for backend in values.runtime.backends
    ]


def _check_limit(values: Values, plan: MemoryPlan) -> None:
    limit = values.runtime.limits.memory_bytes
    if plan.arena_bytes > limit:
        raise LimitExceeded(
            f"the graph {values.graph.name!r} needs {plan.arena_bytes >> 20} MiB for these input shapes; "
            f"the limit is {limit >> 20} MiB. Check the input's shape, or raise Limits.memory_bytes (MNNX_MAX_MEMORY_MB)"
        )


def _lifetimes(
    values: Values, steps: Sequence[Step], kept: Collection[int], keep_inputs: bool
) -> tuple[dict[int, Buffer], dict[int, Backend]]:
    """The buffer of each value that needs memory, and the backend that it is on. What is used in a wave lives through all of it."""
    used: dict[int, int] = {}
    for step in steps:
        used.update(dict.fromkeys(values.roots((*step.inputs, *step.outputs)), step.wave))
    used.update({values.root(i): len(steps) for i in kept if i not in values.fed})
    if keep_inputs:
        used.update({i: len(steps) for i in values.fed if i in used})
    buffers: dict[int, Buffer] = {}
    owners: dict[int, Backend] = {}
    readers = {values.root(i): step.backend for step in reversed(steps) for i in step.inputs if i >= 0}
    on_main = {values.root(i) for step in steps for i in step.inputs if i >= 0 and step.backend is values.runtime.main}
    for index in values.fed:
        if values.on_device(index) and index in used:
            owners[index] = values.runtime.main if index in on_main else readers.get(index, values.runtime.main)
            buffers[index] = Buffer(values.stored_bytes(index, owners[index]), 0, used[index])
    last_readers = Counter(root for step in steps for root in values.roots(step.inputs) if used[root] == step.wave)
    for step in steps:
        for slot, output in enumerate(step.outputs):
            index = values.root(output) if output >= 0 else -1  # a view of what is put together from it and others
            if index >= 0 and index not in buffers:
                whole = slot == 0 and index == output
                taken = _taken_over(values, step, last_readers, buffers, owners) if whole else None
                nbytes = values.stored_bytes(index, step.backend)
                buffers[index] = Buffer(nbytes, step.wave, used[index]) if taken is None else buffers[taken]
                buffers[index].last = used[index]
                owners[index] = step.backend
    return buffers, owners


def _taken_over(values: Values, step: Step, last_readers: Counter[int], buffers: dict, owners: dict) -> int | None:
    """The input whose memory output 0 of this step may take over, if its execution allows that and nobody else needs it in this wave or
    later. `last_readers`: how many steps read a value in the last wave that uses it."""
    output = step.outputs[0]
    for place in step.execution.in_place:
        index = step.inputs[place] if place < len(step.inputs) else -1
        root = values.root(index) if index >= 0 else -1
        if root in buffers and owners[root] is step.backend and buffers[root].last == step.wave and last_readers[root] == 1:
            alone = sum(values.root(i) == root for i in step.inputs if i >= 0) == 1
            same = values.stored_bytes(root, step.backend) == values.stored_bytes(output, step.backend)
            if alone and same and values.layout(index) == values.layout(output):
                return root
    return None


def make_pipelines(values: Values, steps: Sequence[Step]) -> list[Pipeline]:
    """Groups the steps into runs on one backend; a tensor of another backend is copied over once."""
    pipelines: list[Pipeline] = []
    copies: dict[tuple[int, int], DeviceTensor] = {}
    position = 0
    while position < len(steps):
        backend = steps[position].backend
        units: list[Unit] = []
        transfers: list[tuple[DeviceTensor, DeviceTensor]] = []

        def here(index: int, backend: Backend = backend, transfers: list = transfers) -> DeviceTensor | None:
            if index < 0:
                return None
            tensor = values.tensor(index, backend)
            if tensor.backend is backend:
                return tensor
            if (index, id(backend)) not in copies:
                memory = backend.allocate(backend.stored_bytes(tensor.spec, tensor.layout))
                copy = DeviceTensor(tensor.name, tensor.spec, backend, memory, layout=tensor.layout)
                copies[index, id(backend)] = copy
                transfers.append((tensor, copy))
            return copies[index, id(backend)]

        while position < len(steps) and steps[position].backend is backend:
            step = steps[position]
            outputs = [None if i < 0 else values.tensor(i, backend) for i in step.outputs]
            inputs = [here(i) for i in step.inputs]
            unit = Unit(step.node, step.op, step.execution, inputs, outputs, step.scratch, step.reason, step.wave, step.lane)
            units.append(unit)
            position += 1
        pipelines.append(Pipeline(backend, units, transfers))
    return pipelines
