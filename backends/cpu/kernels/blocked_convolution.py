"""Convolutions of float32 images in the blocked layout. Argument blocks: see blocked_words.py."""

from mnnx.backends.cpu.kernels.blocked_tile import make_blocked_tile, make_depthwise_tile
from mnnx.backends.cpu.kernels.blocked_words import BlockedDepthwise, BlockedProduct
from mnnx.backends.cpu.kernels.intrinsics import load_i64, share
from mnnx.backends.cpu.kernels.registry import kernel_factory
from mnnx.backends.cpu.kernels.vectors import LINE, load_words

_product, _depthwise = load_words(len(BlockedProduct._fields)), load_words(len(BlockedDepthwise._fields))


@kernel_factory("blocked_convolution.product")
def make_product(rows, vectors, tail, lanes, fma, kind, row_bytes, depth, run, edges, across):
    """Tiles of `rows` pixels of an output row × `vectors` blocks of output channels (the last ones: `tail` blocks, 0: none are left).

    Pixels lie row_bytes apart in the source and are `across` pixels apart in the target; a step takes `depth` floats of each, `run` of them
    side by side. `edges`: how many pixels at either end of a tile may see padding. Panels of tiles × chunks of output channels are shared
    out to the parts.
    """
    inner, inner_tail = (make_blocked_tile(rows, n, lanes, fma, kind, row_bytes, depth, run, 0, across) for n in (vectors, tail or 1))
    edge, edge_tail = (make_blocked_tile(rows, n, lanes, fma, kind, row_bytes, depth, run, edges, across) for n in (vectors, tail or 1))
    step_bytes, panel_bytes = 8 * (depth // run), 4 * vectors * lanes

    def product(args, part, parts):
        (
            source, image_bytes, group_bytes, row_table, column_table, column_tiles, tiles, places, zeros, weights_start,
            weight_bytes, bias_start, target_start, plane_bytes, residual_start, parameters, images, groups, blocks, panel_tiles,
            block_chunks,
        ) = _product(args)  # fmt: skip
        panels, block_panels = (tiles + panel_tiles - 1) // panel_tiles, (blocks + vectors - 1) // vectors
        first_task, last_task = share(images * groups * panels * block_chunks, part, parts, 1)
        for task in range(first_task, last_task):
            panel, item = task // block_chunks % panels, task // block_chunks // panels
            group = item % groups
            x = source + item // groups * image_bytes + group * group_bytes
            first_tile, last_tile = panel * panel_tiles, min(tiles, (panel + 1) * panel_tiles)
            first_panel, last_panel = share(block_panels, task % block_chunks, block_chunks, 1)
            for block_panel in range(first_panel, last_panel):
                weights = weights_start + (group * block_panels + block_panel) * weight_bytes
                bias = bias_start + (group * block_panels + block_panel) * panel_bytes
                y_offset = (item * blocks + block_panel * vectors) * plane_bytes
                whole = tail == 0 or block_panel < block_panels - 1
                ahead, ahead_tile, ahead_step = weights, 0, 0  # each tile prefetches its part of the next weights
                if block_panel + 1 < last_panel:
                    ahead_tile = (weight_bytes // (last_tile - first_tile) + LINE - 1) // LINE * LINE
                for index in range(first_tile, last_tile):
                    row, column = row_table + index // column_tiles * 32, column_table + index % column_tiles * 24
                    xt = x + load_i64(row) + load_i64(column)
                    offset = y_offset + load_i64(row + 8) + load_i64(column + 8)
                    y, added = target_start + offset, residual_start + offset if residual_start != 0 else 0
                    first, count, masks = load_i64(row + 16), load_i64(row + 24), load_i64(column + 16)
                    if ahead_tile != 0:
                        ahead = weights + weight_bytes + (index - first_tile) * ahead_tile
                        ahead_step = (ahead_tile // count + LINE - 1) // LINE * LINE
                    w = weights + first * depth * (panel_bytes if whole else 4 * tail * lanes)
                    table = places + step_bytes * first
                    if edges == 0 or masks == 0:
                        if whole:
                            inner(xt, table, count, 0, 0, w, ahead, ahead_step, bias, y, plane_bytes, added, parameters)
                        else:
                            inner_tail(xt, table, count, 0, 0, w, ahead, ahead_step, bias, y, plane_bytes, added, parameters)
                    else:
                        masks += step_bytes * first
                        if whole:
                            edge(xt, table, count, masks, zeros, w, ahead, ahead_step, bias, y, plane_bytes, added, parameters)
                        else:
                            edge_tail(xt, table, count, masks, zeros, w, ahead, ahead_step, bias, y, plane_bytes, added, parameters)

    return product


@kernel_factory("blocked_convolution.depthwise")
def make_depthwise(columns, single, taps, stride, dilation, left, right, lanes, fma, kind):
    """Tiles of `columns` output pixels; `single`: one of them is a row. `left`, `right`: columns of padding that windows reach.

    Output rows, over all blocks of channels, are shared out to the parts.
    """
    first_tile, inner_tile, last_tile = (
        make_depthwise_tile(columns, taps, stride, dilation, *padding, lanes, fma, kind)
        for padding in ((left, right if single else 0), (0, 0), (0, right))
    )

    def depthwise(args, part, parts):
        (
            source, plane_bytes, row_bytes, row_table, height, width, stride_bytes, weights_start, weight_bytes, bias_start, target_start,
            target_bytes, residual_start, parameters, blocks, images,
        ) = _depthwise(args)  # fmt: skip
        first, last = share(images * blocks * height, part, parts, 1)
        for index in range(first, last):
            plane, row = index // height, row_table + index % height * 32
            block, kernel_row, count = plane % blocks, load_i64(row + 16), load_i64(row + 24)
            x = source + plane * plane_bytes + load_i64(row) + kernel_row * row_bytes
            w, bias = weights_start + block * weight_bytes + kernel_row * taps * 4 * lanes, bias_start + block * 4 * lanes
            offset = plane * target_bytes + load_i64(row + 8)
            y, added, step = target_start + offset, residual_start + offset, 4 * lanes
            if residual_start == 0:
                added, step = 0, 0
            first_tile(x, row_bytes, count, w, bias, y, added, parameters)
            if single == 0:
                for column in range(columns, width - columns, columns):
                    inner_tile(
                        x + column * stride_bytes, row_bytes, count, w, bias, y + 4 * lanes * column, added + step * column, parameters
                    )  # fmt: skip
                column = width - columns
                last_tile(x + column * stride_bytes, row_bytes, count, w, bias, y + 4 * lanes * column, added + step * column, parameters)

    return depthwise
