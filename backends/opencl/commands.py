"""OpenCL's command list: kernels with their arguments set, enqueued in order on the session's queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mnnx.backends.gpu.device import GpuCommandList, Memory
from mnnx.backends.gpu.kernel import Kernel
from mnnx.backends.gpu.tuning import Group
from mnnx.backends.tensor import DeviceTensor
from mnnx.errors import BackendError

if TYPE_CHECKING:
    from mnnx.backends.opencl.backend import OpenClBackend

_SCALARS = {"int": np.int32, "uint": np.uint32, "float": np.float32}


class OpenClCommandList(GpuCommandList):
    def __init__(self, backend: OpenClBackend):
        super().__init__(backend)
        self._enqueue = backend.device.cl.enqueue_nd_range_kernel
        self._units: list[tuple[Any, tuple[int, ...], tuple[int, ...]]] = []
        self._kept: list[Any] = []

    def __len__(self) -> int:
        return len(self._units)

    def add(
        self, kernel: Kernel, buffers: Sequence[DeviceTensor | Memory], params: Sequence[int | float], size: Sequence[int], group: Group
    ) -> None:
        device = self._backend.device
        device_kernel = device.kernel(kernel)
        with device.errors(f"set the arguments of {kernel}"):
            for place, buffer in enumerate(buffers):
                device_kernel.set_arg(place, self._piece(buffer))
            for place, ((kind, _), value) in enumerate(zip(kernel.source.parameters, params, strict=True), len(buffers)):
                device_kernel.set_arg(place, _SCALARS[kind](value))
        rounded = tuple(-(-n // step) * step for n, step in zip(size, group, strict=True))
        self._units.append((device_kernel, rounded, group))
        self._kept.append(buffers)

    def _piece(self, buffer: DeviceTensor | Memory) -> Any:
        if not isinstance(buffer, DeviceTensor):
            return buffer.buffer
        return self._backend.memory_of(buffer).piece(buffer.offset, max(1, self._backend.stored_bytes(buffer.spec, buffer.layout)))

    def enqueue(self, first: int, last: int) -> None:
        self._enqueue_to(self._backend.queue, first, last)

    def enqueue_timed(self, first: int, last: int) -> int:
        device, queue = self._backend.device, self._backend.timing_queue
        with device.errors("finish its work"):
            self._backend.queue.finish()
        events = self._enqueue_to(queue, first, last)
        with device.errors("finish its work"):
            queue.finish()
            return sum(event.profile.end - event.profile.start for event in events)

    def _enqueue_to(self, queue: Any, first: int, last: int) -> list[Any]:
        """The commands' events."""
        device, enqueue, events = self._backend.device, self._enqueue, []
        device.owner.check()
        try:
            with device.errors("start a kernel"):
                for unit in self._units[first:last]:
                    events.append(enqueue(queue, *unit))
                queue.flush()
        except BackendError:
            self.failed = min(first + len(events), last - 1)
            raise
        return events
