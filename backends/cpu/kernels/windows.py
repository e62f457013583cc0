"""Windows over single channels, as LLVM IR: the inner loop of depthwise convolutions and of poolings."""

from __future__ import annotations

import functools
import math

from numba import types
from numba.extending import intrinsic

from mnnx.backends.cpu.kernels.blocks import SLIDE_ROWS, Slide
from mnnx.backends.cpu.kernels.intrinsics import alloca, inlined, load_f32, share, store_f32
from mnnx.backends.cpu.kernels.packing import make_copy_block
from mnnx.backends.cpu.kernels.slots import claim_slot, free_slot
from mnnx.backends.cpu.kernels.spread import make_spread_channel
from mnnx.backends.cpu.kernels.tile import add_residual
from mnnx.backends.cpu.kernels.vectors import I64, Loop, Vectors, activate, load_words

_slide, _SLIDE_BYTES, _FILL = load_words(len(Slide._fields)), 8 * len(Slide._fields), 8 * Slide._fields.index("fill")


@functools.cache
def make_window(positions: int, lanes: int, fma: bool, combine: str, kind: str = "Clip"):
    """An intrinsic window(source, source_step, offsets, triples, pairs, singles, weights, bias, target, target_step, residual, parameters).

    For `positions` vectors, source_step (in the target: target_step) bytes apart, it combines the vectors at source + offset for all taps.
    Taps come in runs whose taps are source_step apart: first triples, then pairs, then single ones. `offsets` has one entry per run;
    there what one position reads for a tap is what the next one reads for the tap before, so each is loaded once.
    combine "dot": the sum of weights[t] * tap + bias[0] + residual, then the activation `kind`; "sum": their sum times weights[0];
    "max": the largest (NaN where one is). residual: 0, or where the target's position lies in it.
    """

    @intrinsic
    def window(typing, source, source_step, offsets, triples, pairs, singles, weights, bias, target, target_step, residual, parameters):
        def codegen(context, builder, signature, arguments):
            source, source_step, offsets, triples, pairs, singles, weights, bias, target, target_step, residual, parameters = arguments
            v = Vectors(builder, lanes, fma)
            sources = [builder.add(source, builder.mul(source_step, v.index(p))) for p in range(positions + 2)]
            start = {"dot": lambda: v.load_splat(bias), "sum": lambda: v.constant(0), "max": lambda: v.constant(-math.inf)}[combine]()
            totals, weight = [start] * positions, weights

            def joined(value, total, factor):
                if combine == "dot":
                    return v.fma(factor, value, total)
                return builder.fadd(value, total) if combine == "sum" else larger(v, value, total)

            for count, size in ((triples, 3), (pairs, 2), (singles, 1)):
                with Loop(builder, count, [*totals, offsets, weight]) as loop:
                    *totals, offset_address, weight_address = loop.values
                    offset = builder.load(v.at(offset_address, 0, I64), align=8)
                    factors = [v.load_splat(weight_address, 4 * tap) if combine == "dot" else None for tap in range(size)]
                    for row in range(positions + size - 1):
                        value = v.load(sources[row], offset)
                        for tap in range(max(0, row - positions + 1), min(size, row + 1)):
                            totals[row - tap] = joined(value, totals[row - tap], factors[tap])
                    loop.carry([*totals, builder.add(offset_address, v.index(8)), builder.add(weight_address, v.index(4 * size))])
                *totals, offsets, weight = loop.results
            if combine == "sum":
                factor = v.load_splat(weights)
                totals = [builder.fmul(total, factor) for total in totals]
            if combine == "dot":
                steps = [builder.mul(target_step, v.index(p)) for p in range(positions)]
                low, high = v.load_splat(parameters), v.load_splat(parameters, 4)
                totals = [activate(v, kind, total, low, high) for total in add_residual(v, totals, residual, steps)]
            for p, total in enumerate(totals):
                v.store(total, builder.add(target, builder.mul(target_step, v.index(p))))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 12), codegen

    return window


def larger(v: Vectors, value, total):
    """max(value, total), NaN where one is."""
    b = v.builder
    return b.select(b.fcmp_unordered("!=", value, value), value, v.maximum(value, total))


