"""Softmax and LogSoftmax of float32 [outer, n, inner] over n, in place or not."""

import numpy as np

from mnnx.backends.cpu.kernels.intrinsics import alloca, first_of, load_i64, load_in, maximum, pointer_to, quotient, share, store_out
from mnnx.backends.cpu.kernels.math import exp_f32, log_f32
from mnnx.backends.cpu.kernels.registry import kernel_factory

F = np.float32
_LEAST = F(-np.inf)
_COLUMNS = 64


@kernel_factory("softmax.rows", fastmath=("contract", "reassoc", "nsz"))
def make_rows(logarithm: bool):
    """Arguments: x [outer, n], y like x, outer, n."""
    at = pointer_to("float32")

    def run(args, part, parts):
        n = load_i64(args + 24)
        first, last = share(load_i64(args + 16), part, parts, 1)
        for row in range(first, last):
            x, y = at(load_i64(args) + 4 * n * row), at(load_i64(args + 8) + 4 * n * row)
            top = _LEAST
            for i in range(n):
                top = maximum(top, load_in(x, i))
            total = F(0)
            if logarithm:
                for i in range(n):  # less the largest first, which may be large, and by way of memory: sums may be reordered here
                    value = load_in(x, i) - top
                    total += exp_f32(value)
                    store_out(y, i, value)
                shift = log_f32(total)
                for i in range(n):
                    y[i] = y[i] - shift
            else:
                for i in range(n):
                    value = exp_f32(load_in(x, i) - top)
                    total += value
                    store_out(y, i, value)
                scale = F(1) / total
                for i in range(n):
                    y[i] = y[i] * scale

    return run


@kernel_factory("softmax.columns")
def make_columns(logarithm: bool):
    """Arguments: x [outer, n, inner], y like x, outer, n, inner."""
    at = pointer_to("float32")
    top_scratch, total_scratch = alloca(4 * _COLUMNS), alloca(4 * _COLUMNS)

    def run(args, part, parts):
        n, inner = load_i64(args + 24), load_i64(args + 32)
        blocks = quotient(inner + _COLUMNS - 1, _COLUMNS)
        items = load_i64(args + 16) * blocks
        tops, totals = at(top_scratch()), at(total_scratch())
        for item in range(first_of(items, part, parts, 1), first_of(items, part + 1, parts, 1)):
            row = quotient(item, blocks)
            column = (item - row * blocks) * _COLUMNS
            count = min(_COLUMNS, inner - column)
            offset = 4 * (row * n * inner + column)
            for j in range(_COLUMNS):
                tops[j] = _LEAST
                totals[j] = F(0)
            for k in range(n):
                x = at(load_i64(args) + offset + 4 * k * inner)
                for j in range(count):
                    tops[j] = maximum(tops[j], load_in(x, j))
            for k in range(n):
                x, y = at(load_i64(args) + offset + 4 * k * inner), at(load_i64(args + 8) + offset + 4 * k * inner)
                for j in range(count):
                    value = exp_f32(load_in(x, j) - tops[j])
                    totals[j] += value
                    if not logarithm:
                        store_out(y, j, value)
            for j in range(_COLUMNS):
                totals[j] = log_f32(totals[j]) if logarithm else F(1) / totals[j]
            for k in range(n):
                x, y = at(load_i64(args) + offset + 4 * k * inner), at(load_i64(args + 8) + offset + 4 * k * inner)
                for j in range(count):
                    if logarithm:
                        store_out(y, j, load_in(x, j) - tops[j] - totals[j])
                    else:
                        y[j] = y[j] * totals[j]

    return run
