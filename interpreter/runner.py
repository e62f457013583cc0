"""Runs a graph: plan by plan, with the nodes that depend on data on the host in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mnnx.errors import BackendError, InputError
from mnnx.interpreter.faults import blaming, check_limits, check_text, check_values
from mnnx.interpreter.inlining import Inliner
from mnnx.interpreter.needed import needed_nodes
from mnnx.interpreter.pipeline import Hooks
from mnnx.interpreter.plan import CONTROL_FLOW, Plan, Planner
from mnnx.interpreter.runtime import Runtime, evaluate
from mnnx.interpreter.unit import HostValue, OperatorInfo
from mnnx.schema import dtypes
from mnnx.schema.log import log
from mnnx.schema.model import Graph, Node
from mnnx.schema.ops.base import DataDependent, Spec
from mnnx.schema.ops.control_flow import Loop, Scan

#: How many plans are kept for different shapes at one point of a graph, as long as their arenas together keep within the limit of
#: memory; the one used longest ago goes first.
CACHED_PLANS = 8

_Kind = tuple[np.dtype, tuple[int, ...]]


class GraphRunner:
    """Runs one graph for chosen outputs, for inputs of any shapes. Not for two threads at once.

    `repeats`: it is the body of a loop, whose plans can run again on the same inputs.
    """

    def __init__(self, graph: Graph, runtime: Runtime, outputs: Sequence[int] | None = None, repeats: bool = False):
        self.graph = Graph(graph.name, list(graph.values), graph.inputs, graph.outputs, graph.nodes)  # inlined branches add values
        self.runtime = runtime
        self.outputs = tuple(graph.outputs if outputs is None else outputs)
        self.nodes = needed_nodes(graph, self.outputs)
        self._inliner = Inliner(self.graph)
        self.repeats = repeats
        self.trail: list[Plan] = []  # the plans of the last run, in order
        self.is_planned = False  # whether these are all
        self._plans: dict[tuple, Plan] = {}
        self._bodies: dict[int, GraphRunner] = {}
        self._hoists: dict[int, tuple[Graph, Graph] | None] = {}

    def body(self, graph: Graph, repeats: bool = False) -> GraphRunner:
        """The runner of a subgraph."""
        if id(graph) not in self._bodies:
            self._bodies[id(graph)] = GraphRunner(graph, self.runtime, repeats=repeats)
        return self._bodies[id(graph)]

    def loop_body(self, op: Loop | Scan, captures: Sequence[Any], hooks: Hooks | None) -> tuple[GraphRunner, list[Any]]:
        """The runner of a loop's body, and what the body captures: for hooks that of the model, else one that is given what all iterations
        have in common, computed here."""
        hoisted = None if hooks else self._hoisted(op)
        if hoisted is None:
            return self.body(op.body, repeats=True), list(captures)
        common, body = hoisted
        return self.body(body, repeats=True), [*captures, *self.body(common).run(captures)]

    def _hoisted(self, op: Loop | Scan) -> tuple[Graph, Graph] | None:
        if id(op) not in self._hoists:
            from mnnx.interpreter.hoisting import hoist  # most models have no loops

            self._hoists[id(op)] = hoist(op.body, op.own_inputs - (isinstance(op, Scan) and op.batched))
        return self._hoists[id(op)]

    def first_plan(self, inputs: Sequence[Any]) -> Plan:
        """The plan that a run on these host values begins with."""
        return self._plan(self._plans, None, {i: _kind(value) for i, value in zip(self.graph.inputs, inputs, strict=True)})

    def expected(self, inputs: Sequence[Any]) -> list[Spec | None]:
        """What the outputs would be like for these host values of the inputs, as far as that is known before a run."""
        try:
            plan = self.first_plan(inputs)
        except InputError:  # no run on them is possible, nor asked for
            return [None] * len(self.outputs)
        given = dict(zip(self.graph.inputs, inputs, strict=True))
        return [self._expected(plan, given, index) for index in self.outputs]

    def _expected(self, plan: Plan, given: dict[int, Any], index: int) -> Spec | None:
        if index in plan.tensors:
            return plan.tensors[index].spec
        array = given.get(index, plan.known.get(index, self.graph.values[index].constant))
        return Spec.of(array) if isinstance(array, np.ndarray) else None

    def results(self, plan: Plan, host: dict[int, Any]) -> list[Any]:
        """The graph's outputs once its last plan has run; `host` has the values that are on the host by their indices."""
        return [_owned(self._fetch(plan, host, i)) for i in self.outputs]

    def prepare(self, specs: Sequence[Spec]) -> Plan:
        """Plans what can be planned for inputs of these Specs."""
        plan = self._plan(self._plans, None, {i: (s.dtype, s.shape) for i, s in zip(self.graph.inputs, specs, strict=True)})
        self.trail = [plan]
        self.is_planned = not plan.dynamic and not plan.remaining
        return plan

    def run(self, inputs: Sequence[Any], hooks: Hooks | None = None) -> list[Any]:
        """The graph's outputs for host values of its inputs (ndarrays, lists, None): fresh arrays; sequences may be those of inputs."""
        host: dict[int, Any] = dict(zip(self.graph.inputs, inputs, strict=True))
        plans, previous = self._plans, None
        trail: list[Plan] = []
        while True:
            plan = self._plan(plans, previous, {i: _kind(value) for i, value in host.items()})
            trail.append(plan)
            for index, tensor in plan.uploads:
                tensor.copy_from_host(host[index])
            plan.execute(hooks)
            if not plan.dynamic:
                break
            for node in plan.dynamic:
                values = [None if i < 0 else self._fetch(plan, host, i) for i in node.inputs]
                host.update(zip(node.outputs, self._run_dynamic(node, values, hooks), strict=False))
            host.pop(-1, None)
            if not plan.remaining:
                break
            plans, previous = plan.successors, plan
        self.trail, self.is_planned = trail, True
        return self.results(plan, host)

    def _plan(self, plans: dict[tuple, Plan], previous: Plan | None, live: dict[int, _Kind | None]) -> Plan:
        key = tuple(live.items())
        plan = plans.pop(key, None)
        if plan is None:
            self.runtime.count_plan()
            nodes = self.nodes if previous is None else previous.remaining
            before = self.runtime.kernels_compiled
            specs = {i: kind and Spec(*kind) for i, kind in live.items()}
            plan = Planner(self._inliner, self.runtime, nodes, self.outputs, specs, previous, self.repeats).build()
            if compiled := self.runtime.kernels_compiled - before:
                log().info("%d kernels had to be compiled for the graph %r", compiled, self.graph.name)
            taken = plan.memory.arena_bytes + sum(kept.memory.arena_bytes for kept in plans.values())
            while plans and (len(plans) >= CACHED_PLANS or taken > self.runtime.limits.memory_bytes):
                taken -= plans.pop(next(iter(plans))).memory.arena_bytes
        plans[key] = plan  # the newest use stands last
        return plan

    def _fetch(self, plan: Plan, host: dict[int, Any], index: int) -> Any:
        """A value as a host value; an array may be a view that holds until the next run."""
        if index in host:
            return host[index]
        if index in plan.known:
            return plan.known[index]
        if index in plan.tensors:
            tensor = plan.tensors[index]
            return tensor.backend.host_view(tensor)
        return self.runtime.constant(self.graph, index)

    def _run_dynamic(self, node: Node, values: list[Any], hooks: Hooks | None) -> Sequence[Any]:
        info = OperatorInfo(node.name, node.op.name, "cpu")
        if hooks:
            hooks.before(self._seen(node.inputs, values), info)
        if isinstance(node.op, CONTROL_FLOW):
            from mnnx.interpreter.control_flow import RUNNERS

            with blaming(node, values):
                results = RUNNERS[type(node.op)](node.op, values, len(node.outputs), self, hooks)
        else:
            results = self._run_on_host(node, values)
            if any(isinstance(value, list) for value in results):
                self.runtime.count_collected(sum(value.nbytes for value in values if isinstance(value, np.ndarray)))
        if any(i >= 0 for i in node.outputs[len(results) :]):
            raise InputError(f"op {node.name!r} ({node.op.name}) has {len(results)} outputs, the model wants {len(node.outputs)} of it")
        if hooks:
            hooks.after(self._seen(node.outputs, results), info)
        return results

    def _seen(self, indices: Sequence[int], values: Sequence[Any]) -> list[HostValue | None]:
        """What a callback sees of host values."""
        return [None if i < 0 or v is None else HostValue(self.graph.values[i].name, v) for i, v in zip(indices, values, strict=False)]

    def _run_on_host(self, node: Node, values: list[Any]) -> Sequence[Any]:
        specs = [Spec.of(value) if isinstance(value, np.ndarray) else None for value in values]
        wanted: Sequence[Spec | None] = ()
        if all(spec is not None or value is None for spec, value in zip(specs, values, strict=True)):
            try:
                with blaming(node, values):
                    wanted = node.op.infer_all(*specs)
                check_limits(node, wanted, self.runtime.limits)
            except DataDependent:
                pass  # only the computation itself knows its result's shape
        results = evaluate(node, values)
        check_values(node, results)
        check_limits(node, [Spec.of(value) for value in results if isinstance(value, np.ndarray)], self.runtime.limits)
        check_text(node, results, self.runtime.limits)
        for value, spec in zip(results, wanted, strict=False):
            if spec is not None and isinstance(value, np.ndarray) and (value.dtype, value.shape) != (spec.dtype, spec.shape):
                raise BackendError(
                    f"op {node.name!r} ({node.op.name}) gave {dtypes.name(value.dtype)}{list(value.shape)} where {spec} was expected"
                )
        return results


def _kind(value: Any) -> _Kind | None:
    """Dtype and shape of a host array; None for other values (sequences, text, what is left out)."""
    return (value.dtype, value.shape) if isinstance(value, np.ndarray) and value.dtype != dtypes.STRING else None


def _owned(value: Any) -> Any:
    """A value that outlives this graph's memory; sequences hold none of it."""
    return value.copy() if isinstance(value, np.ndarray) else value
