"""Local response normalization of float32 [batch, channels, n]."""

import numpy as np

from mnnx.backends.cpu.kernels.intrinsics import alloca, first_of, load_f32, load_i64, load_in, pointer_to, quotient, store_out
from mnnx.backends.cpu.kernels.math import exp_f32, log_f32
from mnnx.backends.cpu.kernels.registry import kernel_factory

F = np.float32
_COLUMNS = 256


@kernel_factory("lrn")
def make():
    """y = x / (bias + alpha * s)^beta, s the sum of squares of the channels from `before` below to `after` above, fewer at the ends.

    Arguments: x, y like x, batch, channels, n, before, after, float32 alpha, beta, bias (positive).
    """
    at = pointer_to("float32")
    scratch = alloca(4 * _COLUMNS)

    def run(args, part, parts):
        channels, n = load_i64(args + 24), load_i64(args + 32)
        before, after = load_i64(args + 40), load_i64(args + 48)
        alpha, beta, bias = load_f32(args + 56), load_f32(args + 64), load_f32(args + 72)
        blocks = quotient(n + _COLUMNS - 1, _COLUMNS)
        items = load_i64(args + 16) * channels * blocks
        sums = at(scratch())
        for item in range(first_of(items, part, parts, 1), first_of(items, part + 1, parts, 1)):
            plane = quotient(item, blocks)
            column = (item - plane * blocks) * _COLUMNS
            count = min(_COLUMNS, n - column)
            channel = plane - quotient(plane, channels) * channels
            here = 4 * (plane * n + column)
            for j in range(count):
                sums[j] = F(0)
            for c in range(max(-before, -channel), min(after, channels - 1 - channel) + 1):
                x = at(load_i64(args) + here + 4 * c * n)
                for j in range(count):
                    value = load_in(x, j)
                    sums[j] += value * value
            x, y = at(load_i64(args) + here), at(load_i64(args + 8) + here)
            for j in range(count):
                store_out(y, j, load_in(x, j) * exp_f32(-beta * log_f32(bias + alpha * sums[j])))

    return run
