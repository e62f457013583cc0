"""A Plan: what is done for inputs of given shapes, as far as shapes can be known before anything runs.

Planning walks the remaining nodes of a graph in order. A node whose output shapes follow from what is known becomes a Unit (or, if it
only renames a whole tensor, a view; or, if its inputs' values are known, a constant). An If whose condition is known becomes the nodes of
its branch, a composed op its parts. A node that needs values computed at run time is left to run on the host when the plan is done;
whatever depends on it is left for the next plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mnnx.backends.backend import Backend
from mnnx.backends.tensor import DeviceTensor
from mnnx.interpreter.faults import blaming, check_limits
from mnnx.interpreter.geometry.region import piece
from mnnx.interpreter.geometry.registry import rewrite
from mnnx.interpreter.inlining import Inliner
from mnnx.interpreter.layouts import assign_layouts
from mnnx.interpreter.memory import MemoryPlan
from mnnx.interpreter.merging import merge_copies
from mnnx.interpreter.pipeline import Hooks, Pipeline
from mnnx.interpreter.placement import make_pipelines, order, place
from mnnx.interpreter.runtime import Runtime, evaluate
from mnnx.interpreter.step import Movement, Step
from mnnx.interpreter.unit import Placement
from mnnx.interpreter.values import Values
from mnnx.interpreter.waves import arrange
from mnnx.schema import dtypes
from mnnx.schema.model import Node
from mnnx.schema.ops.base import DataDependent, Op, Spec
from mnnx.schema.ops.control_flow import If, Loop, Scan, truth
from mnnx.schema.ops.raster import Raster
from mnnx.schema.records import Record

#: Results up to this many elements are computed at planning time when their inputs' values are known (shape arithmetic).
EVALUATED_ELEMENTS = 1 << 16

CONTROL_FLOW = (If, Loop, Scan)


class Plan(Record):
    """`uploads`: values to copy in before a run. `tensors`: where each value that outlives the plan lies. `known`: values computed at
    planning. `dynamic`: nodes to run on the host afterwards; `remaining`: nodes for the plans in `successors`, by their inputs' specs.
    `loop`: of a loop's body, how it is repeated (`repetition.py`).
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
    loop: Any = None

    def execute(self, hooks: Hooks | None) -> None:
        for pipeline in self.pipelines:
            pipeline.execute(hooks)


