"""A CPU backend that notes which kernels it would run on some machine, and runs nothing native itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from mnnx.backends.backend import Execution, SharedWeights, Specs, Tensors
from mnnx.backends.cpu import creators
from mnnx.backends.cpu.backend import CpuBackend
from mnnx.backends.cpu.host_execution import HostExecution
from mnnx.backends.cpu.kernel import Kernel, kernel
from mnnx.backends.cpu.numpy_executions import registry
from mnnx.backends.cpu.program import CpuCommandList
from mnnx.backends.cpu.target import Target
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.base import Op, Spec

#: What every session needs.
_TEAM = ("team.run", "team.worker", "team.quiesce")


class RecordingBackend(CpuBackend):
    """Plans as the CPU backend of `target` does, and adds the kernels that it asks for to `kernels`.

    Its sessions compute with NumPy executions, so that what depends on data can be planned as well.
    """

    def __init__(self, config: Any, shared: SharedWeights, target: Target, kernels: dict[Kernel, None]):
        """`config`: as for CpuBackend; it should say how many threads."""
        self.config = config.backend_config
        self.threads = config.num_threads or target.cores
        self.target = target
        self.team = _NoTeam()
        self.kernels = kernels
        self.kernels.update(dict.fromkeys(map(kernel, _TEAM)))
        self.new_commands()
        self._shared = shared

    @property
    def kernels_compiled(self) -> int:
        return 0

    def create(self, op: Op, inputs: Specs, outputs: Specs) -> Execution:
        execution = super().create(op, inputs, outputs)
        return execution if isinstance(execution, HostExecution) else _Recorded(op, self, execution)

    def new_commands(self) -> CpuCommandList:
        self.commands = _Commands(self.team, self.kernels)
        return self.commands

    def record(self, op: Op, inputs: Specs) -> None:
        """Notes the kernels of one op; inputs with values are constants. Ops without a native execution for them need none."""
        outputs = op.infer_all(*inputs)
        found = creators.find(type(op))
        if found is not None and found[1](op, inputs, outputs) is not None:
            outputs = outputs[:1]  # nobody asks for its other results
        if found is None or found[1](op, inputs, outputs) is not None:
            return
        execution = found[0](op, self, inputs, outputs)
        nbytes = execution.scratch_bytes(inputs, outputs)
        given = [self.constant("", spec.value) if spec is not None and spec.value is not None else self._tensor(spec) for spec in inputs]
        execution.on_resize(given, [*map(self._tensor, outputs)], self._tensor(Spec(np.dtype(np.uint8), (nbytes,))))

    def _tensor(self, spec: Spec | None) -> DeviceTensor | None:
        return None if spec is None else DeviceTensor("", spec, self, self.allocate(spec.nbytes))


class _Recorded(Execution):
    """A native execution that is only asked for its kernels, beside the NumPy execution that does the work."""

    def __init__(self, op: Op, backend: RecordingBackend, native: Execution):
        super().__init__(op, backend)
        self._native = native
        self.in_place = native.in_place

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        return self._native.scratch_bytes(inputs, outputs)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        self._native.on_resize(inputs, outputs, scratch)
        if registry.find(type(self.op)) is not None:
            HostExecution(self.op, self.backend).on_resize(inputs, outputs, scratch)


class _Commands(CpuCommandList):
    def __init__(self, team: _NoTeam, kernels: dict[Kernel, None]):
        super().__init__(team)
        self._kernels = kernels

    def record(self, kernel: Kernel, args: np.ndarray, chunks: int = 1, keep: Any = None) -> None:
        self._kernels[kernel] = None


class _NoTeam:
    """Host functions need no threads."""

    threads = 1

    def quiesce(self) -> None: ...

    def release(self) -> None: ...
