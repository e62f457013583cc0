"""Resize of blocked float32 planes [planes, H, W, lanes]: a vector is one pixel of a block."""

from __future__ import annotations

import functools

import numpy as np
from numba import types
from numba.extending import intrinsic

from mnnx.backends.cpu.kernels.intrinsics import load_in, pointer_to, share, store_out
from mnnx.backends.cpu.kernels.registry import kernel_factory
from mnnx.backends.cpu.kernels.vectors import I32, I64, Loop, Vectors, load_words

_words = load_words(14)


@functools.cache
def make_mix(lanes: int, taps: int, fma: bool):
    """An intrinsic mix(source, index, weights, count, taps, target): for each of `count` pixels of a row, the sum of the source's pixels
    at index[tap, pixel] (int32) times weights[tap, pixel]. `taps`: how many, or 0 where the argument says so."""

    @intrinsic
    def mix(typing, source, index, weights, count, some, target):
        def codegen(context, builder, signature, arguments):
            source, index, weights, count, some, target = arguments
            v = Vectors(builder, lanes, fma)
            number = v.index(taps) if taps else some

            def term(tap, pixel, total):
                entry = builder.shl(builder.add(builder.mul(tap, count), pixel), v.index(2))
                place = builder.sext(builder.load(v.at(index, entry, I32), align=4), I64)
                value, weight = v.load(source, builder.mul(place, v.index(4 * lanes))), v.load_splat(weights, entry)
                return builder.fmul(value, weight) if total is None else v.fma(value, weight, total)

            with Loop(builder, count) as loop:
                total = term(v.index(0), loop.index, None)
                for tap in range(1, taps):
                    total = term(v.index(tap), loop.index, total)
                if not taps:
                    with Loop(builder, builder.sub(number, v.index(1)), [total]) as rest:
                        rest.carry([term(builder.add(rest.index, v.index(1)), loop.index, rest.values[0])])
                    (total,) = rest.results
                v.store(total, target, builder.mul(loop.index, v.index(4 * lanes)))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), codegen

    return mix


@kernel_factory("blocked_resize")
def make(lanes: int, row_taps: int, column_taps: int, fma: bool):
    """As the kernel "resize", whose arguments it takes; where a row is made of one row alone, that is read in place."""
    at, index_at = pointer_to("float32"), pointer_to("int32")
    mix, pixel = make_mix(lanes, column_taps, fma), 4 * lanes

    def run(args, part, parts):
        (
            x_start, y_start, planes, height, width, rows, columns, row_index, row_weights, column_index, column_weights, row_some,
            column_some, scratch,
        ) = _words(args)  # fmt: skip
        row_count, size = row_taps if row_taps else row_some, width * lanes
        row_index, row_weight = index_at(row_index), at(row_weights)
        mixed_start = scratch + part * width * pixel
        mixed = at(mixed_start)
        first, last = share(planes * rows, part, parts, 1)
        for item in range(first, last):
            plane, row = item // rows, item % rows
            image = x_start + plane * height * width * pixel
            line = image + np.int64(row_index[row]) * width * pixel
            if row_count > 1:
                x, weight = at(line), row_weight[row]
                for j in range(size):
                    store_out(mixed, j, load_in(x, j) * weight)
                for a in range(1, row_count):
                    x, weight = at(image + np.int64(row_index[a * rows + row]) * width * pixel), row_weight[a * rows + row]
                    for j in range(size):
                        mixed[j] += load_in(x, j) * weight
                line = mixed_start
            mix(line, column_index, column_weights, columns, column_some, y_start + item * columns * pixel)

    return run
