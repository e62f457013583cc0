"""A CPU backend that notes which kernels it would run on some machine, and runs nothing native itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mnnx.backends.backend import Execution, Layouts, SharedWeights, Specs, Tensors
from mnnx.backends.blocked import tensor_bytes
from mnnx.backends.cpu import creators
from mnnx.backends.cpu.backend import CpuBackend
from mnnx.backends.cpu.chaining import Elements
from mnnx.backends.cpu.host_execution import HostExecution
from mnnx.backends.cpu.kernel import Kernel, kernel
from mnnx.backends.cpu.numpy_executions import registry
from mnnx.backends.cpu.program import CpuCommandList
from mnnx.backends.cpu.target import Target
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.base import Op, Spec
from mnnx.schema.ops.repack import Repack

#: What every session needs, or may need.
_TEAM = ("team.run", "team.share", "team.repeat", "team.worker", "team.quiesce", "chain", "abreast")


class RecordingBackend(CpuBackend):
    """Plans as the CPU backend of `target` does, and adds the kernels that it asks for to `kernels`.

    Its sessions compute with NumPy executions, so that what depends on data can be planned as well.
    """

    def __init__(self, config: Any, shared: SharedWeights, target: Target, kernels: dict[Kernel, None]):
        self.kernels = kernels
        self.kernels.update(dict.fromkeys(map(kernel, _TEAM)))
        super().__init__(config, shared, target)

    def new_team(self, config: Any) -> _NoTeam:
        return _NoTeam()

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
        plain = Layouts((0,) * len(inputs), (0,) * len(outputs))
        for way in (plain, *found[0](op, self, inputs, outputs).layouts(inputs, outputs, self.block_width)):
            execution = found[0](op, self, inputs, outputs)
            execution.way = None if way is plain else way
            scratch = Spec(np.dtype(np.uint8), (execution.scratch_bytes(inputs, outputs),))
            given = [
                self.constant("", spec.value) if spec is not None and spec.value is not None else self._tensor(spec, layout)
                for spec, layout in zip(inputs, way.inputs, strict=True)
            ]
            made = [self._tensor(spec, layout) for spec, layout in zip(outputs, way.outputs, strict=True)]
            execution.on_resize(given, made, self._tensor(scratch))

    def _tensor(self, spec: Spec | None, layout: int = 0) -> DeviceTensor | None:
        return None if spec is None else DeviceTensor("", spec, self, self.allocate(tensor_bytes(spec, layout)), layout=layout)


class _Recorded(Execution):
    """A native execution that is only asked for its kernels, while the NumPy execution does the work."""

    def __init__(self, op: Op, backend: RecordingBackend, native: Execution):
        super().__init__(op, backend)
        self._native = native
        self.in_place = native.in_place

    def layouts(self, inputs: Specs, outputs: Specs, lanes: int) -> Sequence[Layouts]:
        return self._native.layouts(inputs, outputs, lanes)

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        self._native.way = self.way
        return self._native.scratch_bytes(inputs, outputs)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        self._native.way = self.way
        self._native.on_resize(inputs, outputs, scratch)

        def run() -> None:
            values = [None if tensor is None else tensor.copy_to_host() for tensor in inputs]
            results = values if isinstance(self.op, Repack) else registry.run(self.op, values)
            for tensor, value in zip(outputs, results, strict=False):
                if tensor is not None:
                    tensor.copy_from_host(value)

        self.backend.commands.record_host(run)


class _Commands(CpuCommandList):
    def __init__(self, team: _NoTeam, kernels: dict[Kernel, None]):
        super().__init__(team)
        self._kernels = kernels

    def record(self, kernel: Kernel, args: np.ndarray, chunks: int = 1, keep: Any = None, elements: Elements | None = None) -> None:
        self._kernels[kernel] = None


class _NoTeam:
    """Host functions need no threads."""

    threads = 1

    def quiesce(self) -> None: ...

    def release(self) -> None: ...
