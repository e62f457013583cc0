"""Windows that slide over single channels of bytes and give bytes: depthwise convolutions and poolings, computed in floats.

Floats hold the sums exactly as long as these stay below 2^24; they are quantized while they are in the cache.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mnnx.backends.cpu.kernels.blocks import SLIDE_ROWS, ByteAbreast, ByteMeans, Geometry, Slide, SlideBytes
from mnnx.backends.cpu.kernels.intrinsics import alloca, load_f32, load_i8, load_u8, share, store_f32, store_u8
from mnnx.backends.cpu.kernels.packing import make_fill
from mnnx.backends.cpu.kernels.quantized import make_span, quantized, write
from mnnx.backends.cpu.kernels.registry import kernel_factory
from mnnx.backends.cpu.kernels.slots import claim_slot, free_slot
from mnnx.backends.cpu.kernels.spread import make_spread_channel
from mnnx.backends.cpu.kernels.vectors import I8, I32, I64, Loop, Vectors, load_words
from mnnx.backends.cpu.kernels.windows import make_slide_rows

_slide, _bytes, _abreast, _means = (load_words(len(block._fields)) for block in (Slide, SlideBytes, ByteAbreast, ByteMeans))
_ABREAST_FILL = 8 * ByteAbreast._fields.index("fill")
_FILL, _GEOMETRY = 8 * Slide._fields.index("fill"), 8 * len(Slide._fields)
_BYTES = _GEOMETRY + 8 * len(Geometry._fields)


@kernel_factory("byte_windows.slide")
def make_slide_bytes(lanes, fma, combine, source, target):
    """combine: "dot" or "max", as `make_window`; source, target: int8 or uint8. Argument block: Slide, Geometry, SlideBytes.

    y = saturate(round_to_even(combined * factor * scale) + zero). Chunks are ranges of channels.
    """
    slide_rows, spread_channel = make_slide_rows(lanes, fma, combine), make_spread_channel(lanes, source)
    edge, quantize = alloca(4 * lanes * SLIDE_ROWS), make_span(lanes, "float32", target, False, True, True)

    def slide(args, part, parts):
        (
            source_start, channels, channel_bytes, band, spread_rows, together, _, offsets, triples, pairs, singles, weights_start,
            bias_start, outputs, multiplier, target_start, _, parameters, planes, height, width, row_stride, plane_stride,
            factors, flags, slots, memory, slot_bytes, spread_bytes,
        ) = _slide(args)  # fmt: skip
        results_start, scales, scale_step, zero = _bytes(args + _BYTES)
        fill, scratch, slot, taps = load_f32(args + _FILL), edge(), claim_slot(flags, slots), 3 * triples + 2 * pairs + singles
        first, last = share(channels, part, parts, 1)
        bands = (height + band - 1) // band
        rounds = (last - first + together - 1) // together
        for task in range(rounds * bands):
            first_channel, top = first + task // bands * together, task % bands * band
            last_channel, bottom = min(last, first_channel + together), min(height, top + band)
            spread_start = memory + slot * slot_bytes
            results, count = spread_start + results_start, (bottom - top) * width
            for channel in range(first_channel, last_channel):
                spread = spread_start + (channel - first_channel) * spread_bytes
                spread_channel(source_start + channel * channel_bytes, spread, args + _GEOMETRY, top, 0, spread_rows, fill)
            for output in range(first_channel * multiplier, last_channel * multiplier):
                spread = spread_start + (output // multiplier - first_channel) * spread_bytes
                own = output % outputs if outputs != 0 else 0
                weights, bias = weights_start + own * taps * 4, bias_start + own * 4
                for z in range(planes):
                    slide_rows(
                        spread + z * plane_stride, row_stride, offsets, triples, pairs, singles, weights, bias, results, 0, parameters,
                        bottom - top, width, scratch,
                    )  # fmt: skip
                    if factors != 0:
                        for i in range(count):
                            factor = factors + 4 * ((z * height + top) * width + i)
                            store_f32(results + 4 * i, load_f32(results + 4 * i) * load_f32(factor))
                    quantize(results, target_start + ((output * planes + z) * height + top) * width, count, scales + own * scale_step, zero)
        free_slot(flags, slot)

    return slide


@functools.cache
def make_abreast(positions: int, lanes: int, fma: bool, combine: str, target_dtype: str):
    """An intrinsic: `positions` windows, `step` bytes apart, of vectors of channels, combined, times factors and scales, quantized.

    The bytes of each position are a vector, one position after the other.
    """

    @intrinsic
    def window(typing, source, step, offsets, taps, weights, bias, scales, zero, factors, target):
        def codegen(context, builder, signature, arguments):
            source, step, offsets, taps, weights, bias, scales, zero, factors, target = arguments
            v = Vectors(builder, lanes, fma)
            sources = [builder.add(source, builder.mul(step, v.index(p))) for p in range(positions)]
            start = v.load(bias) if combine == "dot" else v.constant(-math.inf)
            with Loop(builder, taps, [start] * positions) as loop:
                offset = builder.load(v.at(offsets, builder.shl(loop.index, v.index(3)), I64), align=8)
                values = [v.load(place, offset) for place in sources]
                if combine == "dot":
                    weight = v.load(weights, builder.mul(loop.index, v.index(4 * lanes)))
                    loop.carry([v.fma(weight, value, total) for value, total in zip(values, loop.values, strict=True)])
                else:
                    loop.carry([v.maximum(value, total) for value, total in zip(values, loop.values, strict=True)])
            scale, zeros = v.load(scales), v.load_splat(zero)
            for p, total in enumerate(loop.results):
                real = builder.fmul(builder.fmul(total, v.load_splat(factors, 4 * p)), scale)
                write(v, target_dtype, quantized(v, target_dtype, real, zeros), target, v.index(p * lanes))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 10), codegen

    return window


@kernel_factory("byte_windows.abreast")
def make_channels_abreast(lanes, fma, combine, source, target):
    """As `byte_windows.slide`, for images whose rows would leave lanes idle. Argument block: ByteAbreast. Chunks are ranges of blocks."""
    several = 4
    window_several, window_one = (make_abreast(n, lanes, fma, combine, target) for n in (several, 1))
    load, fill_row, vector = {"int8": load_i8, "uint8": load_u8}[source], make_fill(lanes), 4 * lanes

    def abreast(args, part, parts):
        (
            source_start, target_start, images, channels, depth, height, width, padded_planes, padded_rows, padded_columns,
            plane_pad, row_pad, column_pad, plane_stride, row_stride, column_stride, planes, rows, columns, taps, offsets,
            weights_start, weight_bytes, bias_start, bias_bytes, scales_start, scale_bytes, zero, factors, _, flags, slots,
            memory, slot_bytes, results_start,
        ) = _abreast(args)  # fmt: skip
        slot = claim_slot(flags, slots)
        image = memory + slot * slot_bytes
        results, pixels = image + results_start, planes * rows * columns
        fill_row(image, padded_planes * padded_rows * padded_columns * lanes, load_f32(args + _ABREAST_FILL))
        blocks = (channels + lanes - 1) // lanes
        first, last = share(images * blocks, part, parts, 1)
        for task in range(first, last):
            block = task % blocks
            channel, count = task // blocks * channels + block * lanes, min(lanes, channels - block * lanes)
            for lane in range(count):
                for z in range(min(depth, padded_planes - plane_pad)):
                    for y in range(min(height, padded_rows - row_pad)):
                        line = source_start + (((channel + lane) * depth + z) * height + y) * width
                        place = ((z + plane_pad) * padded_rows + y + row_pad) * padded_columns + column_pad
                        for x in range(min(width, padded_columns - column_pad)):
                            store_f32(image + (place + x) * vector + 4 * lane, np.float32(load(line + x)))
            weights, bias, scales = (
                weights_start + block * weight_bytes,
                bias_start + block * bias_bytes,
                scales_start + block * scale_bytes,
            )
            for row in range(planes * rows):
                top = (row // rows * plane_stride * padded_rows + row % rows * row_stride) * padded_columns
                x = 0
                while x < columns:
                    place, pixel = image + (top + x * column_stride) * vector, row * columns + x
                    y = results + pixel * lanes
                    if columns - x >= several:
                        window_several(place, column_stride * vector, offsets, taps, weights, bias, scales, zero, factors + 4 * pixel, y)
                        x += several
                    else:
                        window_one(place, column_stride * vector, offsets, taps, weights, bias, scales, zero, factors + 4 * pixel, y)
                        x += 1
            for lane in range(count):
                for pixel in range(pixels):
                    store_u8(target_start + (channel + lane) * pixels + pixel, load_u8(results + pixel * lanes + lane))
        free_slot(flags, slot)

    return abreast


#: Means that are quantized together.
_TOGETHER = 64


@kernel_factory("byte_windows.means")
def make_means(lanes, source, target):
    """y = saturate(round_to_even((sum - shift) * scale) + zero) of each row of a matrix of bytes. Argument block: ByteMeans."""
    add_up, sums, quantize = make_sum(lanes, source), alloca(4 * _TOGETHER), make_span(lanes, "float32", target, False, True, True)

    def means(args, part, parts):
        source_start, target_start, rows, columns, shift, scale, zero = _means(args)
        results = sums()
        first, last = share(rows, part, parts, 1)
        for start in range(first, last, _TOGETHER):
            count = min(_TOGETHER, last - start)
            for i in range(count):
                store_f32(results + 4 * i, np.float32(add_up(source_start + (start + i) * columns, columns) - shift))
            quantize(results, target_start + start, count, scale, zero)

    return means


@functools.cache
def make_sum(lanes: int, dtype: str):
    """An intrinsic add_up(source, count): the sum of so many int8s or uint8s, fewer than 2^31 / 255."""

    @intrinsic
    def add_up(typing, source, count):
        def codegen(context, builder, signature, arguments):
            source, count = arguments
            done, total = ir.Constant(I64, 0), ir.Constant(I32, 0)
            for width in (4 * lanes, 1):
                v = Vectors(builder, width, False)
                pieces = builder.sdiv(builder.sub(count, done), v.index(width))
                with Loop(builder, pieces, [v.integer(0)]) as loop:
                    place = builder.add(done, builder.mul(loop.index, v.index(width)))
                    values = builder.load(v.at(source, place, ir.VectorType(I8, width)), align=1)
                    extend = builder.zext if dtype == "uint8" else builder.sext
                    loop.carry([builder.add(loop.values[0], extend(values, v.integers))])
                vector = loop.results[0]
                for lane in range(width):
                    total = builder.add(total, builder.extract_element(vector, v.index(lane)))
                done = builder.add(done, builder.mul(pieces, v.index(width)))
            return builder.sext(total, I64)

        return types.int64(types.int64, types.int64), codegen

    return add_up
