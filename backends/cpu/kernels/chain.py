"""Several units in one pass over memory: tile by tile, each does its part of a tile before the next tile begins."""

from mnnx.backends.cpu.kernels.intrinsics import call_kernel, load_i64, share
from mnnx.backends.cpu.kernels.registry import kernel_factory


@kernel_factory("chain")
def make():
    def run(args, part, parts):
        """Arguments: units, tiles, then per unit its kernel's address and that of its argument block (`backends/cpu/chaining.py`)."""
        units, tiles = load_i64(args), load_i64(args + 8)
        first, last = share(tiles, part, parts, 1)
        for tile in range(first, last):
            for unit in range(units):
                row = args + 16 + 16 * unit
                call_kernel(load_i64(row), load_i64(row + 8), tile, tiles)

    return run
