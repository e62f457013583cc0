"""A kernel that counts its calls: for tests of the team and of the caches."""

from math import nan

from numpy import float32

from mnnx.backends.cpu.kernels.intrinsics import load_i64, pointer_to, share
from mnnx.backends.cpu.kernels.registry import kernel_factory


@kernel_factory("selfcheck.count")
def make_count():
    at = pointer_to("float32")

    def count(args, part, parts):
        """x: float32 [n], each one larger after every call. Arguments: x, n."""
        x, n = at(load_i64(args)), load_i64(args + 8)
        first, last = share(n, part, parts, 16)
        for i in range(first, last):
            x[i] += 1

    return count


@kernel_factory("selfcheck.follow")
def make_follow():
    at = pointer_to("float32")

    def follow(args, part, parts):
        """y becomes x where x is one larger, else NaN; read from the far end, so that another chunk's elements are seen. Arguments: x, y
        (float32 [n]), n."""
        x, y, n = at(load_i64(args)), at(load_i64(args + 8)), load_i64(args + 16)
        first, last = share(n, part, parts, 16)
        for i in range(first, last):
            value = x[n - 1 - i]
            y[n - 1 - i] = value if value == y[n - 1 - i] + 1 else float32(nan)

    return follow
