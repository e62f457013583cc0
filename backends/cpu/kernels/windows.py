"""Windows over single channels, as LLVM IR: the inner loop of depthwise convolutions and of poolings."""

from __future__ import annotations

import functools
import math

from numba import types
from numba.extending import intrinsic

from mnnx.backends.cpu.kernels.blocks import SLIDE_ROWS, Slide
from mnnx.backends.cpu.kernels.intrinsics import alloca, load_f32, share, store_f32
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


def make_slide(lanes: int, fma: bool, combine: str, kind: str = "Clip"):
    """A kernel that slides windows over every channel on its own. Argument block: Slide, Geometry. Chunks are ranges of channels."""
    many, few, copy_block = SLIDE_ROWS, 3, make_copy_block(lanes)
    slide_many, slide_few, slide_one = (make_window(n, lanes, fma, combine, kind) for n in (many, few, 1))
    edge, edge_stride, spread_channel = alloca(4 * lanes * many), 4 * lanes, make_spread_channel(lanes)

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
                weights, bias, start = weights_start + own * taps * 4, bias_start + own * 4, output * planes * height * width * 4
                for z in range(planes):
                    for block in range(0, width, lanes):
                        x = max(0, min(block, width - lanes))
                        y = top
                        while y < bottom:
                            rows = many if bottom - y >= many else few if bottom - y >= few else 1
                            source, stride = spread + z * plane_stride + (y - top) * row_stride + 4 * x, 4 * width
                            place = start + ((z * height + y) * width + x) * 4
                            target, added = target_start + place, residual_start + place if residual_start != 0 else 0
                            if width < lanes:
                                target, stride = scratch, edge_stride
                                if added != 0:
                                    copy_block(added, 4 * width, scratch, edge_stride, rows, width)
                                    added = scratch
                            if rows == many:
                                slide_many(
                                    source, row_stride, offsets, triples, pairs, singles, weights, bias, target, stride, added, parameters
                                )
                            elif rows == few:
                                slide_few(
                                    source, row_stride, offsets, triples, pairs, singles, weights, bias, target, stride, added, parameters
                                )
                            else:
                                slide_one(
                                    source, row_stride, offsets, triples, pairs, singles, weights, bias, target, stride, added, parameters
                                )
                            if width < lanes:
                                copy_block(scratch, edge_stride, target_start + place, 4 * width, rows, width)
                            y += rows
                    if factors != 0:
                        for i in range((z * height + top) * width, (z * height + bottom) * width):
                            place = target_start + start + 4 * i
                            store_f32(place, load_f32(place) * load_f32(factors + 4 * i))
        free_slot(flags, slot)

    return slide
