"""Any function of single bytes: a table of its 256 values."""

from mnnx.backends.cpu.kernels.chain_words import GRAIN
from mnnx.backends.cpu.kernels.intrinsics import load_i32, load_i64, load_u8, share, store_i32, store_u8
from mnnx.backends.cpu.kernels.registry import kernel_factory


@kernel_factory("byte_table")
def make_lookup(size):
    """Arguments: x, y, table, count. `size`: bytes of an element of the table, 1 or 4."""

    def lookup(args, part, parts):
        x, y, table = load_i64(args), load_i64(args + 8), load_i64(args + 16)
        first, last = share(load_i64(args + 24), part, parts, GRAIN)
        for i in range(first, last):
            if size == 1:
                store_u8(y + i, load_u8(table + load_u8(x + i)))
            else:
                store_i32(y + 4 * i, load_i32(table + 4 * load_u8(x + i)))

    return lookup
