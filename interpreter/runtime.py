"""What all graphs of a session share: its backends, its limits, and the constants that were computed once for all."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from mnnx.backends import host
from mnnx.backends.backend import Backend, SharedWeights, Specs
from mnnx.backends.expansion import Expansion
from mnnx.backends.prepared import PreparedWeights
from mnnx.errors import BackendError, LimitExceeded
from mnnx.interpreter.config import Limits
from mnnx.interpreter.faults import blaming
from mnnx.schema import dtypes
from mnnx.schema.model import Graph, Model, Node, Value
from mnnx.schema.ops.base import Op
from mnnx.schema.ops.cast import Cast

if TYPE_CHECKING:
    from mnnx.backends.tuning import Tuner


#: What weights may be stored in beside float32.
HALVES = ("float16", "bfloat16")


def evaluate(node: Node, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """A node's outputs on host values; blames the node for what goes wrong."""
    if not host.supports(node.op):
        raise BackendError(f"op {node.name!r}: {node.op.name} can't run on the host")
    with blaming(node, inputs), np.errstate(all="ignore"):
        return host.run(node.op, list(inputs))


def _expands(node: Node) -> bool:
    """Whether it is a Cast to float32, which is nothing but another form of a weight that is stored in 16 bits."""
    return isinstance(node.op, Cast) and node.op.to == np.float32 and node.outputs[0] >= 0


class SharedConstants:
    """Results of nodes whose inputs are all constants, computed once per model, by the value of the model that each one is."""

    def __init__(self) -> None:
        self.arrays: WeakKeyDictionary[Value, np.ndarray | Expansion] = WeakKeyDictionary()
        self._expansions: dict[int, Expansion] = {}  # by id of the half array, which they hold

    def expansion(self, half: np.ndarray) -> Expansion:
        """The one expansion of a half array of the model."""
        return self._expansions.setdefault(id(half), Expansion(half))


class LoadedModel:
    """A model in memory with what its sessions share; one per unchanged file and process."""

    def __init__(self, model: Model, path: Path | None = None):
        self.model = model
        self.path = path
        self.constants = SharedConstants()
        self.weights = SharedWeights(path, None if path is None else PreparedWeights(path, model))

    @cached_property
    def indices(self) -> dict[str, int]:
        """The values of the main graph by name."""
        return {value.name: index for index, value in enumerate(self.model.graphs[0].values)}

    @cached_property
    def weight_bytes(self) -> int:
        """Bytes of all constants."""
        arrays = {id(v.constant): v.constant for g in self.model.graphs for v in g.values if v.constant is not None}
        return sum(array.nbytes for array in arrays.values())


#: A loop may change its shapes once for so many of the iterations that a run may take, and at least so many times.
ITERATIONS_PER_PLAN, LEAST_PLANS = 32, 1024


class Runtime:
    """A session's backends in order of preference (the last one runs whatever the others don't), and what its graphs share.

    `tuner`: what the backends' choices go by beside estimates. `inter_op_threads`: how many ops may run at once. `iterations` counts those
    of all loops of a run, `plans` what was planned in it, `collected_bytes` what was put into sequences.
    """

    def __init__(
        self, backends: list[Backend], limits: Limits, constants: SharedConstants, tuner: Tuner | None = None, inter_op_threads: int = 1
    ):
        self.backends = backends
        self.tuner = tuner
        self.inter_op_threads = inter_op_threads
        self.limits = limits
        self._constants = constants
        self.start_run()

    def start_run(self) -> None:
        self.iterations = 0
        self.plans = 0
        self.collected_bytes = 0

    @property
    def iterations_left(self) -> int:
        """How many more iterations the loops of a run may take."""
        return self.limits.iterations - self.iterations

    def count_iterations(self, number: int = 1) -> None:
        """Raises LimitExceeded where the loops of a run, nested ones included, go on for too long."""
        self.iterations += number
        if self.iterations > self.limits.iterations:
            raise LimitExceeded(
                f"the model's loops ran {self.limits.iterations} times; raise Limits.iterations (MNNX_MAX_ITERATIONS) if that is meant"
            )

    def count_plan(self) -> None:
        """Raises LimitExceeded where loops change their shapes too often: each time costs as much as many iterations without that."""
        self.plans += 1
        most = max(LEAST_PLANS, self.limits.iterations // ITERATIONS_PER_PLAN)
        if self.plans > most:
            raise LimitExceeded(
                f"the model's loops changed the shapes of their values {most} times; raise Limits.iterations (MNNX_MAX_ITERATIONS), "
                f"of which a change of shapes counts as {ITERATIONS_PER_PLAN}, if that is meant"
            )

    def count_collected(self, nbytes: int) -> None:
        """Raises LimitExceeded where the sequences of a run take too much memory."""
        self.collected_bytes += nbytes
        if self.collected_bytes > self.limits.memory_bytes:
            raise LimitExceeded(
                f"the model put more than {self.limits.memory_bytes >> 20} MiB into sequences; "
                f"raise Limits.memory_bytes (MNNX_MAX_MEMORY_MB) if that is meant"
            )

    @property
    def kernels_compiled(self) -> int:
        """Kernels that this process has compiled since the backends were made."""
        return sum(backend.kernels_compiled for backend in self.backends)

    @cached_property
    def alignment(self) -> int:
        """What views must begin at a multiple of, in bytes, on any of the backends."""
        return max(backend.alignment for backend in self.backends)

    @property
    def main(self) -> Backend:
        return self.backends[0]

    def constant(self, graph: Graph, index: int) -> np.ndarray | None:
        """The array of a constant value, one computed from constants included; None for what is computed at run time."""
        array = graph.values[index].constant
        found = array if array is not None else self._constants.arrays.get(graph.values[index])
        return found.array() if isinstance(found, Expansion) else found

    def fold(self, graph: Graph, node: Node) -> list[Any]:
        """The outputs of a node whose inputs are all constants."""
        if _expands(node) and (half := graph.values[node.inputs[0]].constant) is not None and dtypes.name(half.dtype) in HALVES:
            self._constants.arrays[graph.values[node.outputs[0]]] = self._constants.expansion(half)
            return [self.constant(graph, node.outputs[0])]
        known = [None if i < 0 else self.constant(graph, i) for i in node.outputs]
        if any(array is None and i >= 0 for array, i in zip(known, node.outputs, strict=True)):
            results = evaluate(node, [None if i < 0 else self.constant(graph, i) for i in node.inputs])
            known = [None if i < 0 else value for i, value in zip(node.outputs, results, strict=False)]
            for index, value in zip(node.outputs, known, strict=False):
                if index >= 0:
                    self._constants.arrays[graph.values[index]] = value
        return known

    def backend_for(self, node: Node, op: Op, inputs: Specs, outputs: Specs) -> tuple[Backend, str]:
        """The first backend that supports an op on such tensors, and why the main one doesn't ("" where it does)."""
        reasons = []
        for backend in self.backends:
            reason = backend.supports(op, inputs, outputs)
            if reason is None:
                return backend, "; ".join(reasons)
            reasons.append(f"{backend.name}: {reason}")
        raise BackendError(f"op {node.name!r} ({node.op.name}) runs on none of the session's backends: {'; '.join(reasons)}")
