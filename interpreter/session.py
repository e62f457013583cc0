"""A Session: one model on chosen devices, with its own memory, for one caller at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from mnnx.errors import InputError, SessionStateError
from mnnx.interpreter.config import ScheduleConfig
from mnnx.interpreter.pipeline import Callback, Hooks
from mnnx.interpreter.plan import Plan
from mnnx.interpreter.runner import GraphRunner
from mnnx.interpreter.runtime import Runtime
from mnnx.interpreter.tensor import Tensor
from mnnx.interpreter.unit import CallbackStop, Placement
from mnnx.schema.ops.base import Spec

if TYPE_CHECKING:
    from mnnx.interpreter.interpreter import Interpreter

NO_ERROR = 0
CALL_BACK_STOP = 6


def _result(results: dict[str, Any], name: str) -> Any:
    if name not in results:
        raise SessionStateError(f"output {name!r} has no value yet; run the session first")
    return results[name]


class Session:
    """Made by `Interpreter.create_session`. Different sessions run in parallel; one session runs for one caller at a time."""

    def __init__(self, interpreter: Interpreter, runtime: Runtime, config: ScheduleConfig):
        self.interpreter = interpreter
        self.config = config
        self._runtime: Runtime | None = runtime
        self._graph = interpreter.model.graphs[0]
        self._runners: dict[tuple[int, ...], GraphRunner] = {}
        self._last: GraphRunner | None = None
        self._results: dict[str, Any] = {}
        self._busy = threading.Lock()
        values = self._graph.values
        self.inputs: dict[str, Tensor] = {values[i].name: Tensor(values[i]) for i in self._graph.inputs}
        self.outputs: dict[str, Tensor] = {
            values[i].name: Tensor(values[i], partial(_result, self._results, values[i].name)) for i in self._graph.outputs
        }
        if all(t.kind == "tensor" and -1 not in t.shape and t.dims is not None and t.dtype is not None for t in self.inputs.values()):
            with self._exclusive():
                self._prepare()

    # ---- running
    def run(self, feed: Mapping[str, Any] | None = None, outputs: Sequence[str] | None = None) -> dict[str, Any]:
        """Runs the model; returns {name: value} of fresh arrays that the caller owns.

        feed: {input name: value}; without it the session runs on what was copied into `inputs`. outputs: which outputs, or named
        tensors inside the model, are wanted; only what they need runs. Another shape than before resizes by itself.

        Raises InputError for a wrong name, dtype, rank or fixed dim, SessionStateError for a released or running session or an input
        never filled, LimitExceeded for a model that asks for too much.
        """
        with self._exclusive():
            return self._run(feed, outputs, None)

    def run_with_callbacks(self, before: Callback, after: Callback, feed: Mapping[str, Any] | None = None) -> int:
        """Runs op by op; `before(tensors, info)` and `after(tensors, info)` see the op's inputs and outputs.

        Tensors have `name`, `shape`, `dtype` and `copy_to_host()`; info has `name`, `type` and `backend`. A callback that returns False
        stops the run. Returns 0, or CALL_BACK_STOP where a callback stopped it.
        """
        with self._exclusive():
            try:
                self._run(feed, None, Hooks(before, after))
            except CallbackStop:
                return CALL_BACK_STOP
            return NO_ERROR

    def _run(self, feed: Mapping[str, Any] | None, outputs: Sequence[str] | None, hooks: Hooks | None) -> dict[str, Any]:
        values = self._feed(feed)
        runner = self._runner(outputs)
        self._last = runner
        results = runner.run(values, hooks)
        names = [self._graph.values[i].name for i in runner.outputs]
        self._results.clear()
        self._results.update(zip(names, results, strict=True))
        for name, value in self._results.items():
            if name in self.outputs and isinstance(value, np.ndarray):
                self.outputs[name].note_shape(value.shape)
        return dict(self._results)

    def _feed(self, feed: Mapping[str, Any] | None) -> list[Any]:
        if feed is None:
            for tensor in self.inputs.values():
                if not tensor.filled and -1 in tensor.shape:
                    raise SessionStateError(
                        f"input {tensor.name!r} has open dims {list(tensor.shape)} ({tensor.dims}): call resize first, or give run a feed"
                    )
            return [t.data() for t in self.inputs.values()]
        if unknown := [name for name in feed if name not in self.inputs]:
            raise InputError(f"the model has no input {unknown[0]!r}; its inputs are {', '.join(map(repr, self.inputs)) or 'none'}")
        values = []
        for name, tensor in self.inputs.items():
            if name not in feed:
                if tensor.kind == "optional":
                    values.append(None)
                    continue
                raise InputError(f"input {name!r} is missing from the feed; the model wants {', '.join(map(repr, self.inputs))}")
            value = tensor.check(feed[name])
            if isinstance(value, np.ndarray):
                tensor.note_shape(value.shape)
            values.append(value)
        return values

    def _runner(self, names: Sequence[str] | None) -> GraphRunner:
        graph = self._graph
        wanted = graph.outputs if names is None else tuple(self._find(name) for name in names)
        if wanted not in self._runners:
            self._runners[wanted] = GraphRunner(graph, self._runtime, wanted)
        return self._runners[wanted]

    def _find(self, name: str) -> int:
        """The index of a named value of the main graph; says what became of one that is gone."""
        index = self.interpreter.value_index(name)
        if index is not None:
            return index
        for removed in self.interpreter.model.removed:
            if removed.name == name:
                raise InputError(
                    f"the tensor {name!r} no longer exists: the pass {removed.by_pass} fused it away. Convert with level={removed.keep_level} to keep it"
                )
        raise InputError(f"the model has no tensor {name!r}; its outputs are {', '.join(map(repr, self.outputs))}")

    # ---- shapes
    def resize(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Sets input shapes and plans the model for them; outputs' shapes are known afterwards, as far as data doesn't decide them."""
        with self._exclusive():
            if unknown := [name for name in shapes if name not in self.inputs]:
                raise InputError(f"the model has no input {unknown[0]!r}; its inputs are {', '.join(map(repr, self.inputs)) or 'none'}")
            for name, shape in shapes.items():
                self.inputs[name].set_shape(shape)
            self._prepare()

    def _prepare(self) -> None:
        """Plans for the inputs' present shapes where all are known."""
        tensors = list(self.inputs.values())
        if any(t.kind != "tensor" or t.dtype is None or -1 in t.shape for t in tensors):
            return
        runner = self._runner(None)
        plan = runner.prepare([Spec(t.dtype, t.shape) for t in tensors])
        self._last = runner
        for index, tensor in zip(self._graph.outputs, self.outputs.values(), strict=False):
            spec = plan.specs.get(index)
            tensor.note_shape(spec.shape if spec else None)

    # ---- telling
    def placement(self) -> list[Placement]:
        """Where each op of the last run (or resize) runs, one row per op. Raises SessionStateError before any."""
        return [row for plan in self._trail() for row in plan.placement]

    def info(self) -> dict[str, Any]:
        """memory_mb, arena_bytes, arena_lower_bound_bytes, weight_bytes, flops, num_threads, backends, kernels_compiled of the last run."""
        trail = self._trail() if self._last else []
        arena = sum(plan.memory.arena_bytes for plan in trail)
        weights = self.interpreter.weight_bytes()
        backends = self._check_alive().backends
        return {
            "memory_mb": (arena + weights) / 2**20,
            "arena_bytes": arena,
            "arena_lower_bound_bytes": sum(plan.memory.lower_bound_bytes for plan in trail),
            "weight_bytes": weights,
            "flops": sum(plan.flops for plan in trail),
            "num_threads": max(b.threads for b in backends),
            "backends": [b.name for b in backends],
            "kernels_compiled": sum(b.kernels_compiled for b in backends),
        }

    def _trail(self) -> list[Plan]:
        if self._last is None:
            raise SessionStateError("the session was neither resized nor run yet")
        return self._last.trail

    # ---- life
    def release(self) -> None:
        """Gives back memory and threads; the session can't be used afterwards. Releasing twice is fine."""
        with self._busy:
            runtime, self._runtime = self._runtime, None
            self._runners.clear()
            self._last = None
            if runtime is not None:
                for backend in runtime.backends:
                    backend.release()

    def _check_alive(self) -> Runtime:
        if self._runtime is None:
            raise SessionStateError("the session was released; create a new one")
        return self._runtime

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        if not self._busy.acquire(blocking=False):
            raise SessionStateError("the session is in use by another thread; create one session per thread")
        try:
            self._check_alive()
            yield
        finally:
            self._busy.release()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.release()
