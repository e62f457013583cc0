"""Images with their padding, and with the phases of the stride side by side, so that windows slide over them with stride 1.

An image N × C × D × H × W becomes [channels][phases of D, H, W][D'][H'][W']: column x of phase p is column x * stride + p of the padded
image; rows and planes likewise. There the input of output pixel (z, y, x) for the tap (kd, kh, kw) lies at (z * H' + y) * W' + x plus
an offset of the tap alone, whatever stride, dilation and padding are.
"""

import functools

from mnnx.backends.cpu.kernels.blocks import Geometry, Spread
from mnnx.backends.cpu.kernels.intrinsics import inlined, load_f32, load_i8, load_u8, share, store_f32
from mnnx.backends.cpu.kernels.packing import make_copy, make_fill
from mnnx.backends.cpu.kernels.registry import kernel_factory
from mnnx.backends.cpu.kernels.vectors import load_words

_geometry, _spread, _SPREAD_BYTES = load_words(len(Geometry._fields)), load_words(len(Spread._fields)), 8 * len(Spread._fields)


@functools.cache
def make_spread_channel(lanes: int, source_dtype: str = "float32"):
    """spread_channel(source, target, geometry, top, first, last, fill): rows first … last-1 of a spread channel, of floats.

    Rows are counted over the channel's phases and planes; `geometry` is the address of the words of Geometry; `top`: the row of the output
    for which the spread rows begin. The source may hold int8s or uint8s.
    """
    copy, copy_even, fill_row = make_copy(lanes, 1, source_dtype), make_copy(lanes, 2, source_dtype), make_fill(lanes)
    load, size = {"float32": (load_f32, 4), "int8": (load_i8, 1), "uint8": (load_u8, 1)}[source_dtype]

    @inlined
    def spread_channel(source, target, geometry, top, first, last, fill):
        (
            depth, height, width, _, row_phases, column_phases, planes, rows, columns,
            plane_stride, row_stride, step, plane_pad, row_pad, column_pad,
        ) = _geometry(geometry)  # fmt: skip
        y, rest = first % rows, first // rows
        z, rest = rest % planes, rest // planes
        column_phase, rest = rest % column_phases, rest // column_phases
        row_phase, plane_phase = rest % row_phases, rest // row_phases
        done = first
        while done < last:  # all rows of one plane of one phase, up to `last`
            end = min(rows, y + last - done)
            start = column_phase - column_pad
            begin = min(columns, max(0, (step - 1 - start) // step))
            beyond = max(begin, min(columns, (width - start + step - 1) // step))
            source_z = z * plane_stride + plane_phase - plane_pad
            while y < end:
                row, source_y = target + done * columns * 4, (top + y) * row_stride + row_phase - row_pad
                done += 1
                y += 1
                if not (0 <= source_z < depth and 0 <= source_y < height and begin < beyond):
                    fill_row(row, columns, fill)
                    continue
                line = source + ((source_z * height + source_y) * width + start) * size
                fill_row(row, begin, fill)
                if step == 1:
                    copy(line + size * begin, row + 4 * begin, beyond - begin)
                elif step == 2:
                    copy_even(line + 2 * size * begin, row + 4 * begin, beyond - begin)
                else:
                    for i in range(begin, beyond):
                        store_f32(row + 4 * i, load(line + size * i * step))
                fill_row(row + 4 * beyond, columns - beyond, fill)
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
