"""Vulkan's command list: command buffers recorded once, submitted with one call."""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mnnx.backends.gpu.device import GpuCommandList, Memory
from mnnx.backends.gpu.kernel import Kernel
from mnnx.backends.gpu.tuning import Group
from mnnx.backends.tensor import DeviceTensor
from mnnx.backends.vulkan.hazards import Hazards, Span
from mnnx.errors import BackendError
from mnnx.schema.records import Row

if TYPE_CHECKING:
    from mnnx.backends.vulkan.backend import VulkanBackend

_FORMATS = {"int": "i", "uint": "I", "float": "f"}
#: What every device takes along an axis.
_GROUPS = 65535


class _Dispatch(Row):
    """One kernel with its arguments. spans: the memory of each buffer."""

    kernel: Kernel
    pipeline: Any
    layout: Any
    spans: tuple[Span, ...]
    constants: bytes
    groups: tuple[int, int, int]


def within_limits(groups: tuple[int, int, int], most: tuple[int, int, int]) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """What to dispatch for so many work groups where an axis takes `most` (at least 65,535), and how they are numbered through all axes
    (zeros: they needn't be)."""
    if all(n <= limit for n, limit in zip(groups, most, strict=True)):
        return groups, (0, 0, 0)
    total = math.prod(groups)
    rows = -(-total // min(most[0], _GROUPS))
    return (-(-total // rows), rows, 1), groups


class VulkanCommandList(GpuCommandList):
    """Holds a command buffer for every range that was ever submitted: the whole, and single units for callbacks."""

    def __init__(self, backend: VulkanBackend):
        super().__init__(backend)
        self._device = backend.device
        self._dispatches: list[_Dispatch] = []
        self._kept: list[Any] = []
        self._sets: list[Any] = []
        self._pool: Any = None
        self._recorded: dict[tuple[int, int], Any] = {}
        self._timed: dict[tuple[int, int], tuple[Any, Any]] = {}

    def __len__(self) -> int:
        return len(self._dispatches)

    def add(
        self, kernel: Kernel, buffers: Sequence[DeviceTensor | Memory], params: Sequence[int | float], size: Sequence[int], group: Group
    ) -> None:
        source, device = kernel.source, self._device
        device.check_usable()
        local = (*group, 1, 1)[:3]
        if math.prod(local) > device.limits.maxComputeWorkGroupInvocations:
            raise BackendError(f"{kernel} asks for work groups of {local}, which the Vulkan device {device.identity} doesn't have")
        groups = tuple(-(-n // step) for n, step in zip((*size, 1, 1)[:3], local, strict=True))
        groups, numbered = within_limits(groups, tuple(device.limits.maxComputeWorkGroupCount))
        spans = tuple(self._span(buffer, place.writes) for buffer, place in zip(buffers, source.buffers, strict=True))
        constants = b"".join(struct.pack(f"={_FORMATS[kind]}", value) for (kind, _), value in zip(source.parameters, params, strict=True))
        constants += struct.pack("=3I", *numbered)
        layout, pipeline = device.pipelines.layout(kernel)[1], device.pipelines.pipeline(kernel, local)
        self._dispatches.append(_Dispatch(kernel, pipeline, layout, spans, constants, groups))
        self._kept.append(buffers)

    def _span(self, buffer: DeviceTensor | Memory, writes: bool) -> Span:
        backend = self._backend
        if isinstance(buffer, DeviceTensor):
            memory, offset = backend.memory_of(buffer), buffer.offset
            nbytes = max(1, backend.stored_bytes(buffer.spec, buffer.layout))
        else:
            memory, offset, nbytes = buffer, 0, buffer.nbytes
        if nbytes > self._device.largest:
            raise BackendError(
                f"{nbytes} bytes are more than one argument of a kernel can hold on the Vulkan device {self._device.identity}"
            )
        start = memory.start + offset
        return Span(memory.buffer, start, start + -(-nbytes // 4) * 4, writes)

    def prepare(self) -> None:
        """Has a driver that compiles late compile what is new: runs everything, on whatever lies in memory."""
        if self._device.profile.compiles_late and self._device.pipelines.has_new and not self._faults:
            self.enqueue(0, len(self))
            self._backend.submission.wait()

    def enqueue(self, first: int, last: int) -> None:
        if first == last:
            return
        if (first, last) not in self._recorded:
            self._device.pipelines.save()
        self._submit(first, last)

    def _submit(self, first: int, last: int) -> None:
        info = self._recorded.get((first, last))
        if info is None:
            info = self._recorded[first, last] = self._record(first, last)
        self._backend.submission.submit(info)

    def enqueue_timed(self, first: int, last: int) -> int:
        if first == last:
            return 0
        if not self._device.has_clock:
            return self._enqueue_by_the_hosts_clock(first, last)
        if (first, last) not in self._timed:
            queries = self._device.query_pool(self, 2)
            self._timed[first, last] = self._record(first, last, queries), queries
        info, queries = self._timed[first, last]
        self._backend.submission.submit(info)
        self._backend.submission.wait()
        return self._device.nanoseconds(queries)

    def _enqueue_by_the_hosts_clock(self, first: int, last: int) -> int:
        self._backend.submission.wait()
        start = time.perf_counter_ns()
        self._submit(first, last)
        self._backend.submission.wait()
        return time.perf_counter_ns() - start

    # ---- recording
    def _record(self, first: int, last: int, queries: Any = None) -> Any:
        """The VkSubmitInfo of a new command buffer. queries: a pool for the timestamps of its start and end."""
        device = self._device
        api, lib = device.api, device.api.lib
        device.check_usable()
        self._describe()
        if self._pool is None:
            self._pool = device.command_pool(self)
        commands = device.command_buffer(self._pool)
        hazards, compute, null = Hazards(), lib.VK_PIPELINE_BIND_POINT_COMPUTE, api.NULL
        api.check(lib.vkBeginCommandBuffer(commands, api.struct("VkCommandBufferBeginInfo")), "vkBeginCommandBuffer")
        if queries is not None:
            lib.vkCmdResetQueryPool(commands, queries, 0, 2)
            lib.vkCmdWriteTimestamp(commands, lib.VK_PIPELINE_STAGE_TOP_OF_PIPE_BIT, queries, 0)
        bound = None
        for dispatch, chosen in zip(self._dispatches[first:last], self._sets[first:last], strict=True):
            if hazards.must_wait(dispatch.spans):
                device.wait_for_kernels(commands)
            if dispatch.pipeline != bound:
                bound = dispatch.pipeline
                lib.vkCmdBindPipeline(commands, compute, bound)
            lib.vkCmdBindDescriptorSets(commands, compute, dispatch.layout, 0, 1, chosen, 0, null)
            data = api.ffi.from_buffer(dispatch.constants)
            lib.vkCmdPushConstants(commands, dispatch.layout, lib.VK_SHADER_STAGE_COMPUTE_BIT, 0, len(dispatch.constants), data)
            lib.vkCmdDispatch(commands, *dispatch.groups)
        if queries is not None:
            lib.vkCmdWriteTimestamp(commands, lib.VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, queries, 1)
        device.make_visible(commands)
        api.check(lib.vkEndCommandBuffer(commands), "vkEndCommandBuffer")
        return device.submit_info(commands)

    def _describe(self) -> None:
        """Makes the descriptor sets of what was recorded since the last time."""
        new = self._dispatches[len(self._sets) :]
        if not new:
            return
        device = self._device
        api, storage = device.api, device.api.lib.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER
        total = sum(len(dispatch.spans) for dispatch in new)
        sizes = api.array("VkDescriptorPoolSize", [{"type": storage, "descriptorCount": total}])
        info = api.struct("VkDescriptorPoolCreateInfo", maxSets=len(new), poolSizeCount=1, pPoolSizes=sizes)
        pool = api.make("vkCreateDescriptorPool", "VkDescriptorPool", device.handle, info, api.NULL)
        device.keep(self, ("vkDestroyDescriptorPool", pool))
        layouts = api.array("VkDescriptorSetLayout", [device.pipelines.layout(dispatch.kernel)[0] for dispatch in new])
        request = api.struct("VkDescriptorSetAllocateInfo", descriptorPool=pool, descriptorSetCount=len(new), pSetLayouts=layouts)
        sets = api.ffi.new("VkDescriptorSet[]", len(new))
        api.check(api.lib.vkAllocateDescriptorSets(device.handle, request, sets), "vkAllocateDescriptorSets")
        rows, writes = api.ffi.new("VkDescriptorBufferInfo[]", total), api.ffi.new("VkWriteDescriptorSet[]", len(new))
        row = 0
        kind = api.lib.VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET
        for place, dispatch in enumerate(new):
            write = writes[place]
            write.sType, write.dstSet, write.descriptorCount, write.descriptorType = kind, sets[place], len(dispatch.spans), storage
            write.pBufferInfo = rows + row
            for span in dispatch.spans:
                rows[row].buffer, rows[row].offset, rows[row].range = span.buffer, span.start, span.end - span.start
                row += 1
        api.lib.vkUpdateDescriptorSets(device.handle, len(new), writes, 0, api.NULL)
        self._sets += [api.array("VkDescriptorSet", [sets[place]]) for place in range(len(new))]
