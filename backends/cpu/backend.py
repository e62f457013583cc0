"""The CPU as a backend: native kernels on a team of threads, and NumPy executions for all other ops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from mnnx.backends import expansion as expansions
from mnnx.backends.backend import Backend, Execution, SharedWeights, Specs
from mnnx.backends.blocked import block, unblock
from mnnx.backends.cpu import creators, kernel_bundles
from mnnx.backends.cpu.arguments import address_of, aligned, aligned_copy, array_of
from mnnx.backends.cpu.cores import available_cores
from mnnx.backends.cpu.host_execution import HostExecution
from mnnx.backends.cpu.kernel import compiled_count
from mnnx.backends.cpu.numpy_executions import registry
from mnnx.backends.cpu.program import CpuCommandList
from mnnx.backends.cpu.target import Target
from mnnx.backends.cpu.team import Team, chunks_of
from mnnx.backends.tensor import DeviceTensor
from mnnx.errors import BackendError
from mnnx.schema.ops.base import Op, Spec

if TYPE_CHECKING:
    from mnnx.backends.cpu.shared_team import TeamShare
    from mnnx.backends.tuning_file import Device


class CpuBackend(Backend):
    """`threads`: the calling one included. `target`: what plans of tiles and layouts may rely on. `commands`: the list being recorded."""

    name = "cpu"
    runs_abreast = True

    def __init__(self, config: Any, shared: SharedWeights, target: Target | None = None):
        """`config`: a ScheduleConfig; its `num_threads` of 0 means all cores that the process may use. `target`: another machine than
        this one, for a backend that doesn't run."""
        self.config = config.backend_config
        self.threads = (config.team or config).num_threads or available_cores()
        self.target = target or Target.host()
        self.block_width = self.target.vector_bytes // 4
        self._shared = shared
        self._compiled_before = compiled_count()
        if shared.model is not None:
            kernel_bundles.search_beside(shared.model)
        self.team = self.new_team(config)
        self.commands = self.new_commands()

    def new_team(self, config: Any) -> Team | TeamShare:
        if config.team is None:
            return Team(self.threads, config.cpu_ids)
        from mnnx.backends.cpu.shared_team import SharedTeam, TeamShare  # not at every start

        return TeamShare(config.team.opened(lambda: SharedTeam(self.threads, config.team.cpu_ids)), config.priority)

    @property
    def kernels_compiled(self) -> int:
        """Kernels that this process has compiled since the backend was made."""
        return compiled_count() - self._compiled_before

    def supports(self, op: Op, inputs: Specs, outputs: Specs) -> str | None:
        found = creators.find(type(op))
        reason = "no execution" if found is None else found[1](op, inputs, outputs)
        return None if reason is None or registry.find(type(op)) else f"{op.name}: {reason}"

    def create(self, op: Op, inputs: Specs, outputs: Specs) -> Execution:
        found = creators.find(type(op))
        if found is not None and found[1](op, inputs, outputs) is None:
            return found[0](op, self, inputs, outputs)
        return HostExecution(op, self)

    @classmethod
    def execution_kind(cls, op_class: type[Op]) -> str:
        if creators.find(op_class) is not None:
            return "native"
        return "numpy" if registry.find(op_class) else ""

    def allocate(self, nbytes: int) -> np.ndarray:
        try:
            return aligned(nbytes)
        except (MemoryError, ValueError) as error:
            raise BackendError(f"there is no memory left for {nbytes} bytes: use smaller inputs, or release sessions") from error

    def constant(self, name: str, array: np.ndarray) -> DeviceTensor:
        if not array.flags.c_contiguous or address_of(array) % array.dtype.itemsize:
            array = self.packed("contiguous", array, aligned_copy)
        if (expansion := expansions.find(array)) is not None:
            return expansions.ExpandedTensor(name, Spec(array.dtype, array.shape), self, expansion)
        return DeviceTensor(name, Spec(array.dtype, array.shape), self, array.reshape(-1).view(np.uint8), 0, array)

    def packed(self, key: Any, array: np.ndarray, pack: Callable[[np.ndarray], Any]) -> Any:
        """`pack(array)` for a weight, made once for all sessions of the model; `key` names the way of packing."""
        return self._shared.get((self.target.level.name, key), array, pack)

    def chunks(self, work: float, least: float = 3e3) -> int:
        """How many parts to make of a unit of `work` units (each about the time of one vector instruction), none with less than `least`."""
        return chunks_of(work, self.threads, least)

    def upload(self, array: np.ndarray, tensor: DeviceTensor) -> None:
        array_of(tensor)[...] = block(array, tensor.layout) if tensor.layout else array

    def download(self, tensor: DeviceTensor) -> np.ndarray:
        return unblock(array_of(tensor), tensor.shape[1]) if tensor.layout else array_of(tensor).copy()

    def host_view(self, tensor: DeviceTensor) -> np.ndarray:
        if tensor.layout:
            return self.download(tensor)
        view = array_of(tensor).view()
        view.flags.writeable = False
        return view

    def new_commands(self) -> CpuCommandList:
        self.commands = CpuCommandList(self.team)
        return self.commands

    @cached_property
    def tuning_device(self) -> Device:
        from mnnx.backends.cpu.tuning import device

        return device(self)

    @contextmanager
    def apart(self, weights: SharedWeights) -> Iterator[CpuCommandList]:
        """While this lasts, work is recorded in a command list of its own, and weights are packed into `weights`."""
        commands, shared = self.commands, self._shared
        self._shared = weights
        try:
            yield self.new_commands()
        finally:
            self.commands, self._shared = commands, shared

    def release(self) -> None:
        self.team.release()
