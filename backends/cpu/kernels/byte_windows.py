"""Windows that slide over single channels of bytes and give bytes: depthwise convolutions and poolings, computed in floats.

Floats hold the sums exactly as long as these stay below 2^24; they are quantized while they are in the cache.
"""

from __future__ import annotations

import functools

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mnnx.backends.cpu.kernels.blocks import SLIDE_ROWS, ByteMeans, Geometry, Slide, SlideBytes
from mnnx.backends.cpu.kernels.intrinsics import alloca, load_f32, share, store_f32
from mnnx.backends.cpu.kernels.quantized import make_span
from mnnx.backends.cpu.kernels.registry import kernel_factory
from mnnx.backends.cpu.kernels.slots import claim_slot, free_slot
from mnnx.backends.cpu.kernels.spread import make_spread_channel
from mnnx.backends.cpu.kernels.vectors import I8, I32, I64, Loop, Vectors, load_words
from mnnx.backends.cpu.kernels.windows import make_slide_rows

_slide, _bytes, _means = (load_words(len(block._fields)) for block in (Slide, SlideBytes, ByteMeans))
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
