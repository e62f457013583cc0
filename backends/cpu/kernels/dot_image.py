"""Convolutions of bytes, summed exactly in int32s: spread images, packed into panels of words, meet the tile of dot.py."""

from __future__ import annotations

import functools

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mnnx.backends.cpu.kernels.blocks import Geometry
from mnnx.backends.cpu.kernels.dot import group_of, make_dot_tile, make_shift_row, shifted_zero
from mnnx.backends.cpu.kernels.dot_words import DotConvolution, DotSpread
from mnnx.backends.cpu.kernels.intrinsics import alloca, inlined, load_i32, share, store_i32, store_i64
from mnnx.backends.cpu.kernels.packing import interleaved, make_copy_block
from mnnx.backends.cpu.kernels.registry import kernel_factory
from mnnx.backends.cpu.kernels.slots import claim_slot, free_slot
from mnnx.backends.cpu.kernels.vectors import I8, I16, I64, Loop, Vectors, load_words

_spread, _convolution, _geometry = (load_words(len(block._fields)) for block in (DotSpread, DotConvolution, Geometry))


@functools.cache
def _make_fill(mode: str):
    """fill(target, first, last, value): elements first … last-1 of words."""
    kind, size = (I16, 2) if group_of(mode) == 2 else (I8, 1)

    @intrinsic
    def put(typing, address, value):
        def codegen(context, builder, signature, arguments):
            builder.store(builder.trunc(arguments[1], kind), builder.inttoptr(arguments[0], kind.as_pointer()), align=size)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    @inlined
    def fill(target, first, last, value):
        for i in range(first, last):
            put(target + i * size, value)

    return fill


