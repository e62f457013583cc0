"""Convolutions of float32 images N × C × D × H × W (fewer spatial dims: leading ones of size 1). Argument blocks: Convolution, Slide,
Gather."""

from mnnx.backends.cpu.kernels.blocks import MULTIPLY, PACK, Convolution, Gather
from mnnx.backends.cpu.kernels.intrinsics import alloca, inlined, load_f32, load_i64, share, store_f32, store_i64
from mnnx.backends.cpu.kernels.packing import make_copy_block, make_pack_runs
from mnnx.backends.cpu.kernels.registry import kernel_factory
from mnnx.backends.cpu.kernels.slots import claim_slot, free_slot
from mnnx.backends.cpu.kernels.tile import make_finish, make_tile
from mnnx.backends.cpu.kernels.vectors import load_words
from mnnx.backends.cpu.kernels.windows import make_slide

_convolution, _gather = load_words(len(Convolution._fields)), load_words(len(Gather._fields))


@kernel_factory("convolution.product")
def make_product(rows, vectors, lanes, fma, kind):
    """The convolution as a product of matrices: weights [M, depth] times pixels [depth, P]; depth: channels of a group × taps.

    Pixels are packed into panels block by block, out of a spread image, and meet all rows of the weights while they are in cache;
    `kind`: of the epilogue. Images × groups × blocks × row chunks are shared out to the parts.
    """
    tile3, tile2, tile1 = (make_tile(rows, n, lanes, fma, kind, rows, "row") for n in (vectors, max(1, vectors - 1), 1))
    columns = vectors * lanes
    edge_stride, copy_block = 4 * columns, make_copy_block(lanes)
    pack_runs, edge, table = make_pack_runs(lanes), alloca(rows * edge_stride), alloca(16 * lanes)

    @inlined
    def start_of(pixel, width, height, row_stride, plane_stride):
        """Where a pixel lies in the source."""
        y = pixel // width
        return (y // height) * plane_stride + (y % height) * row_stride + 4 * (pixel % width)

    @inlined
    def pack_panel(source, offsets, depth, pixel, pixels, width, height, row_stride, plane_stride, slack, panel):
        """The panel of the pixels from `pixel` on; beyond the last one it holds anything, but finite numbers if the source does."""
        runs = table()
        for first in range(pixel, min(pixel + columns, pixels), lanes):
            target = panel + 4 * (first - pixel)
            if slack != 0 or first + lanes <= pixels:
                count, lane = 0, 0
                while lane < lanes and first + lane < pixels:
                    start = start_of(first + lane, width, height, row_stride, plane_stride)
                    store_i64(runs + 16 * count, start - 4 * lane)
                    store_i64(runs + 16 * count + 8, lane)
                    lane += width - (first + lane) % width
                    count += 1
                pack_runs(source, offsets, depth, runs, count, target, edge_stride)
            else:
                for k in range(depth):
                    row = source + load_i64(offsets + 8 * k)
                    for lane in range(lanes):
                        value = 0
                        if first + lane < pixels:
                            value = load_f32(row + start_of(first + lane, width, height, row_stride, plane_stride))
                        store_f32(target + k * edge_stride + 4 * lane, value)

    def product(args, part, parts):
        (
            source_start, image_bytes, group_bytes, offsets, width, height, row_stride, plane_stride, slack, weights_start, weight_bytes,
            bias_start, target_start, residual_start, parameters, images, groups, m, depth, pixels, block_panels, row_chunks, packed_start,
            packed_bytes, flags, slots, slot_bytes, to_do, in_place,
        ) = _convolution(args)  # fmt: skip
        panels, tiles, scratch = (pixels + columns - 1) // columns, (m + rows - 1) // rows, edge()
        blocks, panel_bytes = (panels + block_panels - 1) // block_panels, depth * edge_stride
        slot = claim_slot(flags, slots) if packed_bytes == 0 else 0
        first_task, last_task = share(images * groups * blocks * row_chunks, part, parts, 1)
        for task in range(first_task, last_task):
            block, image = task // row_chunks % blocks, task // row_chunks // blocks
            group = image % groups
            source = source_start + image // groups * image_bytes + group * group_bytes
            first_panel, last_panel = block * block_panels, min(panels, (block + 1) * block_panels)
            packed = packed_start + (slot * slot_bytes if packed_bytes == 0 else image * packed_bytes + first_panel * panel_bytes)
            if to_do & PACK:
                for panel in range(first_panel, last_panel):
                    if in_place == 0 or ((panel + 1) * columns > pixels and pixels % lanes != 0):
                        pack_panel(
                            source, offsets, depth, panel * columns, pixels, width, height, row_stride, plane_stride, slack,
                            packed + (panel - first_panel) * panel_bytes,
                        )  # fmt: skip
            if to_do & MULTIPLY:
                first_tile, last_tile = share(tiles, task % row_chunks, row_chunks, 1)
                weights, bias_row = weights_start + group * weight_bytes, bias_start + group * tiles * rows * 4
                for index in range(first_tile, last_tile):
                    a, bias, tile_rows = weights + index * rows * depth * 4, bias_row + index * rows * 4, min(rows, m - index * rows)
                    for panel in range(first_panel, last_panel):
                        tile_columns = min(columns, pixels - panel * columns)
                        place = ((image * m + index * rows) * pixels + panel * columns) * 4
                        added, added_stride = residual_start + place if residual_start != 0 else 0, 4 * pixels
                        place += target_start
                        b, b_stride = packed + (panel - first_panel) * panel_bytes, edge_stride
                        if in_place != 0 and tile_columns % lanes == 0:
                            b, b_stride = source + panel * columns * 4, in_place
                        whole = tile_columns % lanes == 0 and tile_rows == rows
                        target, stride = place, 4 * pixels
                        if not whole:
                            target, stride = scratch, edge_stride
                            if added != 0:
                                copy_block(added, 4 * pixels, scratch, edge_stride, tile_rows, tile_columns)
                                added, added_stride = scratch, edge_stride
                        if tile_columns > (vectors - 1) * lanes:
                            tile3(a, 0, b, b_stride, depth, bias, target, stride, added, added_stride, parameters)
                        elif tile_columns > lanes:
                            tile2(a, 0, b, b_stride, depth, bias, target, stride, added, added_stride, parameters)
                        else:
                            tile1(a, 0, b, b_stride, depth, bias, target, stride, added, added_stride, parameters)
                        if not whole:
                            copy_block(scratch, edge_stride, place, 4 * pixels, tile_rows, tile_columns)
        if packed_bytes == 0:
            free_slot(flags, slot)

    return product


@kernel_factory("convolution.depthwise")
def make_depthwise(lanes, fma, kind):
    """Every channel on its own."""
    return make_slide(lanes, fma, "dot", kind)


@kernel_factory("convolution.gather")
def make_gather(lanes, fma, kind):
    """Output rows, one after the other: the phases of the column stride side by side, so that all sums are of neighbours; then merged.

    Rows of the output, over all planes and channels, are shared out to the parts.
    """
    finish = make_finish(lanes, fma, kind)

    @inlined
    def add_row(source, target, count):
        for i in range(count):
            store_f32(target + 4 * i, load_f32(target + 4 * i) + load_f32(source + 4 * i))

    def gather(args, part, parts):
        (
            terms_start, bias, outputs, target_start, residual_start, parameters, channels, depth, height, width, kernel_depth,
            kernel_height, kernel_width, plane_stride, row_stride, column_stride, plane_dilation, row_dilation, column_dilation,
            plane_pad, row_pad,
            column_pad, target_depth, target_height, target_width, flags, slots, memory, slot_bytes,
        ) = _gather(args)  # fmt: skip
        slot = claim_slot(flags, slots)
        phase_width = (target_width + column_stride - 1) // column_stride
        first, last = share(channels * target_depth * target_height, part, parts, 1)
        for index in range(first, last):
            channel, z, y = index // target_height // target_depth, index // target_height % target_depth, index % target_height
            row = target_start + index * target_width * 4
            phases = row if column_stride == 1 else memory + slot * slot_bytes
            start = load_f32(bias + channel % outputs * 4)
            for i in range(column_stride * phase_width):
                store_f32(phases + 4 * i, start)
            for kernel_z in range(kernel_depth):
                source_z = z + plane_pad - kernel_z * plane_dilation
                if source_z < 0 or source_z % plane_stride != 0 or source_z // plane_stride >= depth:
                    continue
                for kernel_y in range(kernel_height):
                    source_y = y + row_pad - kernel_y * row_dilation
                    if source_y < 0 or source_y % row_stride != 0 or source_y // row_stride >= height:
                        continue
                    for kernel_x in range(kernel_width):
                        tap = (kernel_z * kernel_height + kernel_y) * kernel_width + kernel_x
                        plane = (channel * kernel_depth * kernel_height * kernel_width + tap) * depth + source_z // plane_stride
                        source = terms_start + (plane * height + source_y // row_stride) * width * 4
                        shift = kernel_x * column_dilation - column_pad
                        phase, shift = shift % column_stride, shift // column_stride
                        count = (target_width - phase + column_stride - 1) // column_stride
                        begin, end = max(0, -shift), min(width, count - shift)
                        add_row(source + 4 * begin, phases + (phase * phase_width + begin + shift) * 4, end - begin)
            if column_stride == 2:
                for i in range(target_width // 2):
                    even, odd = load_f32(phases + 4 * i), load_f32(phases + (phase_width + i) * 4)
                    store_f32(row + 8 * i, even)
                    store_f32(row + 8 * i + 4, odd)
                if target_width % 2 == 1:
                    store_f32(row + 4 * target_width - 4, load_f32(phases + 4 * phase_width - 4))
            elif column_stride > 2:
                for x in range(target_width):
                    store_f32(row + 4 * x, load_f32(phases + (x % column_stride * phase_width + x // column_stride) * 4))
            finish(row, residual_start + index * target_width * 4 if residual_start != 0 else 0, target_width, parameters)
        free_slot(flags, slot)

    return gather
