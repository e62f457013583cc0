"""Poolings of blocked float32 images [rows, D, H, W, lanes], rows being the blocks of all images: a vector is one pixel of a block."""

from __future__ import annotations

import functools
import math

from numba import types
from numba.extending import intrinsic

from mnnx.backends.cpu.kernels.blocks import BlockedPooling, Reduction
from mnnx.backends.cpu.kernels.intrinsics import inlined, share
from mnnx.backends.cpu.kernels.registry import kernel_factory
from mnnx.backends.cpu.kernels.vectors import Loop, Vectors, load_words
from mnnx.backends.cpu.kernels.windows import larger

_pooling, _reduction = load_words(len(BlockedPooling._fields)), load_words(len(Reduction._fields))
_FACTOR = 8 * Reduction._fields.index("factor")
_POSITIONS = 4


@functools.cache
def make_window(positions: int, lanes: int, combine: str):
    """An intrinsic window(source, step, planes, plane_step, rows, row_step, columns, column_step, target, factors, factor_step).

    Combines, for each of `positions` pixels whose windows lie `step` bytes apart, the vectors of planes × rows × columns taps. combine
    "max": the largest (NaN where one is); "sum": their sum, times the float at factors + position * factor_step.
    """

    @intrinsic
    def window(typing, source, step, planes, plane_step, rows, row_step, columns, column_step, target, factors, factor_step):
        def codegen(context, builder, signature, arguments):
            source, step, planes, plane_step, rows, row_step, columns, column_step, target, factors, factor_step = arguments
            v = Vectors(builder, lanes, False)
            join = (lambda value, total: larger(v, value, total)) if combine == "max" else builder.fadd
            sources = [builder.add(source, builder.mul(step, v.index(p))) for p in range(positions)]
            start = [v.constant(-math.inf if combine == "max" else 0)] * positions
            with Loop(builder, planes, start) as plane_loop:
                plane = builder.mul(plane_loop.index, plane_step)
                with Loop(builder, rows, plane_loop.values) as row_loop:
                    row = builder.add(plane, builder.mul(row_loop.index, row_step))
                    with Loop(builder, columns, row_loop.values) as loop:
                        offset = builder.add(row, builder.mul(loop.index, column_step))
                        loop.carry([join(v.load(place, offset), total) for place, total in zip(sources, loop.values, strict=True)])
                    row_loop.carry(loop.results)
                plane_loop.carry(row_loop.results)
            for p, total in enumerate(plane_loop.results):
                if combine == "sum":
                    total = builder.fmul(total, v.load_splat(factors, builder.mul(factor_step, v.index(p))))
                v.store(total, target, 4 * lanes * p)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 11), codegen

    return window


@inlined
def taps_inside(position, size, taps, dilation):
    """The first of the taps position + k * dilation that lies in 0 … size-1, and how many do."""
    first = 0 if position >= 0 else min(taps, (dilation - 1 - position) // dilation)
    end = max(first, min(taps, (size - position + dilation - 1) // dilation))
    return first, end - first


@kernel_factory("blocked_pooling.windows")
def make_windows(lanes: int, combine: str):
    """Argument block: BlockedPooling. Chunks are ranges of rows of the target."""
    many, one, pixel = make_window(_POSITIONS, lanes, combine), make_window(1, lanes, combine), 4 * lanes

    def windows(args, part, parts):
        (
            source_start, target_start, blocks, depth, height, width, kernel_depth, kernel_height, kernel_width, plane_stride, row_stride,
            column_stride, plane_dilation, row_dilation, column_dilation, plane_pad, row_pad, column_pad, planes, rows, columns,
            factors, factor_step,
        ) = _pooling(args)  # fmt: skip
        plane_step, row_step, column_step = plane_dilation * height * width * pixel, row_dilation * width * pixel, column_dilation * pixel
        inside = min(columns, max(0, (column_pad + column_stride - 1) // column_stride))  # the first window that doesn't begin before x = 0
        beyond = (width - 1 + column_pad - (kernel_width - 1) * column_dilation) // column_stride + 1
        beyond = max(inside, min(columns, beyond))  # the first one after that which ends beyond the image
        first, last = share(blocks * planes * rows, part, parts, 1)
        for item in range(first, last):
            upper, y = item // rows, item % rows
            block, z = upper // planes, upper % planes
            top, front = y * row_stride - row_pad, z * plane_stride - plane_pad
            first_plane, plane_taps = taps_inside(front, depth, kernel_depth, plane_dilation)
            first_row, row_taps = taps_inside(top, height, kernel_height, row_dilation)
            corner = (front + first_plane * plane_dilation) * height + top + first_row * row_dilation
            source = source_start + (block * depth * height + corner) * width * pixel
            target, scale = target_start + item * columns * pixel, factors + (z * rows + y) * columns * factor_step
            x = 0
            while x < columns:
                left = x * column_stride - column_pad
                if inside <= x and x + _POSITIONS <= beyond:
                    many(
                        source + left * pixel, column_stride * pixel, plane_taps, plane_step, row_taps, row_step, kernel_width, column_step,
                        target + x * pixel, scale + x * factor_step, factor_step,
                    )  # fmt: skip
                    x += _POSITIONS
                else:
                    skipped, taps = taps_inside(left, width, kernel_width, column_dilation)
                    one(
                        source + (left + skipped * column_dilation) * pixel, 0, plane_taps, plane_step, row_taps, row_step, taps,
                        column_step, target + x * pixel, scale + x * factor_step, factor_step,
                    )  # fmt: skip
                    x += 1

    return windows


@kernel_factory("blocked_pooling.whole")
def make_whole(lanes: int, combine: str):
    """One vector per block: combine "max" or "sum" of its pixels, times a factor. Argument block: Reduction, rows being blocks of `columns`
    pixels."""
    reduce = make_reduce(lanes, combine)

    def whole(args, part, parts):
        source, target, rows, columns, _ = _reduction(args)
        first, last = share(rows, part, parts, 1)
        for row in range(first, last):
            reduce(source + row * columns * 4 * lanes, columns, args + _FACTOR, target + row * 4 * lanes)

    return whole


@functools.cache
def make_reduce(lanes: int, combine: str):
    """An intrinsic reduce(source, count, factor, target): `count` vectors to one, times the float at `factor`."""
    chains = 8

    @intrinsic
    def reduce(typing, source, count, factor, target):
        def codegen(context, builder, signature, arguments):
            source, count, factor, target = arguments
            v = Vectors(builder, lanes, False)
            join = (lambda value, total: larger(v, value, total)) if combine == "max" else builder.fadd
            start, pixel = v.constant(-math.inf if combine == "max" else 0), 4 * lanes
            whole = builder.sdiv(count, v.index(chains))
            with Loop(builder, whole, [start] * chains) as loop:
                base = builder.add(source, builder.mul(loop.index, v.index(chains * pixel)))
                loop.carry([join(v.load(base, pixel * i), total) for i, total in enumerate(loop.values)])
            total = functools.reduce(join, loop.results)
            done = builder.mul(whole, v.index(chains))
            rest = builder.add(source, builder.mul(done, v.index(pixel)))
            with Loop(builder, builder.sub(count, done), [total]) as loop:
                loop.carry([join(v.load(rest, builder.mul(loop.index, v.index(pixel))), loop.values[0])])
            v.store(builder.fmul(loop.results[0], v.load_splat(factor)), target)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), codegen

    return reduce
