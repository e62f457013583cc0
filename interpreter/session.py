"""A Session: one model on chosen devices, with its own memory, for one caller at a time."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from mnnx.errors import InputError, SessionStateError
from mnnx.interpreter.config import ScheduleConfig
from mnnx.interpreter.pipeline import Callback, Hooks
from mnnx.interpreter.plan import Plan
from mnnx.interpreter.runner import GraphRunner
from mnnx.interpreter.runtime import LoadedModel, Runtime
from mnnx.interpreter.shared_dims import SharedDims
from mnnx.interpreter.tensor import NamedTensors, SessionTensor, copied
from mnnx.interpreter.unit import CallbackStop, Placement
from mnnx.schema import dtypes
from mnnx.schema.ops.base import Spec

if TYPE_CHECKING:
    from concurrent.futures import Future

    from mnnx.backends.tuning_file import TuningFile
    from mnnx.interpreter.interpreter import Interpreter
    from mnnx.interpreter.later import LaterRuns

NO_ERROR = 0
CALL_BACK_STOP = 11

#: For how many choices of outputs a session keeps what it planned; the one used longest ago goes first.
CACHED_RUNNERS = 8


class Session:
    """Made by `Interpreter.create_session`. Different sessions run in parallel; one session runs for one caller at a time."""

    def __init__(self, interpreter: Interpreter, loaded: LoadedModel, runtime: Runtime, config: ScheduleConfig):
        self.interpreter = interpreter
        self.config = config
        self._runtime: Runtime | None = runtime
        self._loaded = loaded
        self._graph = loaded.model.graphs[0]
        self._runners: dict[tuple[int, ...], GraphRunner] = {}
        self._last: GraphRunner | None = None
        self._results: dict[str, Any] = {}
        self._busy = threading.Lock()
        self._user: int | None = None  # the thread that holds it
        self._pid = os.getpid()
        self._asking = threading.Lock()
        self._later: LaterRuns | None = None
        values = self._graph.values
        self._wanted = tuple(dict.fromkeys([*self._graph.outputs, *map(self._find, config.save_tensors)]))
        self.inputs = NamedTensors("input", (SessionTensor(values[i], loaded.model.ranges) for i in self._graph.inputs))
        self.outputs = NamedTensors("output", (SessionTensor(values[i], results=self._results) for i in self._wanted))
        self._shared_dims = SharedDims({name: tensor.dims for name, tensor in self.inputs.items()})
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
        self._enter()
        try:
            return self._run(feed, outputs, None)
        finally:
            self._leave()

    def run_async(self, feed: Mapping[str, Any] | None = None, outputs: Sequence[str] | None = None) -> Future:
        """As `run`, in a thread of the session's own: a Future of what `run` returns, or raises. Don't change the feed's arrays before.

        Runs asked for so are done one after the other, in their order, each as soon as nobody else uses the session.
        """
        self._notice_fork()
        self._check_alive()
        with self._asking:
            if self._later is None:
                from mnnx.interpreter.later import LaterRuns

                self._later = LaterRuns(self._run_later)
        return self._later.submit(feed, outputs)

    def _run_later(self, feed: Mapping[str, Any] | None, outputs: Sequence[str] | None) -> dict[str, Any]:
        self._enter(wait=True)
        try:
            return self._run(feed, outputs, None)
        finally:
            self._leave()

    def run_with_callbacks(self, before: Callback, after: Callback, feed: Mapping[str, Any] | None = None) -> int:
        """Runs op by op; `before(tensors, info)` and `after(tensors, info)` see the op's inputs and outputs.

        Tensors have `name`, `shape`, `dtype` and `copy_to_host()`; info has `name`, `type` and `backend`. A callback that returns False
        stops the run, and what it raises comes out of here. Returns 0, or CALL_BACK_STOP where a callback stopped it.
        """
        if not callable(before) or not callable(after):
            raise InputError("run_with_callbacks wants two functions (tensors, info)")
        with self._exclusive():
            try:
                self._run(feed, None, Hooks(before, after))
                return NO_ERROR
            except CallbackStop as stop:
                error = stop.error
            if error is not None:
                raise error
            return CALL_BACK_STOP

    def _run(self, feed: Mapping[str, Any] | None, outputs: Sequence[str] | None, hooks: Hooks | None) -> dict[str, Any]:
        values = self._feed(feed)
        self._shared_dims.check({name: tensor.shape for name, tensor in self.inputs.items() if tensor.kind == "tensor"})
        runner = self._runner(outputs)
        self._last = runner
        self._results.clear()
        self._runtime.start_run()
        # The graph gives fresh arrays, but sequences that share theirs with inputs.
        fresh = {}
        for index, value in zip(runner.outputs, runner.run(values, hooks), strict=True):
            name, is_array = self._graph.values[index].name, isinstance(value, np.ndarray)
            self._results[name] = value if is_array else copied(value)
            fresh[name] = value.copy() if is_array else copied(value)
            if is_array and name in self.outputs:
                self.outputs[name].note_shape(value.shape)
        self._save_tuning()
        return fresh

    def _feed(self, feed: Mapping[str, Any] | None) -> list[Any]:
        if feed is None:
            for tensor in self.inputs.values():
                if not tensor.filled and tensor.is_open and tensor.kind == "tensor":
                    raise SessionStateError(
                        f"input {tensor.name!r} has open dims {list(tensor.shape)} ({tensor.dims}): call resize first, or give run a feed"
                    )
            return [None if t.kind == "optional" and not t.filled else t.data() for t in self.inputs.values()]
        self._check_inputs(feed, "array")
        values = []
        for name, tensor in self.inputs.items():
            if name not in feed:
                if tensor.kind == "optional":
                    values.append(None)
                    continue
                raise InputError(f"input {name!r} is missing from the feed; the model wants {self.inputs.names}")
            value = tensor.check(feed[name])
            if isinstance(value, np.ndarray):
                tensor.note_shape(value.shape)
            values.append(value)
        return values

    def _check_inputs(self, given: Mapping[str, Any], what: str) -> None:
        """Raises InputError where `given` isn't a dict {input name: `what`} of inputs that there are."""
        if not isinstance(given, Mapping):
            found = type(given).__name__
            raise InputError(f"the session wants a dict {{input name: {what}}}, got {found}; the inputs are {self.inputs.names}")
        for name in given:
            if name not in self.inputs:
                raise InputError(f"the model has no input {name!r}; its inputs are {self.inputs.names}")

    def _runner(self, names: Sequence[str] | None) -> GraphRunner:
        if isinstance(names, str):
            raise InputError(f"outputs is a list of names; for one output write [{names!r}]")
        try:
            wanted = self._wanted if names is None else tuple(map(self._find, iter(names)))
        except TypeError:
            raise InputError(f"outputs is a list of names, not {type(names).__name__}") from None
        runner = self._runners.pop(wanted, None) or GraphRunner(self._graph, self._runtime, wanted)
        if len(self._runners) >= CACHED_RUNNERS:
            self._runners.pop(next(iter(self._runners)))
        self._runners[wanted] = runner  # the newest use stands last
        return runner

    def _find(self, name: str) -> int:
        """The index of a named value of the main graph; says what became of one that is gone."""
        if not isinstance(name, str):
            raise InputError(f"a tensor is asked for by its name, a str, not {type(name).__name__}")
        if (index := self._loaded.indices.get(name)) is not None:
            return index
        for removed in self._loaded.model.removed:
            if removed.name == name:
                kept = removed.keep_level
                advice = f"convert with level={kept} to keep it" if kept >= 0 else "make it an output to keep it"
                raise InputError(f"the tensor {name!r} no longer exists: the pass {removed.by_pass} took it away; {advice}")
        outputs = ", ".join(repr(self._graph.values[i].name) for i in self._graph.outputs)
        raise InputError(f"the model has no tensor {name!r}; its outputs are {outputs}")

    # ---- shapes
    def resize(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Sets input shapes and plans the model for them; outputs' shapes are known afterwards, as far as data doesn't decide them."""
        with self._exclusive():
            self._check_inputs(shapes, "shape")
            checked = {name: self.inputs[name].checked_shape(shape) for name, shape in shapes.items()}
            self._shared_dims.check(checked)
            for name, shape in checked.items():
                self.inputs[name].set_shape(shape)
            self._prepare()

    def _prepare(self) -> None:
        """Plans for the inputs' present shapes where all are known."""
        tensors = list(self.inputs.values())
        if any(t.kind != "tensor" or t.dtype is None or t.dtype == dtypes.STRING or t.is_open for t in tensors):
            return
        self._shared_dims.check({tensor.name: tensor.shape for tensor in tensors})
        runner = self._runner(None)
        plan = runner.prepare([Spec(t.dtype, t.shape) for t in tensors])
        self._save_tuning()
        self._last = runner
        for index, tensor in zip(self._wanted, self.outputs.values(), strict=True):
            spec = plan.specs.get(index)
            tensor.note_shape(spec.shape if spec else None)

    # ---- tuning
    def _save_tuning(self) -> None:
        if self._runtime.tuner is not None:
            self._runtime.tuner.save()

    def write_tuning(self, file: TuningFile) -> None:
        """Adds the times that this session's choices go by to a file."""
        with self._exclusive():
            if self._runtime.tuner is not None:
                self._runtime.tuner.write(file)

    # ---- telling
    def placement(self) -> list[Placement]:
        """Where each op of the last run (or resize) runs, one row per op. Raises SessionStateError before any."""
        return [row for plan in self._trail() for row in plan.placement]

    def info(self) -> dict[str, Any]:
        """memory_mb, arena_bytes, arena_lower_bound_bytes, weight_bytes, flops, num_threads, backends, kernels_compiled of the last run.

        tuned: problems (ops of the same kind and shapes) that this session measured; tuned_from_cache: those that it found in the cache
        file.

        complete: whether all ops are counted. Before a run that is not so where shapes depend on data: what comes after the first such
        op is planned when the model runs. Bodies of Loop and Scan, and of an If whose condition depends on data, are never counted in
        arena_bytes and flops.
        """
        trail = self._trail() if self._last else []
        arena = sum(plan.memory.arena_bytes for plan in trail)
        weights = self._loaded.weight_bytes
        runtime = self._check_alive()
        backends, tuner = runtime.backends, runtime.tuner
        return {
            "memory_mb": (arena + weights) / 2**20,
            "arena_bytes": arena,
            "arena_lower_bound_bytes": sum(plan.memory.lower_bound_bytes for plan in trail),
            "weight_bytes": weights,
            "flops": sum(plan.flops for plan in trail),
            "complete": self.is_planned,
            "num_threads": max(b.threads for b in backends),
            "backends": [b.name for b in backends],
            "kernels_compiled": sum(b.kernels_compiled for b in backends),
            "tuned": tuner.measured if tuner else 0,
            "tuned_from_cache": tuner.from_file if tuner else 0,
        }

    @property
    def is_planned(self) -> bool:
        """Whether all of the model is planned for the present shapes; what depends on data is planned when it runs."""
        return self._last is not None and self._last.is_planned

    def _trail(self) -> list[Plan]:
        if self._last is None:
            raise SessionStateError("the session was neither resized nor run yet")
        return self._last.trail

    def __repr__(self) -> str:
        if self._runtime is None:
            return "Session(released)"
        backends = ", ".join(b.name for b in self._runtime.backends)
        threads = max(b.threads for b in self._runtime.backends)
        return f"Session({[*self.inputs.values()]} → {[*self.outputs.values()]}, {backends}, {threads} threads)"

    # ---- life
    def release(self) -> None:
        """Gives back memory and threads; the session can't be used afterwards. Releasing twice is fine.

        Waits for a run in another thread, and cancels those of `run_async` that have not begun; raises SessionStateError in a callback of
        its own run.
        """
        self._notice_fork()
        if self._user == threading.get_ident():
            raise SessionStateError("a callback can't release the session that calls it; return False, and release it after the run")
        if self._later is not None:
            self._later.close()
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

    def _notice_fork(self) -> None:
        """In a forked child, whoever held the session in the parent isn't there to let go of it."""
        if self._pid != os.getpid():
            self._pid, self._busy, self._user, self._asking = os.getpid(), threading.Lock(), None, threading.Lock()

    def _enter(self, wait: bool = False) -> None:
        """Takes the session for a call of the present thread; `_leave` gives it back. `wait`: until nobody else has it."""
        self._notice_fork()
        thread = threading.get_ident()
        if self._user == thread:
            raise SessionStateError("a callback can't use the session that calls it; make another session for that")
        if not self._busy.acquire(blocking=wait):
            raise SessionStateError("the session is in use by another thread; create one session per thread")
        self._user = thread
        if self._runtime is None:
            self._leave()
            self._check_alive()

    def _leave(self) -> None:
        self._user = None
        self._busy.release()

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        self._enter()
        try:
            yield
        finally:
            self._leave()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.release()
