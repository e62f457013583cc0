"""What a session's backend is on any GPU: executions from the shared factory, tensors in device memory, weights packed once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from mnnx.backends.backend import Backend, Layouts, SharedWeights, Specs
from mnnx.backends.blocked import block, blocked_shape, unblock
from mnnx.backends.gpu import creators, tuning
from mnnx.backends.gpu.device import Device, GpuCommandList, Memory
from mnnx.backends.gpu.execution import GpuExecution
from mnnx.backends.gpu.source import RAW
from mnnx.backends.gpu.steps import BESIDES, ENDLESS
from mnnx.backends.tensor import DeviceTensor
from mnnx.backends.tuning_file import Device as TunedDevice
from mnnx.schema.ops.base import Op, Spec

_FLOAT32, _FLOAT16, _BOOL = np.dtype("float32"), np.dtype("float16"), np.dtype("bool")
#: Kernels count in int32; what rounds sizes up to blocks or groups needs some room.
_MOST_ELEMENTS = (1 << 31) - (1 << 20)
_STORAGES = {
    _FLOAT32: "float",
    _FLOAT16: "half",
    _BOOL: "bool",
    **{np.dtype(name): short for name, short in (("int32", "int"), ("uint32", "uint"), ("int8", "char"), ("uint8", "uchar"))},
    **{np.dtype(name): short for name, short in (("int16", "short"), ("uint16", "ushort"))},
}


class GpuBackend(Backend):
    """`half`: whether float32 tensors are stored as halves (precision "low", where that is faster or memory is "low"); they are computed
    with as float32 all the same. `saves_memory`: whether memory counts more than speed (memory "low")."""

    has_devices = True
    commands: GpuCommandList

    def __init__(self, device: Device, config: Any, shared: SharedWeights):
        self.device = device
        hints = config.backend_config
        self.saves_memory = hints.memory == "low"
        self.half = hints.precision == "low" and device.has_half and (device.profile.halves or self.saves_memory)
        self.block_width = device.profile.block
        self.alignment = device.alignment * (2 if self.half else 1)  # of what would be float32
        self._shared = shared
        self._compiled_before = device.compiled
        self.commands = self.new_commands()

    @property
    def largest_allocation(self) -> int:
        return self.device.largest_allocation

    @property
    def kernels_compiled(self) -> int:
        return self.device.compiled - self._compiled_before

    @cached_property
    def tuning_device(self) -> TunedDevice:
        return tuning.device(self)

    # ---- executions
    def supports(self, op: Op, inputs: Specs, outputs: Specs) -> str | None:
        found = creators.find(type(op))
        reason = "no execution" if found is None else found[1](op, inputs, outputs)
        if reason is None:
            execution = found[0](op, self, inputs, outputs)
            bound = [spec for i, spec in enumerate(inputs) if i not in execution.packed_inputs]
            reason = self._too_large([*bound, *outputs]) or self._lacks(execution, inputs, outputs)
        return None if reason is None else f"{op.name}: {reason}"

    def can_run(self, op: Op, inputs: Specs, outputs: Specs, way: Layouts) -> bool:
        if self._too_large([*inputs, *outputs], (*way.inputs, *way.outputs)):
            return False
        execution = self.create(op, inputs, outputs)
        execution.way = way
        return self._needs_too_much(execution, inputs, outputs) is None

    def _too_large(self, specs: Specs, layouts: Sequence[int] | None = None) -> str | None:
        """The reason against one of the tensors in these layouts (None: all are plain)."""
        for spec, layout in zip(specs, layouts or (0,) * len(specs), strict=True):
            if spec is not None and not self._can_bind(self.stored_bytes(spec, layout), self.stored(spec.dtype.itemsize, spec.dtype)):
                return f"{spec} is larger than {self._most}"
        return None

    def _lacks(self, execution: GpuExecution, inputs: Specs, outputs: Specs) -> str | None:
        missing = next((kernel for kernel in execution.kernels(inputs, outputs) if not self.device.has(kernel)), None)
        if missing is not None:
            return f"the {missing} isn't among those compiled ahead of time"
        return self._needs_too_much(execution, inputs, outputs)

    def _needs_too_much(self, execution: GpuExecution, inputs: Specs, outputs: Specs) -> str | None:
        nbytes, working = execution.largest_piece(inputs, outputs), execution.scratch_bytes(inputs, outputs)
        if not self._can_bind(nbytes, 2):
            return f"it needs {nbytes >> 20} MiB in a piece, more than {self._most}"
        most = self.largest_allocation
        if working > most:
            return f"it needs {working >> 20} MiB to work in, more than the {most >> 20} MiB of one allocation"
        return self._makes_too_many_steps(execution.loop_steps(inputs, outputs))

    def _makes_too_many_steps(self, steps: int) -> str | None:
        profile = self.device.profile
        if steps <= self.most_steps:
            return None
        if steps >= ENDLESS:
            return f"its data say how many steps its loops take, and {profile.name} makes {profile.loop_steps:,}"
        return f"its loops take up to {steps + BESIDES:,} steps, more than the {profile.loop_steps:,} that {profile.name} makes"

    def _can_bind(self, nbytes: int, itemsize: int) -> bool:
        return nbytes <= self.device.largest and nbytes // min(itemsize, 4) <= _MOST_ELEMENTS

    @property
    def most_steps(self) -> int:
        """What an execution's `loop_steps` may come to."""
        steps = self.device.profile.loop_steps
        return ENDLESS if steps is None else steps - BESIDES

    @property
    def _most(self) -> str:
        return f"the {self.device.largest >> 20} MiB and {_MOST_ELEMENTS} elements that one argument of a kernel can hold here"

    def create(self, op: Op, inputs: Specs, outputs: Specs) -> GpuExecution:
        return creators.find(type(op))[0](op, self, inputs, outputs)

    @classmethod
    def execution_kind(cls, op_class: type[Op]) -> str:
        return "native" if creators.find(op_class) is not None else ""

    # ---- storage
    def storage(self, dtype: np.dtype) -> str:
        """How kernels name the storage of a dtype (`source.STORAGES`)."""
        return "half" if self.half and dtype == _FLOAT32 else _STORAGES[dtype]

    def raw_storage(self, dtype: np.dtype, count: int = 1) -> tuple[str, int, int]:
        """How kernels that only move data name elements of a dtype: storage, width, and how many of them that are (more than one only where
        rows of `count` elements allow it)."""
        nbytes = self.stored(dtype.itemsize, dtype)
        several = 16 // nbytes if count and count % (16 // nbytes) == 0 else 1
        return *RAW[nbytes * several], several

    def stored(self, nbytes: int, dtype: np.dtype) -> int:
        return nbytes // 2 if self.half and dtype == _FLOAT32 else nbytes

    def to_storage(self, array: np.ndarray) -> np.ndarray:
        """A host array as it lies in memory. Of what is stored as halves, larger finite numbers become the largest half."""
        array = np.ascontiguousarray(array)
        if not self.half or array.dtype != _FLOAT32:
            return array
        with np.errstate(over="ignore"):
            halves = array.astype(_FLOAT16)
        beyond = np.isinf(halves) & np.isfinite(array)
        return np.where(beyond, np.copysign(np.finfo(_FLOAT16).max, halves), halves) if beyond.any() else halves

    # ---- memory
    def allocate(self, nbytes: int) -> Memory:
        return self.device.allocate(max(nbytes, self.alignment))

    def constant(self, name: str, array: np.ndarray) -> DeviceTensor:
        """It reaches the device when a kernel asks for it (`memory_of`): most weights are packed, and needed there in that form alone."""
        return DeviceTensor(name, Spec(array.dtype, array.shape), self, None, 0, array)

    def memory_of(self, tensor: DeviceTensor) -> Memory:
        if tensor.memory is None:
            tensor.memory = self.packed("plain", tensor.constant, lambda array: array)
        return tensor.memory

    def packed(self, key: Any, array: np.ndarray, pack: Callable[[np.ndarray], np.ndarray]) -> Memory:
        """`pack(array)` for a weight, on the device, made once for all sessions of the model; `key` names the way of packing."""
        return self._shared.get((self.device, self.half, key), array, lambda given: self._placed(pack(given)))

    def _placed(self, array: np.ndarray) -> Memory:
        stored = self.to_storage(array)
        memory = self.allocate(stored.nbytes)
        if stored.nbytes:
            self.device.write(memory, 0, stored)
        return memory

    def table(self, values: np.ndarray) -> Memory:
        """An array for one execution alone, as it is, such as a table of offsets."""
        values = np.ascontiguousarray(values)
        memory = self.allocate(values.nbytes)
        if values.nbytes:
            self.device.write(memory, 0, values)
        return memory

    def upload(self, array: np.ndarray, tensor: DeviceTensor) -> None:
        if array.size:
            self.write(self.memory_of(tensor), tensor.offset, self.to_storage(block(array, tensor.layout) if tensor.layout else array))

    def download(self, tensor: DeviceTensor) -> np.ndarray:
        if tensor.constant is not None:
            return tensor.constant.copy()
        shape = blocked_shape(tensor.shape, tensor.layout) if tensor.layout else tensor.shape
        array = np.empty(shape, _FLOAT16 if self.half and tensor.dtype == _FLOAT32 else tensor.dtype)
        if array.size:
            self.read(tensor.memory, tensor.offset, array)
        array = array.astype(tensor.dtype, copy=False)
        return unblock(array, tensor.shape[1]) if tensor.layout else array

    @abstractmethod
    def write(self, memory: Memory, offset: int, array: np.ndarray) -> None:
        """Contiguous host array → device, in order with what is submitted; the array may change when this returns."""

    @abstractmethod
    def read(self, memory: Memory, offset: int, array: np.ndarray) -> None:
        """Device → contiguous host array, when all that was submitted is done."""