@kernel_factory("dot_image.spread")
def make_spread(lanes, mode):
    """Argument block: DotSpread, Geometry. Chunks are ranges of rows."""
    copy, copy_step, fill, size = make_shift_row(lanes, mode), make_shift_row(lanes, mode, False), _make_fill(mode), 4 // group_of(mode)
    geometry_words = 8 * len(DotSpread._fields)

    def spread(args, part, parts):
        source_start, target_start, channels, source_bytes, target_bytes, rows_per_channel, zero, signed, flip = _spread(args)
        (
            depth, height, width, plane_phases, row_phases, column_phases, planes, rows, columns,
            plane_stride, row_stride, step, plane_pad, row_pad, column_pad,
        ) = _geometry(args + geometry_words)  # fmt: skip
        padding = shifted_zero(zero, signed, flip)
        first, last = share(channels * rows_per_channel, part, parts, 1)
        channel, rest = first // rows_per_channel, first % rows_per_channel
        y, rest = rest % rows, rest // rows
        z, rest = rest % planes, rest // planes
        column_phase, rest = rest % column_phases, rest // column_phases
        row_phase, plane_phase = rest % row_phases, rest // row_phases
        target = target_start + channel * target_bytes + first % rows_per_channel * columns * size
        for _index in range(first, last):
            source_z, source_y = z * plane_stride + plane_phase - plane_pad, y * row_stride + row_phase - row_pad
            inside = 0 <= source_z < depth and 0 <= source_y < height
            start, room = column_phase - column_pad, width if inside else 0
            begin = min(columns, max(0, (step - 1 - start) // step))
            end = max(begin, min(columns, (room - start + step - 1) // step))
            source = source_start + channel * source_bytes + (source_z * height + source_y) * width + start + begin * step
            fill(target, 0, begin, padding)
            if step == 1:
                copy(source, target + begin * size, end - begin, 1, signed, flip)
            else:
                copy_step(source, target + begin * size, end - begin, step, signed, flip)
            fill(target, end, columns, padding)
            target += columns * size
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
                            if plane_phase == plane_phases:
                                plane_phase = 0
                                channel += 1
                                target = target_start + channel * target_bytes

    return spread


@functools.cache
def make_pack_words(lanes: int, mode: str):
    """An intrinsic pack_words(source, offsets, words, runs, count, panel, panel_stride): as pack_runs, for elements of words.

    Word k of the panel is made of the elements at offsets[k * group], offsets[k * group + 1], …
    """
    group = group_of(mode)
    element = I16 if group == 2 else I8

    @intrinsic
    def pack_words(typing, source, offsets, words, runs, count, panel, panel_stride):
        def codegen(context, builder, signature, arguments):
            source, offsets, words, runs, count, panel, panel_stride = arguments
            v = Vectors(builder, lanes, False)
            kind = ir.VectorType(element, lanes)
            numbers = ir.Constant(ir.VectorType(I64, lanes), list(range(lanes)))

            def load_word(address, offset=0):
                return builder.load(v.at(address, offset, I64), align=8)

            with Loop(builder, words) as loop:
                bases = [
                    builder.add(
                        source,
                        load_word(offsets, builder.mul(builder.add(builder.mul(loop.index, v.index(group)), v.index(e)), v.index(8))),
                    )
                    for e in range(group)
                ]
                first = load_word(runs)
                values = [builder.load(v.at(base, first, kind), align=1) for base in bases]
                with Loop(builder, builder.sub(count, v.index(1)), values) as more:
                    run = builder.add(runs, builder.shl(builder.add(more.index, v.index(1)), v.index(4)))
                    start, later = load_word(run), builder.icmp_signed(">=", numbers, v.splat(load_word(run, 8)))
                    loaded = [builder.load(v.at(base, start, kind), align=1) for base in bases]
                    more.carry([builder.select(later, new, old) for new, old in zip(loaded, more.values, strict=True)])
                values = more.results
                joined = interleaved(builder, values)
                builder.store(joined, v.at(panel, builder.mul(loop.index, panel_stride), joined.type), align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), codegen

    return pack_words


@kernel_factory("dot_image.product")
def make_product(rows, vectors, lanes, mode):
    """Argument block: DotConvolution. Images × groups × blocks × row chunks are shared out to the parts."""
    tile, single = (make_dot_tile(n, vectors, lanes, mode, n) for n in (rows, 1))
    columns, size = vectors * lanes, 4 // group_of(mode)
    pack_words, edge, table, start_table = make_pack_words(lanes, mode), alloca(4 * rows * columns), alloca(16 * lanes), alloca(4 * rows)
    edge_stride, copy_block = 4 * columns, make_copy_block(lanes)

    @inlined
    def pack_panel(source, offsets, words, pixel, pixels, width, height, row_stride, plane_stride, panel):
        """The panel of the pixels from `pixel` on; beyond the last one it holds anything."""
        runs = table()
        for first in range(pixel, min(pixel + columns, pixels), lanes):
            count, lane = 0, 0
            while lane < lanes and first + lane < pixels:
                y, x = (first + lane) // width, (first + lane) % width
                start = (y // height) * plane_stride + (y % height) * row_stride + size * x
                store_i64(runs + 16 * count, start - size * lane)
                store_i64(runs + 16 * count + 8, lane)
                lane += width - x
                count += 1
            pack_words(source, offsets, words, runs, count, panel + 4 * (first - pixel), edge_stride)

    def product(args, part, parts):
        (
            source_start, image_bytes, group_bytes, offsets, width, height, row_stride, plane_stride, weights_start, weight_bytes,
            sums_start, factors_start, biases, zero, signed, flip, target_start, images, groups, m, depth, words, pixels, block_panels,
            row_chunks, memory, flags, slots, slot_bytes,
        ) = _convolution(args)  # fmt: skip
        panels, tiles = (pixels + columns - 1) // columns, (m + rows - 1) // rows
        blocks, panel_bytes = (panels + block_panels - 1) // block_panels, words * edge_stride
        slot, x_zero, scratch, start = claim_slot(flags, slots), shifted_zero(zero, signed, flip), edge(), start_table()
        packed = memory + slot * slot_bytes
        pixel_sums = packed + block_panels * panel_bytes
        store_i32(start, 0)
        first_task, last_task = share(images * groups * blocks * row_chunks, part, parts, 1)
        for task in range(first_task, last_task):
            block, image = task // row_chunks % blocks, task // row_chunks // blocks
            group = image % groups
            source = source_start + image // groups * image_bytes + group * group_bytes
            first_panel, last_panel = block * block_panels, min(panels, (block + 1) * block_panels)
            ones = weights_start + groups * weight_bytes
            for panel in range(first_panel, last_panel):
                place = packed + (panel - first_panel) * panel_bytes
                pack_panel(source, offsets, words, panel * columns, pixels, width, height, row_stride, plane_stride, place)
                if factors_start != 0:
                    store_i32(start, 0)
                    single(ones, 0, place, words, start, 0, 0, pixel_sums + (panel - first_panel) * edge_stride, edge_stride)
            first_tile, last_tile = share(tiles, task % row_chunks, row_chunks, 1)
            for index in range(first_tile, last_tile):
                a, row = weights_start + group * weight_bytes + index * rows * words * 4, (group * tiles + index) * rows * 4
                tile_rows = min(rows, m - index * rows)
                factors = factors_start + row if factors_start != 0 else 0
                for i in range(rows):
                    own = load_i32(sums_start + row + 4 * i)
                    own += depth * load_i32(factors + 4 * i) if factors != 0 else 0
                    store_i32(start + 4 * i, load_i32(biases + row + 4 * i) - x_zero * own)
                for panel in range(first_panel, last_panel):
                    tile_columns = min(columns, pixels - panel * columns)
                    place = target_start + ((image * m + index * rows) * pixels + panel * columns) * 4
                    whole = tile_columns == columns and tile_rows == rows
                    target, stride = (place, 4 * pixels) if whole else (scratch, edge_stride)
                    b, sums = packed + (panel - first_panel) * panel_bytes, pixel_sums + (panel - first_panel) * edge_stride
                    tile(a, 0, b, words, start, factors, sums, target, stride)
                    if not whole:
                        copy_block(scratch, edge_stride, place, 4 * pixels, tile_rows, tile_columns)
        free_slot(flags, slot)

    return product
