"""Vulkan as a backend."""

from __future__ import annotations

from typing import Any

import numpy as np

from mnnx.backends.backend import SharedWeights
from mnnx.backends.gpu.backend import GpuBackend
from mnnx.backends.vulkan.commands import VulkanCommandList
from mnnx.backends.vulkan.device import VulkanDevice, open_device
from mnnx.backends.vulkan.memory import VulkanMemory
from mnnx.backends.vulkan.submission import Submission


class VulkanBackend(GpuBackend):
    """A session's work on a device."""

    name = "vulkan"
    device: VulkanDevice

    def __init__(self, config: Any, shared: SharedWeights, device: str = ""):
        """Raises BackendUnavailable where there is no driver, or not that device."""
        found = open_device(device)
        self.submission = Submission(found)
        super().__init__(found, config, shared)

    def new_commands(self) -> VulkanCommandList:
        self.commands = VulkanCommandList(self)
        return self.commands

    def write(self, memory: VulkanMemory, offset: int, array: np.ndarray) -> None:
        self.submission.wait()
        self.device.write(memory, offset, array)

    def read(self, memory: VulkanMemory, offset: int, array: np.ndarray) -> None:
        self.submission.wait()
        self.device.read(memory, offset, array)

    def release(self) -> None:
        if self.device.owner.is_here:
            self.device.pipelines.save()
            self.submission.wait()
            self.commands = None
            self.device.collect()
