"""Copies from and to memory that the host doesn't see, by way of a buffer that it does."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from mnnx.backends.vulkan.memory import Block, VulkanMemory
from mnnx.backends.vulkan.submission import Submission

if TYPE_CHECKING:
    from mnnx.backends.vulkan.device import VulkanDevice

_SIZE = 4 << 20


class _Tools:
    """What copies need: the buffer, a command buffer and its VkSubmitInfo, and its submissions."""

    def __init__(self, device: VulkanDevice):
        self.block = Block(device, _SIZE, mapped=True)
        self.submission = Submission(device)
        self.commands = device.command_buffer(device.command_pool(self, resettable=True))
        self.info = device.submit_info(self.commands)


class Staging:
    """One of a device, for one copy at a time."""

    def __init__(self, device: VulkanDevice):
        self._device = device
        self._lock = threading.Lock()
        self._made: _Tools | None = None

    def _tools(self) -> _Tools:
        """Those of the device, idle: a copy whose caller was interrupted may still be going on."""
        if self._made is None:
            self._made = _Tools(self._device)
        self._made.submission.wait()
        return self._made

    def write(self, memory: VulkanMemory, offset: int, array: np.ndarray) -> None:
        with self._lock:
            tools, ffi = self._tools(), self._device.api.ffi
            data = memoryview(array.reshape(-1).view(np.uint8))
            for start in range(0, array.nbytes, _SIZE):
                piece = data[start : start + _SIZE]
                ffi.memmove(tools.block.address, piece, len(piece))
                self._copy(tools, tools.block.buffer, 0, memory.buffer, memory.start + offset + start, len(piece))

    def read(self, memory: VulkanMemory, offset: int, array: np.ndarray) -> None:
        with self._lock:
            tools, ffi = self._tools(), self._device.api.ffi
            data = memoryview(array.reshape(-1).view(np.uint8))
            for start in range(0, array.nbytes, _SIZE):
                piece = data[start : start + _SIZE]
                self._copy(tools, memory.buffer, memory.start + offset + start, tools.block.buffer, 0, len(piece))
                ffi.memmove(piece, tools.block.address, len(piece))

    def _copy(self, tools: _Tools, source: Any, source_offset: int, target: Any, target_offset: int, nbytes: int) -> None:
        device = self._device
        api, lib, commands = device.api, device.api.lib, tools.commands
        api.check(lib.vkResetCommandBuffer(commands, 0), "vkResetCommandBuffer")
        api.check(lib.vkBeginCommandBuffer(commands, api.struct("VkCommandBufferBeginInfo")), "vkBeginCommandBuffer")
        region = api.array("VkBufferCopy", [{"srcOffset": source_offset, "dstOffset": target_offset, "size": nbytes}])
        lib.vkCmdCopyBuffer(commands, source, target, 1, region)
        device.make_visible(commands)
        api.check(lib.vkEndCommandBuffer(commands), "vkEndCommandBuffer")
        tools.submission.submit(tools.info)
        tools.submission.wait()
