"""Device memory: buffers of their own for what is large, pieces of common ones for what is small."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from mnnx.backends.gpu.device import Memory
from mnnx.errors import BackendError

if TYPE_CHECKING:
    from mnnx.backends.vulkan.device import VulkanDevice

_USAGE = 0x20 | 1 | 2  # storage, source and target of copies
#: What is smaller comes from blocks: drivers allow as few as 4,096 allocations, and round each up.
_SMALL = 64 << 10
_BLOCK = 1 << 20


class Block:
    """A VkBuffer with memory of its own. address: where the host sees it, or None."""

    def __init__(self, device: VulkanDevice, nbytes: int, mapped: bool):
        api = device.api
        self.nbytes = nbytes
        info = api.struct("VkBufferCreateInfo", size=nbytes, usage=_USAGE)
        self.buffer = api.make("vkCreateBuffer", "VkBuffer", device.handle, info, api.NULL)
        memory = None
        try:
            needs = api.ffi.new("VkMemoryRequirements *")
            api.lib.vkGetBufferMemoryRequirements(device.handle, self.buffer, needs)
            index = device.memory_type(needs.memoryTypeBits, mapped)
            request = api.struct("VkMemoryAllocateInfo", allocationSize=needs.size, memoryTypeIndex=index)
            memory = api.make("vkAllocateMemory", "VkDeviceMemory", device.handle, request, api.NULL)
            api.check(api.lib.vkBindBufferMemory(device.handle, self.buffer, memory, 0), "vkBindBufferMemory")
            self.address = None
            if mapped:
                place = api.ffi.new("void **")
                api.check(api.lib.vkMapMemory(device.handle, memory, 0, nbytes, 0, place), "vkMapMemory")
                self.address = api.ffi.cast("char *", place[0])
        except BackendError:
            api.lib.vkDestroyBuffer(device.handle, self.buffer, api.NULL)
            if memory is not None:
                api.lib.vkFreeMemory(device.handle, memory, api.NULL)
            raise
        device.keep(self, ("vkDestroyBuffer", self.buffer), ("vkFreeMemory", memory))
        self._end = 0
        self._taken = 0

    def take(self, nbytes: int) -> int | None:
        """The start of a free piece, or None."""
        if self._end + nbytes > self.nbytes:
            return None
        start, self._end = self._end, self._end + nbytes
        self._taken += 1
        return start

    def give_back(self) -> None:
        """One piece."""
        self._taken -= 1

    @property
    def in_use(self) -> bool:
        return self._taken > 0


class VulkanMemory(Memory):
    """`nbytes` from `start` in a block."""

    def __init__(self, device: VulkanDevice, block: Block, start: int, nbytes: int):
        self.device = device
        self.nbytes = nbytes
        self.start = start
        self.block: Block | None = block
        self.buffer = block.buffer
        self.address = None if block.address is None else block.address + start

    def free(self) -> None:
        block, self.block = self.block, None
        if block is not None:
            self.device.heap.freed.append(block)

    def __del__(self) -> None:
        self.free()


class Heap:
    """The memory of a device."""

    def __init__(self, device: VulkanDevice):
        self._device = device
        self._blocks: list[Block] = []
        self._lock = threading.Lock()
        #: Blocks of pieces that nobody holds any more. A list, as the garbage collector may add to it at any time.
        self.freed: list[Block] = []

    def allocate(self, nbytes: int) -> VulkanMemory:
        """Raises BackendError where there is none left."""
        device = self._device
        device.collect()
        rounded = -(-nbytes // device.alignment) * device.alignment
        if rounded > _SMALL:
            return VulkanMemory(device, self._new(rounded), 0, nbytes)
        with self._lock:
            for block in self._blocks:
                start = block.take(rounded)
                if start is not None:
                    return VulkanMemory(device, block, start, nbytes)
            block = self._new(_BLOCK)
            self._blocks.append(block)
            return VulkanMemory(device, block, block.take(rounded), nbytes)

    def _new(self, nbytes: int) -> Block:
        try:
            return Block(self._device, nbytes, self._device.mapped)
        except BackendError as error:
            raise BackendError(
                f"the Vulkan device has no memory left for {nbytes} bytes ({error}): use smaller inputs, or release sessions"
            ) from error

    def reclaim(self) -> None:
        """Takes the freed pieces back. No work may use them any more."""
        with self._lock:
            while self.freed:
                self.freed.pop().give_back()
            self._blocks = [block for block in self._blocks if block.in_use]
