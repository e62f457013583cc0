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


class Staging:
    """One of a device, for one copy at a time."""

    def __init__(self, device: VulkanDevice):
        self._device = device
        self._lock = threading.Lock()
        self._block: Block | None = None

    def _begin(self) -> None:
        """Makes what copies need, once; waits for a copy that was given up."""
        if self._block is not None:
            self._submission.wait()
            return
        device = self._device
        block, submission, pool = Block(device, _SIZE, mapped=True), Submission(device), device.command_pool(self, resettable=True)
        commands = device.command_buffer(pool)
        self._submission, self._pool, self._commands, self._info = submission, pool, commands, device.submit_info(commands)
        self._block = block

    def write(self, memory: VulkanMemory, offset: int, array: np.ndarray) -> None:
        with self._lock:
            self._begin()
            data, ffi = memoryview(array.reshape(-1).view(np.uint8)), self._device.api.ffi
            for start in range(0, array.nbytes, _SIZE):
                piece = data[start : start + _SIZE]
                ffi.memmove(self._block.address, piece, len(piece))
                self._copy(self._block.buffer, 0, memory.buffer, memory.start + offset + start, len(piece))

    def read(self, memory: VulkanMemory, offset: int, array: np.ndarray) -> None:
        with self._lock:
            self._begin()
            data, ffi = memoryview(array.reshape(-1).view(np.uint8)), self._device.api.ffi
            for start in range(0, array.nbytes, _SIZE):
                piece = data[start : start + _SIZE]
                self._copy(memory.buffer, memory.start + offset + start, self._block.buffer, 0, len(piece))
                ffi.memmove(piece, self._block.address, len(piece))

    def _copy(self, source: Any, source_offset: int, target: Any, target_offset: int, nbytes: int) -> None:
        device = self._device
        api, lib, commands = device.api, device.api.lib, self._commands
        api.check(lib.vkBeginCommandBuffer(commands, api.struct("VkCommandBufferBeginInfo")), "vkBeginCommandBuffer")
        region = api.array("VkBufferCopy", [{"srcOffset": source_offset, "dstOffset": target_offset, "size": nbytes}])
        lib.vkCmdCopyBuffer(commands, source, target, 1, region)
        device.make_visible(commands)
        api.check(lib.vkEndCommandBuffer(commands), "vkEndCommandBuffer")
        self._submission.submit(self._info)
        self._submission.wait()
