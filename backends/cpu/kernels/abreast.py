"""Several independent units as one, which has the chunks of all."""

from mnnx.backends.cpu.kernels.intrinsics import call_kernel, load_i64
from mnnx.backends.cpu.kernels.registry import kernel_factory


@kernel_factory("abreast")
def make():
    def run(args, part, parts):
        """Arguments: per unit its kernel's address, that of its argument block, and its chunks (`backends/cpu/abreast.py`)."""
        while part >= load_i64(args + 16):
            part -= load_i64(args + 16)
            args += 24
        call_kernel(load_i64(args), load_i64(args + 8), part, load_i64(args + 16))

    return run
