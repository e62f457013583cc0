"""Convolutions of 3×3 windows with stride 1 by Winograd's algorithm, in the blocked layout. Argument block: BlockedWinograd."""

from mnnx.backends.cpu.kernels.blocked_tile import make_blocked_tile
from mnnx.backends.cpu.kernels.blocked_transform import make_finish_pixels, make_input_transform, make_move_pixels, make_output_transform
from mnnx.backends.cpu.kernels.blocked_words import MULTIPLY, TRANSFORM, BlockedWinograd
from mnnx.backends.cpu.kernels.intrinsics import alloca, inlined, share
from mnnx.backends.cpu.kernels.registry import kernel_factory
from mnnx.backends.cpu.kernels.slots import claim_slot, free_slot
from mnnx.backends.cpu.kernels.vectors import LINE, load_words

_winograd = load_words(len(BlockedWinograd._fields))


@kernel_factory("blocked_winograd")
def make(outputs, rows, vectors, tail, lanes, fma, kind, depth):
    """Squares of outputs² pixels become (outputs + 2)² products of matrices: squares × input channels × output channels.

    `rows` squares × `vectors` blocks of output channels (the last ones: `tail`) make a register tile. Chunks of squares × of blocks are
    shared out to the parts.
    """
    size, pixel = outputs + 2, 4 * lanes
    points = size * size
    transform, finish = make_input_transform(outputs, lanes, fma), make_output_transform(outputs, lanes, fma, kind)
    finish_raw, finish_pixels = make_output_transform(outputs, lanes, fma, ""), make_finish_pixels(lanes, fma, kind)
    copy, clear = make_move_pixels(lanes)
    tile, tail_tile = (make_blocked_tile(rows, n, lanes, fma, "", pixel, depth, depth) for n in (vectors, tail or 1))
    buffer = alloca(points * pixel)

    @inlined
    def gather(plane, height, width, top, left, target):
        """The size² pixels from (top, left) on, zeros outside of the image."""
        first, last = max(0, -left), min(size, width - left)
        for i in range(size):
            row = target + i * size * pixel
            if top + i < 0 or top + i >= height or last <= first:
                clear(row, size)
            else:
                clear(row, first)
                copy(plane + ((top + i) * width + left + first) * pixel, row + first * pixel, last - first)
                clear(row + last * pixel, size - last)

    def winograd(args, part, parts):
        (
            source, in_blocks, height, width, top_pad, left_pad, across, down, images, chunks, block_chunks, stride, to_do, transformed,
            transformed_bytes, shared, products, products_bytes, flags, slots, places, step_count, weights_start, weight_bytes, bias_start,
            target, out_height, out_width, residual_start, parameters, blocks,
        ) = _winograd(args)  # fmt: skip
        slot, square = claim_slot(flags, slots), buffer()
        out_plane, in_plane, block_panels = out_height * out_width * pixel, height * width * pixel, (blocks + vectors - 1) // vectors
        point_in, line, m = in_blocks * stride * pixel, stride * pixel, products + slot * products_bytes
        first_task, last_task = share(chunks * block_chunks, part, parts, 1)
        for task in range(first_task, last_task):
            first, last = share(images * down * across, task // block_chunks, chunks, 1)
            count = last - first
            v = transformed + (task // block_chunks if shared != 0 else slot) * transformed_bytes
            if to_do & TRANSFORM:
                first_block, last_block = share(in_blocks, task % block_chunks, block_chunks, 1)
                for block in range(first_block, last_block):
                    for index in range(first, last):
                        image, y, x = index // across // down, index // across % down, index % across
                        plane = source + (image * in_blocks + block) * in_plane
                        top, left = y * outputs - top_pad, x * outputs - left_pad
                        there = v + (block * stride + index - first) * pixel
                        if top >= 0 and left >= 0 and top + size <= height and left + size <= width:
                            transform(plane + (top * width + left) * pixel, width * pixel, there, point_in)
                        else:
                            gather(plane, height, width, top, left, square)
                            transform(square, size * pixel, there, point_in)
            if to_do & MULTIPLY:
                first_panel, last_panel = share(block_panels, task % block_chunks, block_chunks, 1)
                for panel in range(first_panel, last_panel):
                    whole = tail == 0 or panel < block_panels - 1
                    members = vectors if whole else tail
                    point_bytes = step_count * depth * members * pixel
                    tiles = (count + rows - 1) // rows
                    ahead_tile = (point_bytes // tiles + LINE - 1) // LINE * LINE
                    ahead_step = (ahead_tile // step_count + LINE - 1) // LINE * LINE
                    for point in range(points):
                        w = weights_start + panel * weight_bytes + point * point_bytes
                        for start in range(0, count, rows):
                            ahead = w + point_bytes + start // rows * ahead_tile
                            begin = max(0, min(start, count - rows)) * pixel
                            x, y = v + point * point_in + begin, m + point * vectors * line + begin
                            if whole:
                                tile(x, places, step_count, 0, 0, w, ahead, ahead_step, 0, y, line, 0, 0)
                            else:
                                tail_tile(x, places, step_count, 0, 0, w, ahead, ahead_step, 0, y, line, 0, 0)
                    for member in range(members):
                        block = panel * vectors + member
                        for index in range(first, last):
                            image, y, x = index // across // down, index // across % down, index % across
                            offset = (image * blocks + block) * out_plane + (y * outputs * out_width + x * outputs) * pixel
                            here, bias = m + (member * stride + index - first) * pixel, bias_start + block * pixel
                            added = residual_start + offset if residual_start != 0 else 0
                            tall, wide = min(outputs, out_height - y * outputs), min(outputs, out_width - x * outputs)
                            if tall == outputs and wide == outputs:
                                finish(here, vectors * line, bias, target + offset, out_width * pixel, added, parameters)
                            else:
                                finish_raw(here, vectors * line, bias, square, outputs * pixel, 0, parameters)
                                for i in range(tall):
                                    step = i * out_width * pixel
                                    seen = added + step if added != 0 else 0
                                    finish_pixels(square + i * outputs * pixel, seen, target + offset + step, wide, parameters)
        free_slot(flags, slot)

    return winograd
