"""OpenCL programs: compiled once per kernel, device and driver, and kept on disk."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from mnnx.backends.gpu.kernel import Kernel
from mnnx.backends.gpu.program_cache import open_program_cache
from mnnx.backends.opencl.language import opencl_c
from mnnx.errors import BackendError
from mnnx.schema.hashing import blake2b
from mnnx.schema.log import log

if TYPE_CHECKING:
    from mnnx.backends.opencl.device import OpenClDevice

_NAME = "run"
_OPTIONS = ("-cl-std=CL1.2", "-cl-mad-enable", "-cl-no-signed-zeros")


class Programs:
    """The programs of one device. `compiled` counts those that no cache had."""

    def __init__(self, device: OpenClDevice):
        self._device = device
        self._programs: dict[Kernel, Any] = {}
        self._lock = threading.Lock()
        self._cache = open_program_cache("opencl", device.identity)
        self.compiled = 0

    def kernel(self, kernel: Kernel) -> Any:
        with self._lock:
            if kernel not in self._programs:
                self._programs[kernel] = self._program(kernel)
            return self._device.cl.Kernel(self._programs[kernel], _NAME)

    def _program(self, kernel: Kernel) -> Any:
        cl, device = self._device.cl, self._device
        text = opencl_c(kernel.source, _NAME)
        identity = blake2b("\0".join((text, *_OPTIONS)).encode(), digest_size=16).hexdigest()
        binary = self._cache.read(identity)
        if binary is not None:
            try:
                return cl.Program(device.context, [device.handle], [binary]).build(list(_OPTIONS), cache_dir=False)
            except cl.Error as error:
                log().warning("the driver doesn't take the cached program of %s and compiles it again: %s", kernel, _first_line(error))
        try:
            program = cl.Program(device.context, text).build(list(_OPTIONS), cache_dir=False)
        except cl.Error as error:
            raise BackendError(f"the OpenCL driver can't compile {kernel}: {error}") from error
        self.compiled += 1
        self._cache.write(identity, program.get_info(cl.program_info.BINARIES)[0])
        return program


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
