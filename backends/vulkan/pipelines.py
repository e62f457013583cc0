"""Compute pipelines: made once per kernel, size of a work group and device; what the driver compiled is kept on disk."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any

from mnnx.backends.gpu.kernel import Kernel
from mnnx.backends.gpu.program_cache import open_program_cache
from mnnx.backends.vulkan.binaries import shipped
from mnnx.errors import BackendError

if TYPE_CHECKING:
    from mnnx.backends.vulkan.device import VulkanDevice

Local = tuple[int, int, int]
_CACHED = "pipelines"
_SHORTS, _BYTES = {"half", "short", "ushort"}, {"char", "uchar", "bool"}


def constants_size(kernel: Kernel) -> int:
    """Bytes of a kernel's push constants: its parameters, and the numbers of groups along three axes."""
    return 4 * (len(kernel.source.parameters) + 3)


class Pipelines:
    """Those of a device. `compiled` counts those that the cache on disk didn't have."""

    def __init__(self, device: VulkanDevice):
        self._device = device
        self._lock = threading.Lock()
        self._made: dict[tuple[Kernel, Local], Any] = {}
        self._layouts: dict[tuple[int, int], tuple[Any, Any]] = {}
        self._served: dict[Kernel, bool] = {}
        self._disk = open_program_cache("vulkan", device.identity)
        self.compiled = 0
        names, _, data = (self._disk.read(_CACHED) or b"").partition(b"\n")
        self._known = set(names.decode().split())
        self._saved = len(self._known)
        api = device.api
        blob = api.ffi.from_buffer(data)
        info = api.struct("VkPipelineCacheCreateInfo", initialDataSize=len(data), pInitialData=api.ffi.cast("void *", blob))
        self._cache = api.make("vkCreatePipelineCache", "VkPipelineCache", device.handle, info, api.NULL)
        device.keep(self, ("vkDestroyPipelineCache", self._cache))

    def serves(self, kernel: Kernel) -> bool:
        """Whether it was compiled ahead of time, and this device has what it needs."""
        if kernel not in self._served:
            self._served[kernel] = kernel.key in shipped() and self._fits(kernel)
        return self._served[kernel]

    def _fits(self, kernel: Kernel) -> bool:
        device, source = self._device, kernel.source
        limits, storages = device.limits, {buffer.storage for buffer in source.buffers}
        return (
            (device.has_shorts or not storages & _SHORTS)
            and (device.has_bytes or not storages & _BYTES)
            and len(source.buffers) <= limits.maxPerStageDescriptorStorageBuffers
            and constants_size(kernel) <= limits.maxPushConstantsSize
            and math.prod(source.local) <= limits.maxComputeWorkGroupInvocations
        )

    def layout(self, kernel: Kernel) -> tuple[Any, Any]:
        """The descriptor set layout and pipeline layout for a kernel's buffers and parameters."""
        with self._lock:
            return self._layout(kernel)

    def _layout(self, kernel: Kernel) -> tuple[Any, Any]:
        buffers, nbytes = len(kernel.source.buffers), constants_size(kernel)
        if (buffers, nbytes) not in self._layouts:
            device, api = self._device, self._device.api
            compute, storage = api.lib.VK_SHADER_STAGE_COMPUTE_BIT, api.lib.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER
            common = {"descriptorType": storage, "descriptorCount": 1, "stageFlags": compute}
            rows = api.array("VkDescriptorSetLayoutBinding", [{"binding": i, **common} for i in range(buffers)])
            info = api.struct("VkDescriptorSetLayoutCreateInfo", bindingCount=buffers, pBindings=rows)
            sets = api.make("vkCreateDescriptorSetLayout", "VkDescriptorSetLayout", device.handle, info, api.NULL)
            constants = api.array("VkPushConstantRange", [{"stageFlags": compute, "size": nbytes}])
            info = api.struct(
                "VkPipelineLayoutCreateInfo",
                setLayoutCount=1,
                pSetLayouts=api.array("VkDescriptorSetLayout", [sets]),
                pushConstantRangeCount=1,
                pPushConstantRanges=constants,
            )
            layout = api.make("vkCreatePipelineLayout", "VkPipelineLayout", device.handle, info, api.NULL)
            device.keep(self, ("vkDestroyPipelineLayout", layout), ("vkDestroyDescriptorSetLayout", sets))
            self._layouts[buffers, nbytes] = sets, layout
        return self._layouts[buffers, nbytes]

    def pipeline(self, kernel: Kernel, local: Local) -> Any:
        """For work groups of that size. Raises BackendError."""
        with self._lock:
            where = (kernel, local)
            if where not in self._made:
                self._made[where] = self._make(kernel, local)
                name = "-".join((shipped().digest(kernel.key)[:16], *map(str, local)))
                if name not in self._known:
                    self._known.add(name)
                    self.compiled += 1
            return self._made[where]

    def _make(self, kernel: Kernel, local: Local) -> Any:
        device, api = self._device, self._device.api
        if kernel.key not in shipped():
            raise BackendError(f"the {kernel} isn't among those compiled ahead of time")
        code = shipped().spirv(kernel.key)
        words = api.ffi.from_buffer("uint32_t[]", code)
        info = api.struct("VkShaderModuleCreateInfo", codeSize=len(code), pCode=words)
        module = api.make("vkCreateShaderModule", "VkShaderModule", device.handle, info, api.NULL)
        try:
            values = api.array("uint32_t", (*local, device.profile.fma))
            entries = api.array("VkSpecializationMapEntry", [{"constantID": i, "offset": 4 * i, "size": 4} for i in range(4)])
            constants = api.ffi.new("VkSpecializationInfo *", {"mapEntryCount": 4, "pMapEntries": entries, "dataSize": 16, "pData": values})
            entry = api.ffi.new("char[]", b"main")
            stage = api.struct(
                "VkPipelineShaderStageCreateInfo",
                stage=api.lib.VK_SHADER_STAGE_COMPUTE_BIT,
                module=module,
                pName=entry,
                pSpecializationInfo=constants,
            )
            info = api.struct("VkComputePipelineCreateInfo", stage=stage[0], layout=self._layout(kernel)[1])
            pipeline = api.make("vkCreateComputePipelines", "VkPipeline", device.handle, self._cache, 1, info, api.NULL)
        finally:
            api.lib.vkDestroyShaderModule(device.handle, module, api.NULL)
        device.keep(self, ("vkDestroyPipeline", pipeline))
        return pipeline

    @property
    def has_new(self) -> bool:
        """Whether some were made that the disk doesn't know."""
        return len(self._known) != self._saved

    def save(self) -> None:
        """Writes what is new to the disk."""
        with self._lock:
            if not self.has_new or self._device.lost:
                return
            device, api = self._device, self._device.api
            size = api.ffi.new("size_t *")
            api.check(api.lib.vkGetPipelineCacheData(device.handle, self._cache, size, api.NULL), "vkGetPipelineCacheData")
            data = api.ffi.new("char[]", size[0])
            api.check(api.lib.vkGetPipelineCacheData(device.handle, self._cache, size, data), "vkGetPipelineCacheData")
            names = " ".join(sorted(self._known)).encode()
            self._disk.write(_CACHED, names + b"\n" + bytes(api.ffi.buffer(data, size[0])))
            self._saved = len(self._known)
