"""What a device is to the interpreter, and the two factories: `register_backend` for devices, `Creators` for a device's executions."""

from __future__ import annotations

import importlib
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mnnx.backends.blocked import can_block, tensor_bytes
from mnnx.backends.expansion import origin
from mnnx.backends.mapped import forget_pages
from mnnx.backends.prepared import PreparedWeights
from mnnx.backends.tensor import DeviceTensor
from mnnx.errors import BackendUnavailable
from mnnx.schema.ops.base import Op, Spec
from mnnx.schema.ops.families import Families
from mnnx.schema.records import Row

if TYPE_CHECKING:
    from mnnx.backends.tuning import Tuner
    from mnnx.backends.tuning_file import Device

Specs = Sequence[Spec | None]
Tensors = Sequence[DeviceTensor | None]


class Layouts(Row):
    """One way to run an op: the layout of each input and of each output (`DeviceTensor.layout`; 0 also for what is left out).

    `saves`: how much faster than with plain tensors the execution is that way, as bytes of memory traffic; the planner weighs it against
    the traffic of repacking. 0: it is as fast per byte; then it is chosen where it avoids repacking.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    saves: float = 0.0

    @classmethod
    def of_images(cls, inputs: Specs, outputs: Specs, lanes: int) -> Sequence[Layouts]:
        """The way from an image in blocks to an image in blocks, the first input and output; none where such can't be blocked."""
        return [cls((lanes, *(0 for _ in inputs[1:])), (lanes, *(0 for _ in outputs[1:])))] if can_block(outputs[0]) else ()


class Execution(ABC):
    """One op on one device, for tensors of fixed shapes. A new one is made at every resize."""

    #: Indices of inputs whose memory output 0 may take over (same number of bytes, read before they are overwritten).
    in_place: tuple[int, ...] = ()
    #: The way that the planner chose, set before `scratch_bytes` is asked; None: all tensors are plain.
    way: Layouts | None = None

    def __init__(self, op: Op, backend: Backend):
        self.op = op
        self.backend = backend

    def layouts(self, inputs: Specs, outputs: Specs, lanes: int) -> Sequence[Layouts]:
        """The ways to run it with blocked tensors, beside the plain one, which is always possible; `lanes` is the only block width.

        Constant inputs are plain in all of them: an execution packs its weights itself.
        """
        return ()

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        """Bytes of working memory needed while this runs; asked before memory is planned."""
        return 0

    @abstractmethod
    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        """Chooses the algorithm and records the work in the backend's command list. Tensors stay where they are from here on."""


Creator = Callable[[Op, "Backend", Specs, Specs], Execution]
Support = Callable[[Op, Specs, Specs], str | None]


class Creators:
    """A device's factory of executions: op class → creator, filled by the decorator

        @creator(MaxPool, AveragePool, supports=float32_only)
        def create(op, backend, inputs, outputs): return PoolExecution(op, backend)

    `supports(op, inputs, outputs)` gives None or the reason why this creator can't serve these Specs.
    """

    def __init__(self, executions: str) -> None:
        """`executions`: the package whose modules register them, each the family of the ops that the file of its name defines. Its module
        `elementwise` has `create` and `supports` for the ops that have an expression (`backends/elementwise.py`) and nothing of their own.
        """
        self._executions = executions
        self._creators: Families[tuple[Creator, Support]] = Families(executions, "creators")

    def __call__(self, *op_classes: type[Op], supports: Support = lambda op, inputs, outputs: None):
        def register(create: Creator) -> Creator:
            self._creators.register(op_classes, (create, supports))
            return create

        return register

    def find(self, op_class: type[Op]) -> tuple[Creator, Support] | None:
        """How to make executions of an op class, and the check whether that serves given Specs; None where there is none."""
        found = self._creators.find(op_class)
        if found is None:
            from mnnx.backends.elementwise import TABLE

            if op_class in TABLE:
                elementwise = importlib.import_module(f"{self._executions}.elementwise")
                found = elementwise.create, elementwise.supports
        return found


