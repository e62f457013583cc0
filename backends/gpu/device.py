"""What the runtimes of OpenCL and Vulkan give the code that they share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mnnx.backends.backend import CommandList
from mnnx.backends.gpu.kernel import Kernel
from mnnx.backends.gpu.profile import Profile
from mnnx.backends.gpu.tuning import Group, tuned_dispatch, tuned_group
from mnnx.backends.tensor import DeviceTensor
from mnnx.errors import InputError
from mnnx.schema.records import Row

if TYPE_CHECKING:
    from mnnx.backends.gpu.backend import GpuBackend

#: Reports that one piece of memory has room for, and the ints of each: whether there is one, and the illegal value, low int first.
_REPORTS, _REPORT_INTS = 64, 3


class Memory(ABC):
    """A piece of device memory of `nbytes`; freed when nobody refers to it any more, or by `free`."""

    nbytes: int

    @abstractmethod
    def free(self) -> None: ...


class Device(ABC):
    """One device of this process; sessions share it. identity: the device and driver in words, for caches and messages.
    alignment: of tensors in memory, in bytes. largest: bytes that a kernel can reach through one argument. largest_allocation: bytes of
    the largest piece of memory; no less than `largest`."""

    identity: str
    profile: Profile
    alignment: int
    largest: int
    largest_allocation: int
    #: Whether kernels may read and write halves, bytes and shorts.
    has_half: bool = True
    #: Kernels that this process compiled, because no cache had them.
    compiled: int = 0

    @abstractmethod
    def has(self, kernel: Kernel) -> bool:
        """Whether it can run this kernel: on Vulkan, whether it was compiled ahead of time."""

    @abstractmethod
    def allocate(self, nbytes: int) -> Memory:
        """Raises BackendError where there is no memory left."""

    @abstractmethod
    def write(self, memory: Memory, offset: int, array: np.ndarray) -> None:
        """Contiguous host array → device, done when this returns. For what no queue works on: a session writes through its commands."""


class Dispatch(Row):
    """What `GpuCommandList.record` takes."""

    kernel: Kernel
    buffers: Sequence[DeviceTensor | Memory]
    params: Sequence[int | float]
    size: Sequence[int]
    local: tuple[int, int, int]


class GpuCommandList(CommandList):
    """Dispatches of kernels, in the order in which they were recorded."""

    def __init__(self, backend: GpuBackend):
        self._backend = backend
        self._faults: list[tuple[str, int]] = []  # the message, and the command that reports it
        self._reports: list[Memory] = []

    def record(
        self,
        kernel: Kernel,
        buffers: Sequence[DeviceTensor | Memory],
        params: Sequence[int | float],
        size: Sequence[int],
        local: tuple[int, int, int] | None = None,
    ) -> None:
        """Adds a kernel with its arguments, for at least `size` (1 … 3 dims) work items.

        local: the work items of a group (None: as the kernel says), where tuning doesn't find another size better.
        """
        source = kernel.source
        if len(buffers) != len(source.buffers) or len(params) != len(source.parameters):
            raise ValueError(f"{kernel} takes {len(source.buffers)} buffers and ({source.params}), not {len(buffers)} and {params}")

        def trial(group: Group) -> Callable[[], int]:
            alone = type(self)(self._backend)
            alone.add(kernel, buffers, params, size, group)
            return lambda: alone.enqueue_timed(0, 1)

        usual = self._usual_group(kernel, size, local)
        self.add(kernel, buffers, params, size, tuned_group(self._backend, kernel, params, size, usual, trial))

    def record_fastest(self, dispatches: Mapping[str, Dispatch]) -> None:
        """Adds one of several dispatches that do the same work, by names of the ways: the first, where tuning doesn't find another one
        faster."""

        def trial(way: Dispatch) -> Callable[[], int]:
            alone = type(self)(self._backend)
            alone.add(way.kernel, way.buffers, way.params, way.size, self._usual_group(way.kernel, way.size, way.local))
            return lambda: alone.enqueue_timed(0, 1)

        self.record(*tuned_dispatch(self._backend, dispatches, trial))

    def _usual_group(self, kernel: Kernel, size: Sequence[int], local: tuple[int, int, int] | None) -> Group:
        return (local or kernel.source.local)[: len(size)]

    @abstractmethod
    def add(
        self, kernel: Kernel, buffers: Sequence[DeviceTensor | Memory], params: Sequence[int | float], size: Sequence[int], group: Group
    ) -> None:
        """As `record`, for groups of that size."""

    @abstractmethod
    def enqueue(self, first: int, last: int) -> None:
        """Hands the commands first … last-1 to the device, in order."""

    @abstractmethod
    def enqueue_timed(self, first: int, last: int) -> int:
        """As `enqueue`, and waits; returns the nanoseconds that the device's clock counted."""

    def submit(self, first: int, last: int) -> None:
        self.enqueue(first, last)
        self._look_for_faults(first, last)

    def submit_timed(self, first: int, last: int) -> int:
        nanoseconds = self.enqueue_timed(first, last)
        self._look_for_faults(first, last)
        return nanoseconds

    def _look_for_faults(self, first: int, last: int) -> None:
        if any(first <= command < last for _, command in self._faults):
            self._raise_fault()

    def fault(self, message: str) -> tuple[Memory, int]:
        """Where the next kernel to be recorded reports that a value is illegal: ints in a piece of memory, and the place of the first.

        The kernel writes 1 there, and then the value's low and high ints; `source.FAULTS` does so. Once the commands are done, which is
        waited for only where a kernel among them can report something, the run ends with InputError(message.format(value)).
        """
        page, place = divmod(len(self._faults), _REPORTS)
        if page == len(self._reports):
            self._reports.append(self._backend.table(np.zeros(_REPORTS * _REPORT_INTS, np.int32)))
        self._faults.append((message, len(self)))
        return self._reports[page], place * _REPORT_INTS

    def _raise_fault(self) -> None:
        reports = np.empty((len(self._reports), _REPORTS, _REPORT_INTS), np.int32)
        for memory, page in zip(self._reports, reports, strict=True):
            self._backend.read(memory, 0, page)
        reports = reports.reshape(-1, _REPORT_INTS)
        if reports[:, 0].any():
            for memory in self._reports:
                self._backend.write(memory, 0, np.zeros((_REPORTS, _REPORT_INTS), np.int32))
            first = int(reports[:, 0].argmax())
            message, self.failed = self._faults[first]
            raise InputError(message.format(int(reports[first, 1:].copy().view(np.int64)[0])))
