"""Reductions of float32 [outer, n, inner] over n."""

import math

import numpy as np

from mnnx.backends.cpu.kernels.intrinsics import (
    absolute,
    alloca,
    first_of,
    inlined,
    load_i64,
    load_in,
    maximum,
    minimum,
    pointer_to,
    quotient,
    share,
)
from mnnx.backends.cpu.kernels.math import log_f32
from mnnx.backends.cpu.kernels.registry import kernel_factory

F = np.float32
_BLOCK = 2048  # elements added up in float32, before the sum goes on in float64
_COLUMNS = 64


@inlined
def _same(x):
    return x


@inlined
def _square(x):
    return x * x


@inlined
def _plus(a, b):
    return a + b


@inlined
def _times(a, b):
    return a * b


@inlined
def _whole(value, n):
    return F(value)


@inlined
def _mean(value, n):
    return F(value / n)


@inlined
def _root(value, n):
    return F(math.sqrt(value))


@inlined
def _logarithm(value, n):
    return log_f32(F(value))


#: Kind → what is done to an element, how two of those combine, the neutral element, and what is done to the total.
_KINDS = {
    "Sum": (_same, _plus, 0.0, _whole),
    "Mean": (_same, _plus, 0.0, _mean),
    "Prod": (_same, _times, 1.0, _whole),
    "Max": (_same, maximum, -np.inf, _whole),
    "Min": (_same, minimum, np.inf, _whole),
    "L1": (absolute, _plus, 0.0, _whole),
    "L2": (_square, _plus, 0.0, _root),
    "SumSquare": (_square, _plus, 0.0, _whole),
    "LogSum": (_same, _plus, 0.0, _logarithm),
}


@kernel_factory("reduction.rows", fastmath=("contract", "reassoc", "nsz"))
def make_rows(kind: str):
    """Arguments: x [outer, n], y [outer], outer, n."""
    element, combine, neutral, finish = _KINDS[kind]
    start = F(neutral)
    at = pointer_to("float32")

    def run(args, part, parts):
        n = load_i64(args + 24)
        y = at(load_i64(args + 8))
        first, last = share(load_i64(args + 16), part, parts, 1)
        for row in range(first, last):
            x = at(load_i64(args) + 4 * n * row)
            total = np.float64(start)
            for block in range(0, n, _BLOCK):
                value = start
                for i in range(block, min(n, block + _BLOCK)):
                    value = combine(value, element(load_in(x, i)))
                total = combine(total, np.float64(value))
            y[row] = finish(total, n)

    return run


@kernel_factory("reduction.columns")
def make_columns(kind: str):
    """Arguments: x [outer, n, inner], y [outer, inner], outer, n, inner."""
    element, combine, neutral, finish = _KINDS[kind]
    start = F(neutral)
    at = pointer_to("float32")
    scratch = alloca(4 * _COLUMNS)

    def run(args, part, parts):
        n, inner = load_i64(args + 24), load_i64(args + 32)
        blocks = quotient(inner + _COLUMNS - 1, _COLUMNS)
        items = load_i64(args + 16) * blocks
        totals = at(scratch())
        for item in range(first_of(items, part, parts, 1), first_of(items, part + 1, parts, 1)):
            row = quotient(item, blocks)
            column = (item - row * blocks) * _COLUMNS
            count = min(_COLUMNS, inner - column)
            x = load_i64(args) + 4 * (row * n * inner + column)
            y = at(load_i64(args + 8) + 4 * (row * inner + column))
            for j in range(_COLUMNS):
                totals[j] = start
            for k in range(n):
                source = at(x + 4 * k * inner)
                for j in range(count):
                    totals[j] = combine(totals[j], element(load_in(source, j)))
            for j in range(count):
                y[j] = finish(totals[j], n)

    return run


@kernel_factory("reduction.arg")
def make_arg(largest: bool, last: bool):
    """The int64 index of the largest or smallest, the first or last of equals; NaN before all. Arguments as of `reduction.columns`."""
    at, index_at, result_at = pointer_to("float32"), pointer_to("int32"), pointer_to("int64")
    values, indices = alloca(4 * _COLUMNS), alloca(4 * _COLUMNS)

    @inlined
    def better(new, old):
        """Whether the later element `new` takes over from `old`."""
        if largest:
            beats = new >= old if last else new > old
        else:
            beats = new <= old if last else new < old
        return (beats | (new != new)) if last else (beats & (old == old)) | ((new != new) & (old == old))

    def run(args, part, parts):
        n, inner = load_i64(args + 24), load_i64(args + 32)
        blocks = quotient(inner + _COLUMNS - 1, _COLUMNS)
        items = load_i64(args + 16) * blocks
        best, where = at(values()), index_at(indices())
        for item in range(first_of(items, part, parts, 1), first_of(items, part + 1, parts, 1)):
            row = quotient(item, blocks)
            column = (item - row * blocks) * _COLUMNS
            count = min(_COLUMNS, inner - column)
            x = load_i64(args) + 4 * (row * n * inner + column)
            y = result_at(load_i64(args + 8) + 8 * (row * inner + column))
            source = at(x)
            for j in range(count):
                best[j] = source[j]
                where[j] = 0
            for k in range(1, n):
                source = at(x + 4 * k * inner)
                for j in range(count):
                    value, old = load_in(source, j), best[j]
                    takes = better(value, old)
                    best[j] = value if takes else old
                    where[j] = np.int32(k) if takes else where[j]
            for j in range(count):
                y[j] = where[j]

    return run
