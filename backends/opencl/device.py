"""OpenCL devices: which there are, their limits, their memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from mnnx.backends.gpu.choice import choose
from mnnx.backends.gpu.device import Device, Memory
from mnnx.backends.gpu.kernel import Kernel
from mnnx.backends.gpu.process import Owner
from mnnx.backends.gpu.profile import profile_of
from mnnx.errors import BackendError, BackendUnavailable

_INSTALL = "install a driver with its ICD (on Debian: pocl-opencl-icd runs on any CPU)"


class OpenClMemory(Memory):
    """A cl.Buffer, and the pieces of it that kernels were given."""

    def __init__(self, buffer: Any, nbytes: int):
        self.buffer = buffer
        self.nbytes = nbytes
        self._pieces: dict[tuple[int, int], Any] = {}

    def piece(self, offset: int, nbytes: int) -> Any:
        """A sub-buffer; the whole where it is that."""
        if offset == 0:
            return self.buffer
        if (offset, nbytes) not in self._pieces:
            self._pieces[offset, nbytes] = self.buffer.get_sub_region(offset, nbytes)
        return self._pieces[offset, nbytes]

    def free(self) -> None:
        self._pieces.clear()
        if self.buffer is not None:
            self.buffer.release()
            self.buffer = None


class OpenClDevice(Device):
    """A device with its context, which all sessions of the process share."""

    def __init__(self, cl: Any, handle: Any):
        from mnnx.backends.opencl.programs import Programs

        self.cl = cl
        self.handle = handle
        platform = handle.platform
        self.identity = f"{platform.name} {platform.version}, {handle.name}, driver {handle.driver_version}"
        self.profile = profile_of(f"{handle.vendor} {handle.name} {platform.name}")
        self.owner = Owner(f"the OpenCL device {handle.name}")
        self.alignment = max(64, handle.mem_base_addr_align // 8)
        self.largest = self.largest_allocation = handle.max_mem_alloc_size
        try:
            self.context = cl.Context([handle])
        except cl.Error as error:
            raise BackendUnavailable(f"the OpenCL device {self.identity} can't be opened: {error}") from error
        self._queue = self.queue()
        self._programs = Programs(self)

    @contextmanager
    def errors(self, what: str) -> Iterator[None]:
        """Makes a BackendError of what the driver raises in a `with` block, which was to do `what`."""
        try:
            yield
        except self.cl.Error as error:
            raise BackendError(
                f"the OpenCL device {self.identity} failed to {what} ({error}): make a new session; smaller inputs may help"
            ) from error

    @property
    def compiled(self) -> int:
        return self._programs.compiled

    def has(self, kernel: Kernel) -> bool:
        return True

    def kernel(self, kernel: Kernel) -> Any:
        """A cl.Kernel of its own, whose arguments nobody else sets."""
        with self.errors(f"make {kernel}"):
            return self._programs.kernel(kernel)

    def queue(self, timing: bool = False) -> Any:
        """A new cl.CommandQueue; `timing`: which measures what it does."""
        with self.errors("make a queue"):
            return self.cl.CommandQueue(self.context, properties=self.cl.command_queue_properties.PROFILING_ENABLE if timing else 0)

    def allocate(self, nbytes: int) -> OpenClMemory:
        cl = self.cl
        most = self.largest_allocation
        if nbytes > most:
            raise BackendError(f"{nbytes} bytes in one piece are more than the OpenCL device gives ({most}): use smaller inputs")
        try:
            return OpenClMemory(cl.Buffer(self.context, cl.mem_flags.READ_WRITE, nbytes), nbytes)
        except cl.Error as error:
            raise BackendError(
                f"the OpenCL device has no memory left for {nbytes} bytes ({error}): use smaller inputs, or release sessions"
            ) from error

    def write(self, memory: OpenClMemory, offset: int, array: np.ndarray) -> None:
        with self.errors(f"take {array.nbytes} bytes"):
            self.cl.enqueue_copy(self._queue, memory.buffer, array, dst_offset=offset, is_blocking=True)


_DEVICES: dict[tuple[str, int], OpenClDevice] = {}
_LOCK = threading.Lock()


def open_device(wanted: str) -> OpenClDevice:
    """The device of that number, name (or a part of it) or type ("gpu", "cpu", "accelerator"); "": a GPU if there is one.

    Raises BackendUnavailable, saying what there is.
    """
    for device in _DEVICES.values():
        device.owner.check()
    try:
        import pyopencl as cl
    except ImportError as error:
        raise BackendUnavailable(f"the backend opencl needs the package pyopencl (pip install 'mnnx[opencl]'): {error}") from error
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        raise BackendUnavailable(f"no OpenCL driver was found ({error}): {_INSTALL}") from error
    found = []
    for platform in platforms:
        try:
            found += [(platform, device) for device in platform.get_devices()]
        except cl.Error:  # this platform's way to say that it has none
            continue
    if not found:
        names = ", ".join(platform.name for platform in platforms) or "none"
        raise BackendUnavailable(
            f"no OpenCL device was found (platforms: {names}): {_INSTALL}; PoCL shows none where it can't write its cache (POCL_CACHE_DIR)"
        )
    kinds = {cl.device_type.GPU: "gpu", cl.device_type.CPU: "cpu", cl.device_type.ACCELERATOR: "accelerator"}
    rows = [(f"{device.name} ({platform.name})", kinds.get(device.type & ~1, "other")) for platform, device in found]
    index = choose("OpenCL", rows, wanted)
    platform, device = found[index]
    with _LOCK:
        key = (platform.name, device.int_ptr)
        if key not in _DEVICES:
            _DEVICES[key] = OpenClDevice(cl, device)
        return _DEVICES[key]
