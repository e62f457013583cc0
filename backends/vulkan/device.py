"""Vulkan devices: which there are, their limits, what lives on them."""

from __future__ import annotations

import atexit
import threading
import weakref
from itertools import count
from typing import Any

import numpy as np

from mnnx.backends.gpu.choice import choose
from mnnx.backends.gpu.device import Device
from mnnx.backends.gpu.kernel import Kernel
from mnnx.backends.gpu.process import Owner
from mnnx.backends.gpu.profile import profile_of
from mnnx.backends.vulkan.api import DEVICE_LOST, INSTALL
from mnnx.backends.vulkan.instance import Instance, PhysicalDevice
from mnnx.backends.vulkan.memory import Heap, VulkanMemory
from mnnx.backends.vulkan.pipelines import Pipelines
from mnnx.backends.vulkan.staging import Staging
from mnnx.errors import BackendError, BackendUnavailable

_LOCAL, _VISIBLE, _COHERENT, _CACHED = 1, 2, 4, 8
_COMPUTE_QUEUE = 2
_VENDORS = {0x10DE: "NVIDIA", 0x1002: "AMD", 0x8086: "Intel", 0x13B5: "ARM Mali", 0x5143: "Qualcomm Adreno", 0x14E4: "Broadcom V3D"}


class VulkanDevice(Device):
    """A logical device with its one queue, which all sessions of the process share.

    Handles are destroyed when their owner is gone and the device has done its work (`collect`), or with the device. mapped: whether the
    host sees new memory.
    """

    def __init__(self, instance: Instance, physical: PhysicalDevice):
        self.api = api = instance.api
        self._instance = instance
        self._physical = physical
        self.owner = Owner(f"the Vulkan device {physical.name}")
        self.limits = physical.limits
        version = f"{physical.version >> 22}.{physical.version >> 12 & 1023}.{physical.version & 4095}"
        driver = f"driver {physical.properties.driverVersion:x} {bytes(physical.properties.pipelineCacheUUID).hex()}"
        self.identity = f"{physical.name}, Vulkan {version}, {driver}"
        self.profile = profile_of(f"{_VENDORS.get(physical.properties.vendorID, '')} {physical.name}")
        self.alignment = max(64, self.limits.minStorageBufferOffsetAlignment)
        self.largest_allocation = physical.largest_allocation
        self.largest = min(self.limits.maxStorageBufferRange, self.largest_allocation)
        self.mapped = physical.integrated
        self.queue_lock = threading.Lock()
        self.lost = False
        self._numbers = count()
        self._living: dict[int, tuple[tuple[str, Any], ...]] = {}
        self._buried: list[int] = []  # a list, as the garbage collector may add to it at any time
        self._memory = api.ffi.new("VkPhysicalDeviceMemoryProperties *")
        api.lib.vkGetPhysicalDeviceMemoryProperties(physical.handle, self._memory)
        reads, writes = api.lib.VK_ACCESS_SHADER_READ_BIT, api.lib.VK_ACCESS_SHADER_WRITE_BIT
        copies, host = api.lib.VK_ACCESS_TRANSFER_WRITE_BIT, api.lib.VK_ACCESS_HOST_READ_BIT
        self._between = api.struct("VkMemoryBarrier", srcAccessMask=writes, dstAccessMask=reads | writes)
        self._to_host = api.struct("VkMemoryBarrier", srcAccessMask=writes | copies, dstAccessMask=host)
        self._open()
        self.heap = Heap(self)
        self.staging = Staging(self)
        self._pipelines = Pipelines(self)

    def _open(self) -> None:
        api, physical = self.api, self._physical
        shorts = api.struct("VkPhysicalDevice16BitStorageFeatures")
        octets = api.struct("VkPhysicalDevice8BitStorageFeatures", pNext=shorts)
        features = api.struct("VkPhysicalDeviceFeatures2", pNext=octets)
        named = [name for name in ("VK_KHR_8bit_storage",) if name in physical.extensions]
        if not named:
            features.pNext = shorts
        api.lib.vkGetPhysicalDeviceFeatures2(physical.handle, features)
        self.has_shorts = bool(shorts.storageBuffer16BitAccess)
        self.has_bytes = bool(named and octets.storageBuffer8BitAccess)
        self.has_half = self.has_shorts
        wanted = api.struct("VkPhysicalDevice16BitStorageFeatures", storageBuffer16BitAccess=self.has_shorts)
        if self.has_bytes:
            wanted = api.struct("VkPhysicalDevice8BitStorageFeatures", pNext=wanted, storageBuffer8BitAccess=1)
        families = api.each(api.lib.vkGetPhysicalDeviceQueueFamilyProperties, "VkQueueFamilyProperties", physical.handle)
        found = [(i, family.timestampValidBits) for i, family in enumerate(families) if family.queueFlags & _COMPUTE_QUEUE]
        if not found:
            raise BackendUnavailable(f"the Vulkan device {self.identity} has no queue for computing")
        self.family, clock_bits = found[0]
        self._clock_mask = (1 << clock_bits) - 1
        priorities = api.array("float", [1.0])
        queues = api.struct("VkDeviceQueueCreateInfo", queueFamilyIndex=self.family, queueCount=1, pQueuePriorities=priorities)
        names = [api.ffi.new("char[]", name.encode()) for name in named]
        info = api.struct(
            "VkDeviceCreateInfo",
            pNext=wanted,
            queueCreateInfoCount=1,
            pQueueCreateInfos=queues,
            enabledExtensionCount=len(names),
            ppEnabledExtensionNames=api.array("char *", names),
        )
        try:
            self.handle = api.make("vkCreateDevice", "VkDevice", physical.handle, info, api.NULL)
        except BackendError as error:
            raise BackendUnavailable(f"the Vulkan device {self.identity} can't be opened: {error}") from error
        place = api.ffi.new("VkQueue *")
        api.lib.vkGetDeviceQueue(self.handle, self.family, 0, place)
        self.queue = place[0]

    # ---- kernels
    @property
    def compiled(self) -> int:
        return self._pipelines.compiled

    @property
    def pipelines(self) -> Pipelines:
        return self._pipelines

    def has(self, kernel: Kernel) -> bool:
        return self._pipelines.serves(kernel)

    # ---- memory
    def memory_type(self, allowed: int, mapped: bool) -> int:
        """The best of the types whose bits are set. Raises BackendError."""
        needed = _VISIBLE | _COHERENT if mapped else 0
        liked = (_CACHED if mapped else _LOCAL) | (_LOCAL if self.mapped else 0)
        flags = {i: self._memory.memoryTypes[i].propertyFlags for i in range(self._memory.memoryTypeCount) if allowed >> i & 1}
        fitting = [i for i, given in flags.items() if given & needed == needed]
        if not fitting:
            raise BackendError(f"the Vulkan device {self.identity} has no memory for buffers")
        return max(fitting, key=lambda i: ((flags[i] & liked).bit_count(), -i))

    def allocate(self, nbytes: int) -> VulkanMemory:
        self.check_usable()
        return self.heap.allocate(nbytes)

    def write(self, memory: VulkanMemory, offset: int, array: np.ndarray) -> None:
        self.owner.check()
        if memory.address is None:
            self.staging.write(memory, offset, array)
        else:
            self.api.ffi.memmove(memory.address + offset, memoryview(array.reshape(-1).view(np.uint8)), array.nbytes)

    def read(self, memory: VulkanMemory, offset: int, array: np.ndarray) -> None:
        """Device → contiguous host array, when no work changes it."""
        self.owner.check()
        if memory.address is None:
            self.staging.read(memory, offset, array)
        else:
            self.api.ffi.memmove(memoryview(array.reshape(-1).view(np.uint8)), memory.address + offset, array.nbytes)

    # ---- commands
    def command_pool(self, owner: Any, resettable: bool = False) -> Any:
        """It goes, with its command buffers, when `owner` goes."""
        api = self.api
        info = api.struct("VkCommandPoolCreateInfo", flags=2 if resettable else 0, queueFamilyIndex=self.family)
        pool = api.make("vkCreateCommandPool", "VkCommandPool", self.handle, info, api.NULL)
        self.keep(owner, ("vkDestroyCommandPool", pool))
        return pool

    def command_buffer(self, pool: Any) -> Any:
        api = self.api
        return api.make(
            "vkAllocateCommandBuffers",
            "VkCommandBuffer",
            self.handle,
            api.struct("VkCommandBufferAllocateInfo", commandPool=pool, commandBufferCount=1),
        )

    def submit_info(self, commands: Any) -> Any:
        """A VkSubmitInfo for one command buffer."""
        return self.api.struct("VkSubmitInfo", commandBufferCount=1, pCommandBuffers=self.api.array("VkCommandBuffer", [commands]))

    def query_pool(self, owner: Any, size: int) -> Any:
        """For so many timestamps."""
        api = self.api
        info = api.struct("VkQueryPoolCreateInfo", queryType=api.lib.VK_QUERY_TYPE_TIMESTAMP, queryCount=size)
        pool = api.make("vkCreateQueryPool", "VkQueryPool", self.handle, info, api.NULL)
        self.keep(owner, ("vkDestroyQueryPool", pool))
        return pool

    def nanoseconds(self, queries: Any) -> int:
        """Between the two timestamps of a pool, which are written."""
        api, times = self.api, self.api.ffi.new("uint64_t[2]")
        code = api.lib.vkGetQueryPoolResults(self.handle, queries, 0, 2, 16, times, 8, api.lib.VK_QUERY_RESULT_64_BIT)
        api.check(code, "vkGetQueryPoolResults")
        return round(((times[1] - times[0]) & self._clock_mask) * self.limits.timestampPeriod)

    @property
    def has_clock(self) -> bool:
        return self._clock_mask != 0

    def wait_for_kernels(self, commands: Any) -> None:
        """What comes after in a command buffer reads and writes when the kernels before are done."""
        lib = self.api.lib
        compute = lib.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT
        lib.vkCmdPipelineBarrier(commands, compute, compute, 0, 1, self._between, 0, self.api.NULL, 0, self.api.NULL)

    def make_visible(self, commands: Any) -> None:
        """Lets the host read what kernels and copies before it wrote."""
        lib = self.api.lib
        writers = lib.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | lib.VK_PIPELINE_STAGE_TRANSFER_BIT
        host = lib.VK_PIPELINE_STAGE_HOST_BIT
        lib.vkCmdPipelineBarrier(commands, writers, host, 0, 1, self._to_host, 0, self.api.NULL, 0, self.api.NULL)

    # ---- life
    def keep(self, owner: Any, *handles: tuple[str, Any]) -> None:
        """Destroys the handles, by the functions of those names and in this order, when `owner` is gone."""
        number = next(self._numbers)
        self._living[number] = handles
        weakref.finalize(owner, self._buried.append, number).atexit = False

    def collect(self) -> None:
        """Destroys what nobody owns any more, when the device is done with it."""
        if not (self._buried or self.heap.freed):
            return
        self.owner.check()
        with self.queue_lock:
            self.api.lib.vkQueueWaitIdle(self.queue)
            self.heap.reclaim()
            while self._buried:
                self._destroy(self._buried.pop())

    def _destroy(self, number: int) -> None:
        for function, handle in self._living.pop(number):
            getattr(self.api.lib, function)(self.handle, handle, self.api.NULL)

    @property
    def handles(self) -> int:
        """How many things live on the device."""
        return len(self._living)

    def check_usable(self) -> None:
        """Raises BackendError in a forked child, and when the device is lost."""
        self.owner.check()
        if self.lost:
            raise BackendError(f"the Vulkan device {self.identity} was lost: make a new session")

    def fail(self, code: int, function: str) -> None:
        """Raises BackendError for what a function returned."""
        if code == DEVICE_LOST:
            self.lost = True
            raise BackendError(f"the Vulkan device {self.identity} was lost in {function}: make a new session")
        self.api.check(code, function)

    def close(self) -> None:
        """Destroys all that lives on it, and the device."""
        self.lost = True
        lib = self.api.lib
        lib.vkDeviceWaitIdle(self.handle)
        for number in sorted(self._living, reverse=True):
            self._destroy(number)
        lib.vkDestroyDevice(self.handle, self.api.NULL)


