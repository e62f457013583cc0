"""A kernel that counts its calls: for tests of the team and of the caches."""

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
