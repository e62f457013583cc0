"""Measures what the machine can do at most: multiply-adds per second, and bytes read from memory per second."""

from __future__ import annotations

import time

import numpy as np

from mnnx.backends.cpu.arguments import aligned, arguments
from mnnx.backends.cpu.kernel import kernel
from mnnx.backends.cpu.program import CpuCommandList
from mnnx.backends.cpu.target import Target
from mnnx.backends.cpu.team import Team
from mnnx.schema.records import Row

_TURNS = 100_000
#: What is read is twice the last cache, within these bounds.
_LEAST_BYTES, _MOST_BYTES = 64 << 20, 256 << 20
_SECONDS = 0.3


class Peak(Row):
    """float32 operations per second (a multiply-add counts as two), and bytes per second, on all threads together."""

    flops: float
    bytes: float


def measure(threads: int) -> Peak:
    """Takes less than a second."""
    target, team = Target.host(), Team(threads)
    lanes = target.vector_bytes // 4
    sums = target.vector_registers - 8
    memory = aligned(64 * threads).view(np.float32)
    memory[:] = 1e-3
    work = kernel("peak.multiply_add", lanes=lanes, fma=target.fma, sums=sums)
    flops = 2 * sums * lanes * _TURNS * threads / _fastest(team, work, arguments(_TURNS, memory), threads)
    data = aligned(min(max(2 * target.caches[2], _LEAST_BYTES), _MOST_BYTES))
    data.fill(1)
    read = kernel("peak.read", lanes=lanes)
    nbytes = data.nbytes / _fastest(team, read, arguments(data, data.nbytes, memory), threads)
    team.release()
    return Peak(flops, nbytes)


def _fastest(team: Team, work, block: np.ndarray, threads: int) -> float:
    """Seconds of the fastest of many runs of a kernel with one chunk per thread."""
    commands = CpuCommandList(team)
    commands.record(work, block, threads)
    commands.submit(0, 1)
    times, end = [], time.perf_counter() + _SECONDS
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        commands.submit(0, 1)
        times.append(time.perf_counter() - start)
    return min(times)