class _Process:
    """What a process has opened."""

    def __init__(self) -> None:
        self.owner = Owner("a Vulkan device")
        self.lock = threading.Lock()
        self.instance: Instance | None = None
        self.devices: dict[int, VulkanDevice] = {}

    def close(self) -> None:
        if self.instance is None or not self.owner.is_here:
            return
        for device in self.devices.values():
            device.close()
        self.instance.destroy()


_PROCESS = _Process()
atexit.register(_PROCESS.close)


def messages() -> list[str]:
    """What the validation layers said, where they are on (`instance.VALIDATE`)."""
    return [] if _PROCESS.instance is None else _PROCESS.instance.messages


def open_device(wanted: str) -> VulkanDevice:
    """The device of that number, name (or a part of it) or type ("gpu", "cpu"); "": a GPU if there is one.

    Raises BackendUnavailable, saying what there is.
    """
    process = _PROCESS
    if process.instance is not None:
        process.owner.check()
    with process.lock:
        if process.instance is None:
            process.instance = Instance()
        found = process.instance.devices()
        if not found:
            raise BackendUnavailable(f"no Vulkan device was found: {INSTALL}")
        index = choose("Vulkan", [(physical.name, physical.kind) for physical in found], wanted)
        device = process.devices.get(index)
        if device is None or device.lost:
            device = process.devices[index] = VulkanDevice(process.instance, found[index])
        return device
