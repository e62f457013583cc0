"""Image preprocessing on the CPU: one kernel over the destination's rows."""

from __future__ import annotations

import ctypes
import functools
import threading

import numpy as np

from mnnx.backends.cpu.arguments import address_of
from mnnx.backends.cpu.cores import available_cores
from mnnx.backends.cpu.kernel import Kernel, kernel
from mnnx.backends.cpu.program import CpuCommandList
from mnnx.backends.cpu.team import Team
from mnnx.backends.image import ImageTask

_WRAPS = ("clamp_to_edge", "zero", "repeat")
_COLOURS = ("", "luma", "hsv")
_SLOTS = 53
_NATIVE = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)
#: Fewer destination pixels are done by the calling thread alone.
_WORTH_A_TEAM = 128 * 128


def process(task: ImageTask, num_threads: int) -> None:
    """Fills the task's destination. Raises BackendError where the kernel can't be compiled."""
    function = kernel("image.process", kind=task.kind, filter=task.filter, dtype=task.pixels.dtype.name)
    block = argument_block(task)
    _, height, width = task.destination.shape
    threads = min(num_threads or available_cores(), height)
    if threads == 1 or height * width < _WORTH_A_TEAM or not _crew(threads).run(function, block):
        _NATIVE(function.address)(address_of(block), 0, 1)


class _Crew:
    """A team that all ImageProcess objects with so many threads share; who finds it busy does without it."""

    def __init__(self, threads: int):
        self._team = Team(threads)
        self._free = threading.Lock()
        self._programs: dict[Kernel, tuple[CpuCommandList, np.ndarray]] = {}

    def run(self, function: Kernel, block: np.ndarray) -> bool:
        """False where another thread is using the team."""
        if not self._free.acquire(blocking=False):
            return False
        try:
            commands, arguments = self._programs.get(function) or self._program(function)
            arguments[:] = block
            commands.submit(0, 1)
        finally:
            self._free.release()
        return True

    def _program(self, function: Kernel) -> tuple[CpuCommandList, np.ndarray]:
        commands, arguments = CpuCommandList(self._team), np.zeros(_SLOTS, np.int64)
        commands.record(function, arguments, chunks=4 * self._team.threads)
        self._programs[function] = commands, arguments
        return commands, arguments


_crew = functools.cache(_Crew)


def argument_block(task: ImageTask) -> np.ndarray:
    """The kernel's argument block (its slots: kernels/image.py)."""
    block = np.zeros(_SLOTS, np.int64)
    float64, float32 = block.view(np.float64), block.view(np.float32)[::2]
    block[:2] = address_of(task.pixels), task.pixels.strides[0]
    if task.chroma:
        u, v = task.chroma
        block[2:6] = address_of(u), address_of(v), *u.strides
    block[6:9] = task.pixels.shape[1], task.pixels.shape[0], _WRAPS.index(task.wrap)
    float32[9:13] = task.outside
    float64[13:22] = task.matrix.ravel()
    float32[22:28] = task.yuv
    float32[28] = task.cubic
    channels, height, width = task.destination.shape
    channel_stride, row_stride, pixel_stride = task.destination.strides
    block[29:33] = address_of(task.destination), row_stride, channel_stride, pixel_stride
    block[33:36] = width, height, task.destination.dtype == np.uint8
    block[36:41] = _COLOURS.index(task.colours), *task.rgb, channels
    block[41 : 41 + channels] = task.planes
    float32[45 : 45 + channels] = task.mean
    float32[49 : 49 + channels] = task.normal
    return block
