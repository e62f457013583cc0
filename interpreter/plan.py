"""A Plan: what is done for inputs of given shapes, as far as shapes can be known before anything runs.

Planning walks the remaining nodes of a graph in order. A node whose output shapes follow from what is known becomes a Unit (or, if it
only renames a whole tensor, a view; or, if its inputs' values are known, a constant). A node that needs values computed at run time is
left to run on the host when the plan is done; whatever depends on it is left for the next plan.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mnnx.backends.backend import Backend, Execution
from mnnx.backends.tensor import DeviceTensor
from mnnx.errors import LimitExceeded
from mnnx.interpreter.faults import blaming, check_limits
from mnnx.interpreter.geometry.region import piece
from mnnx.interpreter.geometry.registry import rewrite
from mnnx.interpreter.memory import ALIGNMENT, Buffer, MemoryPlan, plan_memory
from mnnx.interpreter.pipeline import Hooks, Pipeline
from mnnx.interpreter.runtime import Runtime, evaluate
from mnnx.interpreter.unit import Placement, Unit
from mnnx.schema import dtypes
from mnnx.schema.model import Graph, Node
from mnnx.schema.ops.base import DataDependent, Op, Spec
from mnnx.schema.ops.control_flow import If, Loop, Scan
from mnnx.schema.ops.raster import Raster
from mnnx.schema.records import Record

#: Results up to this many elements are computed at planning time when their inputs' values are known (shape arithmetic).
EVALUATED_ELEMENTS = 1 << 16

CONTROL_FLOW = (If, Loop, Scan)


class Plan(Record):
    """`uploads`: values to copy in before a run. `tensors`: where each value that outlives the plan lies. `known`: values computed at
    planning. `dynamic`: nodes to run on the host afterwards; `remaining`: nodes for the plans in `successors`, by their inputs' specs.
    """

    uploads: list[tuple[int, DeviceTensor]]
    pipelines: list[Pipeline]
    tensors: dict[int, DeviceTensor]
    known: dict[int, np.ndarray]
    specs: dict[int, Spec]
    dynamic: list[Node]
    remaining: list[Node]
    memory: MemoryPlan
    placement: list[Placement]
    flops: int = 0
    successors: dict[tuple, Plan] = dict

    def execute(self, hooks: Hooks | None) -> None:
        for pipeline in self.pipelines:
            pipeline.execute(hooks)


class _Step(Record):
    """A node that will be a Unit, before memory is planned."""

    node: Node
    op: Op
    inputs: Sequence[int]
    outputs: Sequence[int]
    backend: Backend
    reason: str
    execution: Execution
    working_memory: Buffer | None
    scratch: DeviceTensor | None = None


class Planner:
    """Builds one Plan: `live` are the values at hand on the host, `previous` the plan that ran before."""

    def __init__(
        self,
        graph: Graph,
        runtime: Runtime,
        nodes: list[Node],
        wanted: Sequence[int],
        live: dict[int, Spec | None],
        previous: Plan | None,
    ):
        self.graph = graph
        self.runtime = runtime
        self.nodes = nodes
        self.wanted = wanted
        self.fed = set(live)
        self.specs: dict[int, Spec | None] = dict(live)  # None: a value without a Spec (a sequence, text, …)
        self.tensors: dict[int, DeviceTensor] = dict(previous.tensors) if previous else {}
        self.known: dict[int, np.ndarray] = dict(previous.known) if previous else {}
        self.specs.update((i, tensor.spec) for i, tensor in self.tensors.items())
        self.specs.update((i, Spec.of(array)) for i, array in self.known.items())
        self.views: dict[int, tuple[int, int]] = {}  # a view → the value in whose memory it lies, and its first byte there
        self.constants: set[int] = set()
        self.steps: list[_Step] = []
        self.dynamic: list[Node] = []
        self.remaining: list[Node] = []
        self.placement: list[Placement] = []
        self.flops = 0

    def build(self) -> Plan:
        for node in self.nodes:
            self._plan_node(node)
        kept = self._kept()
        memory = self._place(kept)
        pipelines = self._pipelines()
        uploads = [(i, self.tensors[i]) for i in self.fed if i in self.tensors]
        known = {i: array for i, array in self.known.items() if i in kept}
        tensors = {i: self._tensor(i, self.runtime.main) for i in kept if i not in self.fed and self._on_device(i)}
        specs = {i: spec for i, spec in self.specs.items() if spec is not None and i in kept}
        return Plan(uploads, pipelines, tensors, known, specs, self.dynamic, self.remaining, memory, self.placement, self.flops)

    # ---- walking the nodes
    def _spec(self, index: int) -> Spec | None:
        """Spec of a value that is at hand; raises KeyError for one that isn't."""
        if index < 0:
            return None
        if index not in self.specs:
            constant = self.runtime.constant(self.graph, index)
            if constant is None:
                raise KeyError(index)
            self.constants.add(index)
            self.specs[index] = Spec.of(constant)
        return self.specs[index]

    def _plan_node(self, node: Node) -> None:
        try:
            specs = [self._spec(i) for i in node.inputs]
        except KeyError:
            self.remaining.append(node)
            return
        opaque = any(spec is None and i >= 0 for spec, i in zip(specs, node.inputs, strict=True))
        if opaque or isinstance(node.op, CONTROL_FLOW):
            self._defer(node)
            return
        try:
            with blaming(node, specs):
                results = node.op.infer(*specs)
        except DataDependent:
            self._defer(node)
            return
        results = results if isinstance(results, tuple) else (results,)
        if len(node.outputs) > len(results) or any(s is None and i >= 0 for i, s in zip(node.outputs, results, strict=False)):
            self._defer(node)  # what it gives beyond infer's word is seen when it has run
            return
        check_limits(node, results, self.runtime.limits)
        if any(spec.dtype == dtypes.STRING for spec in [*specs, *results] if spec is not None):
            self._defer(node)
        elif not self._evaluate(node, specs, results):
            self._add(node, specs, results)

    def _defer(self, node: Node) -> None:
        self.dynamic.append(node)
        self.placement.append(Placement(node.name, node.op.name, "", "cpu", self._host_reason()))

    def _host_reason(self) -> str:
        return "" if self.runtime.main.name == "cpu" else "its result's shape depends on data"

    def _evaluate(self, node: Node, specs: Sequence[Spec | None], results: Sequence[Spec | None]) -> bool:
        """Computes the node now where all its inputs' values are known."""
        outputs = [(i, spec) for i, spec in zip(node.outputs, results, strict=False) if i >= 0]
        if all(spec.value is not None for _, spec in outputs):
            values = [spec.value for _, spec in outputs]
        else:
            if not node.op.deterministic or any(spec is not None and spec.value is None for spec in specs):
                return False
            if all(i < 0 or i in self.constants for i in node.inputs):
                values = self.runtime.fold(self.graph, node)
                self.constants.update(i for i, _ in outputs)
            elif sum(spec.size for _, spec in outputs) <= EVALUATED_ELEMENTS:
                values = evaluate(node, [None if spec is None else spec.value for spec in specs])
            else:
                return False
            values = [value for i, value in zip(node.outputs, values, strict=False) if i >= 0]
        for (index, _), value in zip(outputs, values, strict=True):
            self.specs[index] = Spec.of(value)
            if index not in self.constants:
                self.known[index] = value
        return True

    def _add(self, node: Node, specs: Sequence[Spec | None], results: Sequence[Spec | None]) -> None:
        for index, spec in zip(node.outputs, results, strict=False):
            if index >= 0:
                self.specs[index] = Spec(spec.dtype, spec.shape)
        given = [None if i < 0 else self.specs[i] for i in node.inputs]
        with blaming(node, specs):
            rasters = rewrite(node.op, given, list(results))
        if rasters is None:
            self._add_step(node, node.op, node.inputs, node.outputs)
            return
        for index, raster in zip(node.outputs, rasters, strict=False):
            if index < 0:
                continue
            view = self._viewed(node, raster)
            if view is not None:
                self.views[index] = view
                self._place_row(node, index, self.runtime.main, "")
            else:
                read = [i if position in raster.sources else -1 for position, i in enumerate(node.inputs)]
                self._add_step(node, raster, read, [index])

    def _viewed(self, node: Node, raster: Raster) -> tuple[int, int] | None:
        """Where a raster's result already lies, as it is one dense, aligned piece of one source: (the source, its first byte there)."""
        found = piece(raster)
        if found is None or node.inputs[found[0]] in self.known or node.inputs[found[0]] in self.constants:
            return None
        root, first = self.views.get(node.inputs[found[0]], (node.inputs[found[0]], 0))
        offset = first + found[1] * raster.dtype.itemsize
        return (root, offset) if offset % ALIGNMENT == 0 else None

    def _add_step(self, node: Node, op: Op, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        specs = [None if i < 0 else self.specs[i] for i in inputs]
        results = [None if i < 0 else self.specs[i] for i in outputs]
        backend, reason = self.runtime.backend_for(node, op, specs, results)
        execution = backend.create(op, specs, results)
        nbytes = execution.scratch_bytes(specs, results)
        position = len(self.steps)
        working_memory = Buffer(nbytes, position, position) if nbytes else None
        self.steps.append(_Step(node, op, inputs, outputs, backend, reason, execution, working_memory))
        self._place_row(node, next(i for i in outputs if i >= 0), backend, reason)
        self.flops += node.op.flops(specs, results)

    def _place_row(self, node: Node, output: int, backend: Backend, reason: str) -> None:
        self.placement.append(Placement(node.name, node.op.name, dtypes.name(self.specs[output].dtype), backend.name, reason))

    # ---- memory
    def _root(self, index: int) -> int:
        while index in self.views:
            index = self.views[index][0]
        return index

    def _on_device(self, index: int) -> bool:
        return self.specs.get(index) is not None and index not in self.known and self._root(index) not in self.constants

    def _kept(self) -> set[int]:
        """Values that somebody needs when the plan has run."""
        kept = set(self.wanted)
        for node in [*self.dynamic, *self.remaining]:
            kept.update(node.inputs)
        return {i for i in kept if i >= 0 and (i in self.specs)}

    def _place(self, kept: set[int]) -> MemoryPlan:
        """Plans the arenas and makes the tensors of all values that lie in them."""
        end = len(self.steps)
        used: dict[int, int] = {}
        for position, step in enumerate(self.steps):
            used.update({self._root(i): position for i in step.inputs if i >= 0})
        used.update({self._root(i): end for i in kept if i not in self.fed})
        buffers: dict[int, Buffer] = {}
        owners: dict[int, Backend] = {}
        for index in self.fed:
            if self.specs[index] is not None and index not in self.known and self._root(index) in used:
                buffers[index] = Buffer(self.specs[index].nbytes, 0, used[index])
                owners[index] = self.runtime.main
        for position, step in enumerate(self.steps):
            for slot, index in enumerate(step.outputs):
                if index >= 0:
                    taken = self._taken_over(step, slot, position, used, buffers, owners) if slot == 0 else None
                    if taken is None:
                        buffers[index] = Buffer(self.specs[index].nbytes, position, used.get(index, position))
                    else:
                        buffers[index] = buffers[taken]
                        buffers[index].last = used.get(index, position)
                    owners[index] = step.backend
        totals = MemoryPlan(0, 0)
        for backend in self.runtime.backends:
            mine = {i: b for i, b in buffers.items() if owners[i] is backend}
            scratch = [s.working_memory for s in self.steps if s.working_memory and s.backend is backend]
            plan = plan_memory([*{id(b): b for b in mine.values()}.values(), *scratch])
            if plan.arena_bytes > self.runtime.limits.memory_bytes:
                raise LimitExceeded(
                    f"the graph {self.graph.name!r} needs {plan.arena_bytes >> 20} MiB for these input shapes; "
                    f"the limit is {self.runtime.limits.memory_bytes >> 20} MiB. Check the input's shape, or raise "
                    f"Limits.memory_bytes (MNNX_MAX_MEMORY_MB)"
                )
            arena = backend.allocate(max(plan.arena_bytes, ALIGNMENT)) if mine else None  # empty tensors have an address too
            for index, buffer in mine.items():
                spec = self.specs[index]
                self.tensors[index] = DeviceTensor(self.graph.values[index].name, spec, backend, arena, buffer.offset)
            for step in self.steps:
                if step.working_memory and step.backend is backend:
                    spec = Spec(np.dtype(np.uint8), (step.working_memory.nbytes,))
                    step.scratch = DeviceTensor(f"{step.node.name}/scratch", spec, backend, arena, step.working_memory.offset)
            totals = MemoryPlan(totals.arena_bytes + plan.arena_bytes, totals.lower_bound_bytes + plan.lower_bound_bytes)
        return totals

    def _taken_over(self, step, slot, position, used, buffers, owners) -> int | None:
        """The input whose memory output 0 of this step may take over, if its execution allows that and nobody needs it later."""
        for place in step.execution.in_place:
            root = self._root(step.inputs[place]) if place < len(step.inputs) and step.inputs[place] >= 0 else -1
            if root in buffers and owners[root] is step.backend and used[root] == position and buffers[root].last == position:
                shared = [i for i in step.inputs if i >= 0 and self._root(i) == root]
                if len(shared) == 1 and self.specs[root].nbytes == self.specs[step.outputs[slot]].nbytes:
                    return root
        return None

    # ---- units
    def _tensor(self, index: int, backend: Backend) -> DeviceTensor:
        """The tensor of a value on its own device; constants on `backend`."""
        if index in self.tensors:
            return self.tensors[index]
        spec = self.specs[index]
        if index in self.views:
            source, offset = self.views[index]
            base = self._tensor(source, backend)
            tensor = DeviceTensor(self.graph.values[index].name, spec, base.backend, base.memory, base.offset + offset)
            self.tensors[index] = tensor
            return tensor
        name = f"{self.graph.name}/{self.graph.values[index].name}" if index in self.constants else ""
        return backend.constant(name, self.known[index] if index in self.known else self.runtime.constant(self.graph, index))

    def _pipelines(self) -> list[Pipeline]:
        """Groups the steps into runs on one backend; a tensor of another backend is copied over once."""
        pipelines: list[Pipeline] = []
        copies: dict[tuple[int, int], DeviceTensor] = {}
        position = 0
        while position < len(self.steps):
            backend = self.steps[position].backend
            units: list[Unit] = []
            transfers: list[tuple[DeviceTensor, DeviceTensor]] = []
            while position < len(self.steps) and self.steps[position].backend is backend:
                step = self.steps[position]
                inputs = [None if i < 0 else self._here(i, backend, copies, transfers) for i in step.inputs]
                outputs = [None if i < 0 else self.tensors[i] for i in step.outputs]
                units.append(Unit(step.node, step.op, step.execution, inputs, outputs, step.scratch, step.reason))
                position += 1
            pipelines.append(Pipeline(backend, units, transfers))
        return pipelines

    def _here(self, index: int, backend: Backend, copies: dict, transfers: list) -> DeviceTensor:
        tensor = self._tensor(index, backend)
        if tensor.backend is backend:
            return tensor
        key = (index, id(backend))
        if key not in copies:
            memory = backend.allocate(math.prod(tensor.shape) * tensor.dtype.itemsize)
            copies[key] = DeviceTensor(tensor.name, tensor.spec, backend, memory)
            transfers.append((tensor, copies[key]))
        return copies[key]
