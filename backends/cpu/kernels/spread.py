"""Images with their padding, and with the phases of the stride side by side, so that windows slide over them with stride 1.

An image N × C × D × H × W becomes [channels][phases of D, H, W][D'][H'][W']: column x of phase p is column x * stride + p of the padded
image; rows and planes likewise. There the input of output pixel (z, y, x) for the tap (kd, kh, kw) lies at (z * H' + y) * W' + x plus
an offset of the tap alone, whatever stride, dilation and padding are.
"""

import functools

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mnnx.backends.cpu.kernels.blocks import Geometry, Spread
from mnnx.backends.cpu.kernels.intrinsics import inlined, load_f32, share, store_f32
from mnnx.backends.cpu.kernels.registry import kernel_factory
from mnnx.backends.cpu.kernels.vectors import F32, I32, Loop, Vectors, load_words

_geometry, _spread, _SPREAD_BYTES = load_words(len(Geometry._fields)), load_words(len(Spread._fields)), 8 * len(Spread._fields)


def _copy(v: Vectors, source, target, count, stride: int) -> None:
    """target[i] = source[i * stride] for i < count, stride 1 or 2; reads nothing beyond the last of them.

    Whole vectors first, then one of each smaller power of two. With stride 2 a vector is the even half of two, which end one float after
    the last element that they serve: that is why the very last one is copied alone.
    """
    builder = v.builder

    def piece(lanes: int, start) -> None:
        kind = ir.VectorType(F32, lanes)
        place = builder.add(source, builder.mul(start, v.index(4 * stride)))
        parts = [builder.load(v.at(place, 4 * lanes * i, kind), align=4) for i in range(stride)]
        if stride == 2:
            mask = ir.Constant(ir.VectorType(I32, lanes), [2 * i for i in range(lanes)])
            parts = [builder.shuffle_vector(*parts, mask)]
        builder.store(parts[0], v.at(target, builder.shl(start, v.index(2)), kind), align=4)

    last = builder.sub(count, v.index(stride - 1))
    shift = v.lanes.bit_length() - 1
    whole = builder.ashr(last, v.index(shift))
    with Loop(builder, whole) as loop:
        piece(v.lanes, builder.shl(loop.index, v.index(shift)))
    size = v.lanes // 2
    while size:
        with builder.if_then(builder.icmp_signed("!=", builder.and_(last, v.index(size)), v.index(0))):
            piece(size, builder.and_(last, v.index(-2 * size)))
        size //= 2
    if stride == 2:
        element = builder.load(v.at(source, builder.shl(last, v.index(3)), F32), align=4)
        builder.store(element, v.at(target, builder.shl(last, v.index(2)), F32), align=4)


@functools.cache
def make_copy(lanes: int, stride: int):
    """An intrinsic copy(source, target, count): target[i] = source[i * stride] for i < count, stride 1 or 2, count > 0."""

    @intrinsic
    def copy(typing, source, target, count):
        def codegen(context, builder, signature, arguments):
            _copy(Vectors(builder, lanes, False), *arguments, stride)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 3), codegen

    return copy


@functools.cache
def make_spread_channel(lanes: int):
    """spread_channel(source, target, geometry, top, first, last, fill): rows first … last-1 of a spread channel.

    Rows are counted over the channel's phases and planes; `geometry` is the address of the words of Geometry; `top`: the row of the output
    for which the spread rows begin.
    """
    copy, copy_even = make_copy(lanes, 1), make_copy(lanes, 2)

    @inlined
    def spread_row(source, width, target, length, stride, start, fill):
        """target[i] = source[start + i * stride] for i < length, `fill` where that lies outside of 0 … width-1."""
        first = min(length, max(0, (stride - 1 - start) // stride))
        last = max(first, min(length, (width - start + stride - 1) // stride))
        for i in range(first):
            store_f32(target + 4 * i, fill)
        if first < last:
            begin = source + 4 * (start + first * stride)
            if stride == 1:
                copy(begin, target + 4 * first, last - first)
            elif stride == 2:
                copy_even(begin, target + 4 * first, last - first)
            else:
                for i in range(first, last):
                    store_f32(target + 4 * i, load_f32(source + 4 * (start + i * stride)))
        for i in range(last, length):
            store_f32(target + 4 * i, fill)

    @inlined
    def spread_channel(source, target, geometry, top, first, last, fill):
        (
            depth, height, width, _, row_phases, column_phases, planes, rows, columns,
            plane_stride, row_stride, column_stride, plane_pad, row_pad, column_pad,
        ) = _geometry(geometry)  # fmt: skip
        y, rest = first % rows, first // rows
        z, rest = rest % planes, rest // planes
        column_phase, rest = rest % column_phases, rest // column_phases
        row_phase, plane_phase = rest % row_phases, rest // row_phases
        for index in range(first, last):
            source_z, source_y = z * plane_stride + plane_phase - plane_pad, (top + y) * row_stride + row_phase - row_pad
            inside = 0 <= source_z < depth and 0 <= source_y < height
            row = source + (source_z * height + source_y) * width * 4
            spread_row(row, width if inside else 0, target + index * columns * 4, columns, column_stride, column_phase - column_pad, fill)
            y += 1
            if y == rows:
                y = 0
                z += 1
                if z == planes:
                    z = 0
                    column_phase += 1
                    if column_phase == column_phases:
                        column_phase = 0
                        row_phase += 1
                        if row_phase == row_phases:
                            row_phase = 0
                            plane_phase += 1

    return spread_channel


@kernel_factory("spread.images")
def make_spread(lanes):
    """Argument block: Spread, Geometry. Chunks are ranges of rows."""
    spread_channel = make_spread_channel(lanes)

    def spread(args, part, parts):
        source, target, channels, source_bytes, target_bytes, rows, _ = _spread(args)
        fill = load_f32(args + _SPREAD_BYTES - 8)
        first, last = share(channels * rows, part, parts, 1)
        while first < last:
            channel, row = first // rows, first % rows
            end = min(rows, row + last - first)
            spread_channel(source + channel * source_bytes, target + channel * target_bytes, args + _SPREAD_BYTES, 0, row, end, fill)
            first += end - row

    return spread
