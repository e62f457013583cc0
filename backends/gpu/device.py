"""What the runtimes of OpenCL and Vulkan give the code that they share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from mnnx.backends.backend import CommandList
from mnnx.backends.gpu.kernel import Kernel
from mnnx.backends.gpu.profile import Profile
from mnnx.backends.tensor import DeviceTensor


class Memory(ABC):
    """A piece of device memory of `nbytes`; freed when nobody refers to it any more, or by `free`."""

    nbytes: int

    @abstractmethod
    def free(self) -> None: ...


class Device(ABC):
    """One device of this process; sessions share it. identity: the device and driver in words, for caches and messages.
    alignment: of tensors in memory, in bytes. largest: bytes that a kernel can reach through one argument."""

    identity: str
    profile: Profile
    alignment: int
    largest: int
    #: Whether kernels may read and write halves, bytes and shorts.
    has_half: bool = True
    #: Kernels that this process compiled, because no cache had them.
    compiled: int = 0

    @abstractmethod
    def has(self, kernel: Kernel) -> bool:
        """Whether it can run this kernel: on Vulkan, whether it was compiled ahead of time."""

    @abstractmethod
    def allocate(self, nbytes: int) -> Memory:
        """Raises BackendError where there is no memory left."""

    @abstractmethod
    def write(self, memory: Memory, offset: int, array: np.ndarray) -> None:
        """Contiguous host array → device, done when this returns. For what no queue works on: a session writes through its commands."""


class GpuCommandList(CommandList):
    """Dispatches of kernels, in the order in which they were recorded."""

    @abstractmethod
    def record(
        self,
        kernel: Kernel,
        buffers: Sequence[DeviceTensor | Memory],
        params: Sequence[int | float],
        size: Sequence[int],
        local: tuple[int, int, int] | None = None,
    ) -> None:
        """Adds a kernel with its arguments, for at least `size` (1 … 3 dims) work items.

        local: the work items of a group (None: as the kernel says).
        """
