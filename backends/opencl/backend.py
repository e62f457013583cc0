"""OpenCL as a backend."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from mnnx.backends.backend import SharedWeights
from mnnx.backends.gpu.backend import GpuBackend
from mnnx.backends.opencl.commands import OpenClCommandList
from mnnx.backends.opencl.device import OpenClMemory, open_device


class OpenClBackend(GpuBackend):
    """A session's queue on a device."""

    name = "opencl"

    def __init__(self, config: Any, shared: SharedWeights, device: str = ""):
        """Raises BackendUnavailable where there is no driver, or not that device."""
        found = open_device(device)
        self.queue = found.queue()
        super().__init__(found, config, shared)

    @cached_property
    def timing_queue(self) -> Any:
        """Another one, which measures what it does; used only while the first is idle."""
        return self.device.queue(timing=True)

    def new_commands(self) -> OpenClCommandList:
        self.commands = OpenClCommandList(self)
        return self.commands

    def write(self, memory: OpenClMemory, offset: int, array: np.ndarray) -> None:
        self._copy(memory.buffer, array, dst_offset=offset)

    def read(self, memory: OpenClMemory, offset: int, array: np.ndarray) -> None:
        self._copy(array, memory.buffer, src_offset=offset)

    def _copy(self, target: Any, source: Any, **offsets: int) -> None:
        self.device.owner.check()
        with self.device.errors("copy"):
            self.device.cl.enqueue_copy(self.queue, target, source, is_blocking=True, **offsets)

    def release(self) -> None:
        if self.device.owner.is_here:
            with self.device.errors("finish its work"):
                self.queue.finish()