@functools.cache
def make_slide_rows(lanes: int, fma: bool, combine: str, kind: str = "Clip"):
    """slide_rows(spread, …, target, residual, parameters, height, width, scratch): windows over a spread plane.

    They give `height` rows of `width` floats, which lie side by side in the target. Everything else as for `make_window`; `scratch`: room
    for SLIDE_ROWS vectors.
    """
    many, few, copy_block = SLIDE_ROWS, 3, make_copy_block(lanes)
    slide_many, slide_few, slide_one = (make_window(n, lanes, fma, combine, kind) for n in (many, few, 1))
    edge_stride = 4 * lanes

    @inlined
    def slide_rows(
        spread, row_stride, offsets, triples, pairs, singles, weights, bias, start, residual, parameters, height, width, scratch
    ):
        for block in range(0, width, lanes):
            x = max(0, min(block, width - lanes))
            y = 0
            while y < height:
                rows = many if height - y >= many else few if height - y >= few else 1
                source, stride = spread + y * row_stride + 4 * x, 4 * width
                place = (y * width + x) * 4
                target, added = start + place, residual + place if residual != 0 else 0
                if width < lanes:
                    target, stride = scratch, edge_stride
                    if added != 0:
                        copy_block(added, 4 * width, scratch, edge_stride, rows, width)
                        added = scratch
                if rows == many:
                    slide_many(source, row_stride, offsets, triples, pairs, singles, weights, bias, target, stride, added, parameters)
                elif rows == few:
                    slide_few(source, row_stride, offsets, triples, pairs, singles, weights, bias, target, stride, added, parameters)
                else:
                    slide_one(source, row_stride, offsets, triples, pairs, singles, weights, bias, target, stride, added, parameters)
                if width < lanes:
                    copy_block(scratch, edge_stride, start + place, 4 * width, rows, width)
                y += rows

    return slide_rows


def make_slide(lanes: int, fma: bool, combine: str, kind: str = "Clip"):
    """A kernel that slides windows over every channel on its own. Argument block: Slide, Geometry. Chunks are ranges of channels."""
    slide_rows, spread_channel = make_slide_rows(lanes, fma, combine, kind), make_spread_channel(lanes)
    edge = alloca(4 * lanes * SLIDE_ROWS)

    def slide(args, part, parts):
        (
            source_start, channels, channel_bytes, band, spread_rows, together, _, offsets, triples, pairs, singles, weights_start,
            bias_start, outputs, multiplier, target_start, residual_start, parameters, planes, height, width, row_stride, plane_stride,
            factors, flags, slots, memory, slot_bytes, spread_bytes,
        ) = _slide(args)  # fmt: skip
        fill, scratch, slot, taps = load_f32(args + _FILL), edge(), claim_slot(flags, slots), 3 * triples + 2 * pairs + singles
        first, last = share(channels, part, parts, 1)
        bands = (height + band - 1) // band
        rounds = (last - first + together - 1) // together
        for task in range(rounds * bands):
            first_channel, top = first + task // bands * together, task % bands * band
            last_channel, bottom = min(last, first_channel + together), min(height, top + band)
            spread_start = memory + slot * slot_bytes
            for channel in range(first_channel, last_channel):
                spread = spread_start + (channel - first_channel) * spread_bytes
                spread_channel(source_start + channel * channel_bytes, spread, args + _SLIDE_BYTES, top, 0, spread_rows, fill)
            for output in range(first_channel * multiplier, last_channel * multiplier):
                spread = spread_start + (output // multiplier - first_channel) * spread_bytes
                own = output % outputs if outputs != 0 else 0
                weights, bias = weights_start + own * taps * 4, bias_start + own * 4
                for z in range(planes):
                    place = ((output * planes + z) * height + top) * width * 4
                    slide_rows(
                        spread + z * plane_stride, row_stride, offsets, triples, pairs, singles, weights, bias, target_start + place,
                        residual_start + place if residual_start != 0 else 0, parameters, bottom - top, width, scratch,
                    )  # fmt: skip
                    if factors != 0:
                        for i in range((bottom - top) * width):
                            pixel, factor = target_start + place + 4 * i, factors + 4 * ((z * height + top) * width + i)
                            store_f32(pixel, load_f32(pixel) * load_f32(factor))
        free_slot(flags, slot)

    return slide