class SharedWeights:
    """Packed weights that the sessions of one model share, each made once. `model`: the model's file, where it has one; `prepared`: what
    was packed before, and lies on disk."""

    def __init__(self, model: Path | None = None, prepared: PreparedWeights | None = None) -> None:
        self.model = model
        self._prepared = prepared
        self.packed: dict[Any, tuple[np.ndarray, Any]] = {}
        self.lock = threading.RLock()

    def get(self, key: Any, array: np.ndarray, pack: Callable[[np.ndarray], Any]) -> Any:
        """`pack(array)`, made at the first call for this array's memory and `key`, which names the way of packing."""
        kept = origin(array)  # stays, so that its address stays its own
        where = (key, kept.__array_interface__["data"][0], array.shape, array.strides, array.dtype)
        with self.lock:
            if where not in self.packed:
                found = None if self._prepared is None else self._prepared.find(key, kept)
                if found is None:
                    found = pack(array)
                    forget_pages(kept)
                self.packed[where] = (kept, found)
            return self.packed[where][1]


class Repetition(Row):
    """What a loop does around each pass over the commands of its body. All tensors are plain and on the commands' own device.

    index: gets the iteration's number (int64) before the pass. slices: arrays [iterations, *shape] with dense rows, each with the tensor
    that gets the iteration's row before the pass. condition: one boolean; where it is false after the pass, that was the last one.
    stacks: tensors, each with the array [iterations, *shape] to whose row it is copied after the pass. states: results, each with the
    tensor to which it is copied last, one after the other, and in which the next pass may read it.
    """

    index: DeviceTensor | None
    condition: DeviceTensor | None
    slices: Sequence[tuple[np.ndarray, DeviceTensor]]
    stacks: Sequence[tuple[DeviceTensor, np.ndarray]]
    states: Sequence[tuple[DeviceTensor, DeviceTensor]]


class CommandList(ABC):
    """The recorded work of a plan on one backend; units are ranges of it."""

    #: The command at which the last `submit` failed, where the device can tell.
    failed: int | None = None

    @abstractmethod
    def __len__(self) -> int: ...

    def prepare(self) -> None:
        """Called once all is recorded, when a session is planned: what makes the first run slow may be done here."""

    def set_abreast(self, lanes: Sequence[tuple[int, int]]) -> None:
        """Says of ranges of commands (first, last + 1), recorded one after the other, that none needs another's results or touches its
        memory. A list may run them at the same time."""

    @abstractmethod
    def submit(self, first: int, last: int) -> None:
        """Runs the commands first … last-1 in order and returns when their results can be read by later submissions."""

    def submit_timed(self, first: int, last: int) -> int:
        """As `submit`, and waits; returns how many nanoseconds the device was at it."""
        start = time.perf_counter_ns()
        self.submit(first, last)
        return time.perf_counter_ns() - start

    def repeat(self, loop: Repetition, first: int, last: int) -> tuple[int, bool]:
        """Runs all commands for the iterations first … last-1 of a loop. Returns how far it came, and whether the loop goes on."""
        for iteration in range(first, last):
            if loop.index is not None:
                loop.index.copy_from_host(np.full(loop.index.shape, iteration, np.int64))
            for rows, target in loop.slices:
                target.copy_from_host(rows[iteration])
            self.submit(0, len(self))
            going = loop.condition is None or bool(loop.condition.copy_to_host().all())
            for source, rows in loop.stacks:
                rows[iteration] = source.copy_to_host()
            for source, target in loop.states:
                target.copy_from_host(source.copy_to_host())
            if not going:
                return iteration + 1, False
        return last, True


