"""Poolings of float32 images: windows over every channel on its own, and whole channels."""

from __future__ import annotations

import functools
import math

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mnnx.backends.cpu.kernels.blocks import Reduction
from mnnx.backends.cpu.kernels.intrinsics import load_f32, share, store_f32
from mnnx.backends.cpu.kernels.registry import kernel_factory
from mnnx.backends.cpu.kernels.vectors import Loop, Vectors, load_words
from mnnx.backends.cpu.kernels.windows import larger, make_slide

_reduction, _FACTOR = load_words(len(Reduction._fields)), 8 * Reduction._fields.index("factor")


@kernel_factory("pooling.slide")
def make_pooling(lanes, combine):
    """combine: "max", or "sum" (of the window, times the one float at `weights`). Argument block: Slide, Geometry."""
    return make_slide(lanes, False, combine)


@kernel_factory("pooling.whole")
def make_whole(lanes, combine):
    """One number per row of a matrix: combine "max" or "sum", times a factor. Argument block: Reduction."""
    reduce = make_reduce(lanes, combine)

    def whole(args, part, parts):
        source, target, rows, columns, _ = _reduction(args)
        factor = load_f32(args + _FACTOR)
        first, last = share(rows, part, parts, 1)
        for row in range(first, last):
            store_f32(target + 4 * row, reduce(source + row * columns * 4, columns) * factor)

    return whole


@functools.cache
def make_reduce(lanes: int, combine: str):
    """An intrinsic reduce(source, count) → float32: the sum ("sum") or the largest ("max", NaN where one is) of `count` floats."""

    @intrinsic
    def reduce(typing, source, count):
        def codegen(context, builder, signature, arguments):
            source, count = arguments
            v = Vectors(builder, lanes, False)
            chains = 4
            start = v.constant(0 if combine == "sum" else -math.inf)
            join = builder.fadd if combine == "sum" else lambda a, b: larger(v, a, b)
            block = 4 * lanes * chains
            whole = builder.sdiv(count, v.index(lanes * chains))
            with Loop(builder, whole, [start] * chains) as loop:
                base = builder.add(source, builder.mul(loop.index, v.index(block)))
                loop.carry([join(v.load(base, 4 * lanes * i), total) for i, total in enumerate(loop.values)])
            total = loop.results[0]
            for other in loop.results[1:]:
                total = join(other, total)
            size = lanes // 2
            while size:
                moved = builder.shuffle_vector(total, total, ir.Constant(v.integers, [(i + size) % lanes for i in range(lanes)]))
                total = join(moved, total)
                size //= 2
            done = builder.mul(whole, v.index(lanes * chains))
            rest = builder.add(source, builder.shl(done, v.index(2)))
            with Loop(builder, builder.sub(count, done), [total]) as loop:
                value = v.load_splat(rest, builder.shl(loop.index, v.index(2)))
                loop.carry([join(value, loop.values[0])])
            return builder.extract_element(loop.results[0], v.index(0))

        return types.float32(types.int64, types.int64), codegen

    return reduce
