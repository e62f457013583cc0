"""Gather: rows of a table at indices that are known when it runs."""

from mnnx.backends.cpu.kernels.intrinsics import load_i64, load_in, pointer_to, quotient, report, share, store_out
from mnnx.backends.cpu.kernels.registry import kernel_factory


@kernel_factory("gather")
def make(element: int, index: str):
    """y[o, i] = x[o, indices[i]]; an index outside [-rows, rows) is reported, and its row left as it is.

    Arguments: x [outer, rows, n], indices [count], y [outer, count, n], outer * count, rows, count, n (elements of `element` bytes),
    address and code for reports.
    """
    at = pointer_to({1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}[element])
    indices_at = pointer_to(index)

    def run(args, part, parts):
        indices = indices_at(load_i64(args + 8))
        rows, count, n = load_i64(args + 32), load_i64(args + 40), load_i64(args + 48)
        first, last = share(load_i64(args + 24), part, parts, 1)
        for item in range(first, last):
            outer = quotient(item, count)
            given = int(indices[item - outer * count])
            chosen = given + rows if given < 0 else given
            if chosen < 0 or chosen >= rows:
                report(load_i64(args + 56), load_i64(args + 64), given)
                continue
            x = at(load_i64(args) + (outer * rows + chosen) * n * element)
            y = at(load_i64(args + 16) + item * n * element)
            for i in range(n):
                store_out(y, i, load_in(x, i))

    return run
