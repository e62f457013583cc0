"""Normalizations of float32, in place or not: rows to mean 0 and variance 1, then scaled and shifted."""

import math

import numpy as np

from mnnx.backends.cpu.kernels.intrinsics import inlined, load_f32, load_i64, load_in, pointer_to, quotient, share, store_out, summing
from mnnx.backends.cpu.kernels.registry import kernel_factory

F = np.float32
_BLOCK = 2048  # elements added up in float32, before the sum goes on in float64


@summing
def _mean(x, n):
    total = 0.0
    for block in range(0, n, _BLOCK):
        value = F(0)
        for i in range(block, min(n, block + _BLOCK)):
            value += load_in(x, i)
        total += value
    return F(total / n)


@summing
def _inverse_deviation(x, n, mean, epsilon):
    """1 / sqrt(mean((x - mean)^2) + epsilon)."""
    total = 0.0
    for block in range(0, n, _BLOCK):
        value = F(0)
        for i in range(block, min(n, block + _BLOCK)):
            difference = load_in(x, i) - mean
            value += difference * difference
        total += value
    return F(1.0 / math.sqrt(total / n + epsilon))


def make_row(center: bool, bias: bool):
    """A function that normalizes a row x of n elements to y, and gives its mean (0 without `center`) and its inverse deviation."""

    @inlined
    def normalize(x, y, n, scale, shift, epsilon):
        mean = _mean(x, n) if center else F(0)
        factor = _inverse_deviation(x, n, mean, epsilon)
        for i in range(n):
            value = (load_in(x, i) - mean) * factor * load_in(scale, i)
            store_out(y, i, value + load_in(shift, i) if bias else value)
        return mean, factor

    return normalize


@kernel_factory("normalization.rows")
def make_rows(center: bool, bias: bool):
    """y = (x - mean) / deviation * scale + bias over rows; without `center` the mean counts as 0, as RMSNormalization has it.

    Arguments: x [rows, n], y like x, rows, n, scale [n], bias [n] or 0, float32 epsilon, means [rows] or 0, inverse deviations [rows]
    or 0.
    """
    at, normalize = pointer_to("float32"), make_row(center, bias)

    def run(args, part, parts):
        n = load_i64(args + 24)
        scale, shift = at(load_i64(args + 32)), at(load_i64(args + 40))
        means, deviations = load_i64(args + 56), load_i64(args + 64)
        first, last = share(load_i64(args + 16), part, parts, 1)
        for row in range(first, last):
            x, y = at(load_i64(args) + 4 * n * row), at(load_i64(args + 8) + 4 * n * row)
            mean, factor = normalize(x, y, n, scale, shift, load_f32(args + 48))
            if means != 0:
                at(means)[row] = mean
            if deviations != 0:
                at(deviations)[row] = factor

    return run


@kernel_factory("normalization.groups")
def make_groups():
    """Each group of neighbouring channels to mean 0 and variance 1, then scaled and shifted per channel.

    Arguments: x [batch, groups * channels, n], y like x, batch * groups, channels of a group, n, scale [groups * channels], bias like
    it, float32 epsilon, groups.
    """
    at = pointer_to("float32")

    def run(args, part, parts):
        channels, n, groups = load_i64(args + 24), load_i64(args + 32), load_i64(args + 64)
        first, last = share(load_i64(args + 16), part, parts, 1)
        for item in range(first, last):
            start = item * channels * n * 4
            group = item - quotient(item, groups) * groups
            scale, bias = at(load_i64(args + 40) + 4 * group * channels), at(load_i64(args + 48) + 4 * group * channels)
            whole = at(load_i64(args) + start)
            mean = _mean(whole, channels * n)
            factor = _inverse_deviation(whole, channels * n, mean, load_f32(args + 56))
            for c in range(channels):
                x, y = at(load_i64(args) + start + 4 * c * n), at(load_i64(args + 8) + start + 4 * c * n)
                a = factor * scale[c]
                b = bias[c] - mean * a
                for i in range(n):
                    store_out(y, i, load_in(x, i) * a + b)

    return run


@kernel_factory("normalization.affine")
def make_affine():
    """y = (x - mean) / sqrt(variance + epsilon) * scale + bias per channel.

    Arguments: x [batch, channels, n], y like x, batch * channels, channels, n, scale, bias, mean, variance (each [channels]), float32
    epsilon.
    """
    at = pointer_to("float32")

    def run(args, part, parts):
        channels, n = load_i64(args + 24), load_i64(args + 32)
        scale, bias = at(load_i64(args + 40)), at(load_i64(args + 48))
        means, variances, epsilon = at(load_i64(args + 56)), at(load_i64(args + 64)), load_f32(args + 72)
        first, last = share(load_i64(args + 16), part, parts, 1)
        for row in range(first, last):
            c = row - quotient(row, channels) * channels
            a = scale[c] / F(math.sqrt(variances[c] + epsilon))
            b = bias[c] - means[c] * a
            x, y = at(load_i64(args) + 4 * n * row), at(load_i64(args + 8) + 4 * n * row)
            for i in range(n):
                store_out(y, i, load_in(x, i) * a + b)

    return run
