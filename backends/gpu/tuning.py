"""Tiles and sizes of work groups, measured: what a session's tuner chooses among."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mnnx.backends.gpu.kernel import Kernel
from mnnx.backends.tuning_file import Device
from mnnx.schema.hashing import blake2b

if TYPE_CHECKING:
    from mnnx.backends.gpu.backend import GpuBackend
    from mnnx.backends.gpu.device import Dispatch

Group = tuple[int, ...]
Trial = Callable[[Group], Callable[[], int]]

#: Candidates for kernels over one, two and three dims.
_GROUPS: dict[int, Sequence[Group]] = {
    1: ((1,), (8,), (16,), (32,), (64,), (128,), (256,)),
    2: ((1, 1), (16, 1), (64, 1), (1, 16), (4, 4), (8, 8), (16, 4), (4, 16), (128, 1)),
    3: ((1, 1, 1), (16, 1, 1), (64, 1, 1), (1, 16, 1), (4, 4, 1), (8, 8, 1), (16, 4, 1), (4, 16, 1), (4, 4, 4)),
}
#: On CPUs, whose drivers compile a kernel anew for each size.
_FEW_GROUPS: dict[int, Sequence[Group]] = {1: ((1,), (64,)), 2: ((1, 1), (64, 1)), 3: ((1, 1, 1), (64, 1, 1))}


def device(backend: GpuBackend) -> Device:
    """The device with its driver, and the state of the kernels."""
    sources = sorted(Path(__file__).with_name("kernels").glob("*.py"))
    return Device(f"{backend.name} {backend.device.identity}", blake2b(b"".join(map(Path.read_bytes, sources)), digest_size=8).hexdigest())


def tuned_group(
    backend: GpuBackend, kernel: Kernel, params: Sequence[int | float], size: Sequence[int], usual: Group, trial: Trial
) -> Group:
    """The fastest group for a kernel with such parameters over so many work items, as far as times are known; else the `usual` one.

    `trial` gives for a group what does the work once in such groups, and says how many nanoseconds that took. Kernels with
    shared memory are left alone, as they rely on their group, and so are those that report illegal values, since they would run on
    whatever lies in memory now.
    """
    source = kernel.source
    if backend.tuner is None or source.shared or any(buffer.name == "faults" for buffer in source.buffers):
        return usual
    most, known = math.prod(size), _FEW_GROUPS if backend.device.profile.is_cpu else _GROUPS
    groups = {_name(group): group for group in (usual, *known[len(usual)]) if group == usual or math.prod(group) <= most}

    def prepare(name: str) -> Callable[[], float]:
        run = trial(groups[name])
        run()  # compiles it, where that depends on the group
        return lambda: run() * 1e-9

    problem = f"{kernel.key} over {'x'.join(map(str, size))}, {', '.join(map(str, params))}"
    return groups[backend.tuner.choose(backend, problem, list(groups), prepare).name]


def tuned_dispatch(backend: GpuBackend, dispatches: Mapping[str, Dispatch], trial: Callable[[Dispatch], Callable[[], int]]) -> Dispatch:
    """The fastest of dispatches that do the same work in different ways, as far as times are known; else the first. `trial` is as for
    `tuned_group`."""
    usual = next(iter(dispatches.values()))
    if backend.tuner is None:
        return usual

    def prepare(name: str) -> Callable[[], float]:
        run = trial(dispatches[name])
        run()
        return lambda: run() * 1e-9

    problem = f"a tile for {usual.kernel.key} over {'x'.join(map(str, usual.size))}, {', '.join(map(str, usual.params))}"
    return dispatches[backend.tuner.choose(backend, problem, list(dispatches), prepare).name]


def _name(group: Group) -> str:
    return "x".join(map(str, group))