class Backend(ABC):
    """A device, as one session uses it. Sessions of one model share its packed weights: its creator gets their SharedWeights."""

    name: str
    #: Threads that it computes on, the caller's included.
    threads: int = 1
    #: The width of its blocked layout's blocks (`backends/blocked.py`); 0: it has none.
    block_width: int = 0
    #: What tensors' offsets in its memory are multiples of, in bytes.
    alignment: int = 64
    #: Whether its command lists run at the same time what they are told is independent (`CommandList.set_abreast`).
    runs_abreast: bool = False
    #: Bytes of the largest piece of memory that `allocate` gives; None: whatever there is left.
    largest_allocation: int | None = None
    #: Whether one of several devices can be chosen; then its creator takes `device`, a number, a type or a part of a name as text.
    has_devices: bool = False
    #: Kernels that this process compiled for it, because no cache or bundle had them.
    kernels_compiled: int = 0
    #: Chooses between candidates by times, measured or read from a cache file; None: the cost model chooses.
    tuner: Tuner | None = None

    @property
    def tuning_device(self) -> Device:
        """What measured times hold for; of a backend that asks its `tuner`."""
        raise NotImplementedError(f"the backend {self.name} doesn't tune")

    @abstractmethod
    def supports(self, op: Op, inputs: Specs, outputs: Specs) -> str | None:
        """None where this backend can run `op` on such tensors, else the reason why not."""

    def can_run(self, op: Op, inputs: Specs, outputs: Specs, way: Layouts) -> bool:
        """Whether a supported op can run in a way that its execution offers."""
        return True

    @abstractmethod
    def create(self, op: Op, inputs: Specs, outputs: Specs) -> Execution:
        """The execution of a supported op."""

    @classmethod
    def execution_kind(cls, op_class: type[Op]) -> str:
        """How this device runs an op, for lists of what is supported: "native", "numpy", or "" where it doesn't, whatever the Specs."""
        return ""

    def stored_bytes(self, spec: Spec, layout: int) -> int:
        """What a tensor takes in its memory."""
        return self.stored(tensor_bytes(spec, layout), spec.dtype)

    def stored(self, nbytes: int, dtype: np.dtype) -> int:
        """What so many bytes of a tensor take in its memory, where it may store a dtype as a narrower one."""
        return nbytes

    @abstractmethod
    def allocate(self, nbytes: int) -> Any:
        """A fresh piece of device memory (a tensor's `memory`), aligned for any kernel. Raises BackendError when there is none left."""

    @abstractmethod
    def constant(self, name: str, array: np.ndarray) -> DeviceTensor:
        """A weight on the device; on the CPU the host array in place. Shared by the sessions of one model."""

    @abstractmethod
    def upload(self, array: np.ndarray, tensor: DeviceTensor) -> None:
        """Host array → device tensor of the same dtype and shape."""

    @abstractmethod
    def download(self, tensor: DeviceTensor) -> np.ndarray:
        """Device tensor → fresh host array; waits until the device has computed it."""

    def host_view(self, tensor: DeviceTensor) -> np.ndarray:
        """A tensor's values for the host to read before the next run: its own memory where the host can see that, else a copy."""
        return self.download(tensor)

    @abstractmethod
    def new_commands(self) -> CommandList:
        """Starts an empty command list, which `Execution.on_resize` records into from here on (as `backend.commands`)."""

    def release(self) -> None:
        """Gives back threads, queues and memory. The backend can't be used afterwards."""


_BACKENDS: dict[str, Callable[..., Backend] | str] = {
    "cpu": "mnnx.backends.cpu.backend:CpuBackend",
    "opencl": "mnnx.backends.opencl.backend:OpenClBackend",
    "vulkan": "mnnx.backends.vulkan.backend:VulkanBackend",
}


def register_backend(name: str, creator: Callable[..., Backend] | str) -> None:
    """Makes a device known by name. `creator(config, shared)` makes its Backend from a
    ScheduleConfig and the model's SharedWeights; a string `module:attribute` is imported when needed."""
    _BACKENDS[name] = creator


@contextmanager
def temporary_backend(name: str, creator: Callable[..., Backend]) -> Iterator[None]:
    """`register_backend` for the time of a `with` block."""
    register_backend(name, creator)
    try:
        yield
    finally:
        del _BACKENDS[name]


def backend_names() -> list[str]:
    """The names that `create_backend` knows, entry points of the group `mnnx.backends` included."""
    return sorted(_BACKENDS.keys() | _entry_points().keys())


def create_backend(name: str, config: Any, shared: Any) -> Backend:
    """A new Backend of that name, which may be followed by a colon and a device's number, type or a part of its name.

    Raises BackendUnavailable for an unknown name, or where its driver or device is missing.
    """
    name, _, device = name.partition(":")
    creator = backend_creator(name)
    if not device:
        return creator(config, shared)
    if not getattr(creator, "has_devices", False):
        raise BackendUnavailable(f"the backend {name} has no devices to choose from: write {name!r} alone")
    return creator(config, shared, device=device)


def backend_creator(name: str) -> Callable[..., Backend]:
    """What makes a Backend of that name: its class, or a function. Raises BackendUnavailable for an unknown name, or one whose module
    can't be loaded."""
    creator = _BACKENDS.get(name) or _entry_points().get(name)
    if creator is None:
        raise BackendUnavailable(f"there is no backend {name!r}; known ones: {', '.join(backend_names())}")
    if isinstance(creator, str):
        module, _, attribute = creator.partition(":")
        try:
            creator = getattr(importlib.import_module(module), attribute)
        except Exception as error:  # whatever a foreign module raises
            raise BackendUnavailable(f"the backend {name!r} can't be loaded from {module}:{attribute}: {error}") from error
    return creator


def _entry_points() -> dict[str, str]:
    from importlib.metadata import entry_points

    return {entry.name: entry.value for entry in entry_points(group="mnnx.backends")}