class Planner:
    """Builds one Plan: `live` are the values at hand on the host, `previous` the plan that ran before.

    `keep_inputs`: what comes from the host stays where it lies until the plan has run, so that it can run again on the same.
    """

    def __init__(
        self,
        inliner: Inliner,
        runtime: Runtime,
        nodes: list[Node],
        wanted: Sequence[int],
        live: dict[int, Spec | None],
        previous: Plan | None,
        keep_inputs: bool = False,
    ):
        self.graph = inliner.graph
        self.inliner = inliner
        self.runtime = runtime
        self.nodes = nodes
        self.wanted = wanted
        self.keep_inputs = keep_inputs
        self.values = Values(inliner.graph, runtime, live, previous)
        self.steps: list[Step] = []
        self.dynamic: list[Node] = []
        self.remaining: list[Node] = []
        self.placement: list[Placement] = []
        self.flops = 0

    def build(self) -> Plan:
        for node in self.nodes:
            self._plan_node(node)
        values, kept = self.values, self._kept()
        on_device = [i for i in kept if i in values.fed or values.on_device(i)]
        steps, plain = assign_layouts(values, self.steps, on_device)
        steps = merge_copies(values, steps)
        steps = order(values, steps, plain.values(), self.keep_inputs)
        steps = arrange(values, steps, self.runtime.inter_op_threads)
        memory = place(values, steps, plain.values(), self.keep_inputs)
        pipelines = make_pipelines(values, steps)
        uploads = [(i, values.tensors[i]) for i in values.fed if i in values.tensors]
        known = {i: array for i, array in values.known.items() if i in kept}
        tensors = {i: values.tensor(plain[i], self.runtime.main) for i in on_device if i not in values.fed}
        specs = {i: spec for i, spec in values.specs.items() if spec is not None and i in kept}
        return Plan(uploads, pipelines, tensors, known, specs, self.dynamic, self.remaining, memory, self.placement, self.flops)

    def _kept(self) -> set[int]:
        """Values that somebody needs when the plan has run."""
        kept = set(self.wanted)
        for node in [*self.dynamic, *self.remaining]:
            kept.update(node.inputs)
        return {i for i in kept if i >= 0 and (i in self.values.specs)}

    # ---- walking the nodes
    def _plan_node(self, node: Node) -> None:
        try:
            specs = [self.values.spec(i) for i in node.inputs]
        except KeyError:
            self.remaining.append(node)
            return
        if isinstance(node.op, If) and specs[0] is not None and specs[0].value is not None:
            with blaming(node, specs):
                nodes = self.inliner.inline(node, truth(specs[0].value, "condition"))
            for inner in nodes:
                self._plan_node(inner)
            return
        opaque = any(spec is None and i >= 0 for spec, i in zip(specs, node.inputs, strict=True))
        if opaque or isinstance(node.op, CONTROL_FLOW):
            self._defer(node)
            return
        try:
            with blaming(node, specs):
                results = node.op.infer_all(*specs)
        except DataDependent:
            self._defer(node)
            return
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
            if all(i < 0 or i in self.values.constants for i in node.inputs):
                values = self.runtime.fold(self.graph, node)
                self.values.constants.update(i for i, _ in outputs)
            elif sum(spec.size for _, spec in outputs) <= EVALUATED_ELEMENTS:
                values = evaluate(node, [None if spec is None else spec.value for spec in specs])
            else:
                return False
            values = [value for i, value in zip(node.outputs, values, strict=False) if i >= 0]
        for (index, _), value in zip(outputs, values, strict=True):
            if index in self.values.constants:
                self.values.spec(index)
            else:
                self.values.specs[index] = Spec.of(value)
                self.values.known[index] = value
        return True

    def _add(self, node: Node, specs: Sequence[Spec | None], results: Sequence[Spec | None]) -> None:
        if node.op.composed:
            for part in self.inliner.parts(node):
                self._plan_node(part)
            return
        for index, spec in zip(node.outputs, results, strict=False):
            if index >= 0:
                self.values.specs[index] = Spec(spec.dtype, spec.shape)
        given = [None if i < 0 else self.values.specs[i] for i in node.inputs]
        with blaming(node, specs):
            rasters = rewrite(node.op, given, list(results))
        if rasters is None:
            self._add_step(node, node.op, node.inputs, node.outputs)
            return
        for slot, (index, raster) in enumerate(zip(node.outputs, rasters, strict=False)):
            if index < 0:
                continue
            view = self._viewed(node, raster)
            if view is not None:
                self.values.views[index] = view
                self._place_row(node, index, self.runtime.main, "")
            else:
                read = [i if position in raster.sources else -1 for position, i in enumerate(node.inputs)]
                self._add_step(node, raster, read, [index], Movement(node.op, given, results, slot))

    def _viewed(self, node: Node, raster: Raster) -> tuple[int, int] | None:
        """Where a raster's result already lies, as it is one dense, aligned piece of one source: (the source, its first byte there)."""
        found = piece(raster)
        if found is None or node.inputs[found[0]] in self.values.known or node.inputs[found[0]] in self.values.constants:
            return None
        root, first = self.values.views.get(node.inputs[found[0]], (node.inputs[found[0]], 0))
        offset = first + found[1] * raster.dtype.itemsize
        return (root, offset) if offset % self.runtime.alignment == 0 else None

    def _add_step(self, node: Node, op: Op, inputs: Sequence[int], outputs: Sequence[int], movement: Movement | None = None) -> None:
        specs, results = ([None if i < 0 else self.values.specs[i] for i in indices] for indices in (inputs, outputs))
        backend, reason = self.runtime.backend_for(node, op, specs, results)
        execution = backend.create(op, specs, results)
        self.steps.append(Step(node, op, inputs, outputs, backend, reason, execution, movement))
        self._place_row(node, next(i for i in outputs if i >= 0), backend, reason)
        self.flops += node.op.flops(specs, results)

    def _place_row(self, node: Node, output: int, backend: Backend, reason: str) -> None:
        self.placement.append(Placement(node.name, node.op.name, dtypes.name(self.values.specs[output].dtype), backend.name, reason))
