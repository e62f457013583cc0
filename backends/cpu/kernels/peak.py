"""Kernels that do nothing but multiply and add, or read: what the machine can do at most."""

from __future__ import annotations

import functools

from numba import types
from numba.extending import intrinsic

from mnnx.backends.cpu.kernels.intrinsics import load_i64, share
from mnnx.backends.cpu.kernels.registry import kernel_factory
from mnnx.backends.cpu.kernels.vectors import Loop, Vectors

#: Vectors that one turn of the reading loop adds up, each into a sum of its own.
_READ_SUMS = 8


@functools.cache
def _make_chains(lanes: int, fma: bool, sums: int):
    """An intrinsic chains(count, x): `count` multiply-adds to each of `sums` vectors; x: the address of one vector of floats."""

    @intrinsic
    def chains(typing, count, x):
        def codegen(context, builder, signature, arguments):
            count, x = arguments
            v = Vectors(builder, lanes, fma)
            factor = v.load(x)
            with Loop(builder, count, [factor] * sums) as loop:
                loop.carry([v.fma(factor, factor, total) for total in loop.values])
            v.store(functools.reduce(builder.fadd, loop.results), x)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    return chains


@functools.cache
def _make_read(lanes: int):
    """An intrinsic read(x, count, y): the sum of `count` times _READ_SUMS vectors at x, stored at y."""

    @intrinsic
    def read(typing, x, count, y):
        def codegen(context, builder, signature, arguments):
            x, count, y = arguments
            v = Vectors(builder, lanes, False)
            step = 4 * lanes
            with Loop(builder, count, [v.constant(0)] * _READ_SUMS + [x]) as loop:
                *totals, row = loop.values
                nexts = [builder.fadd(total, v.load(row, step * i)) for i, total in enumerate(totals)]
                loop.carry([*nexts, builder.add(row, v.index(_READ_SUMS * step))])
            v.store(functools.reduce(builder.fadd, loop.results[:-1]), y)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), codegen

    return read


@kernel_factory("peak.multiply_add")
def make_multiply_add(lanes, fma, sums):
    chains = _make_chains(lanes, fma, sums)

    def multiply_add(args, part, parts):
        """Arguments: turns of each chunk, address of 64 bytes per chunk, whose floats are the factors."""
        chains(load_i64(args), load_i64(args + 8) + 64 * part)

    return multiply_add


@kernel_factory("peak.read")
def make_read(lanes):
    read, block = _make_read(lanes), 4 * lanes * _READ_SUMS

    def read_all(args, part, parts):
        """Arguments: x, its bytes, address of 64 bytes per chunk for its sums."""
        first, last = share(load_i64(args + 8) // block, part, parts, 1)
        read(load_i64(args) + first * block, last - first, load_i64(args + 16) + 64 * part)

    return read_all
