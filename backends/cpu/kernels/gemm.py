"""Products of matrices of float32, and the packing of their right operand. Argument blocks: Product, Pack."""

from mnnx.backends.cpu.kernels.blocks import Pack, Product, Transpose
from mnnx.backends.cpu.kernels.intrinsics import alloca, load_f32, load_i64, share, store_f32
from mnnx.backends.cpu.kernels.packing import make_copy, make_copy_block, make_fill, make_transpose
from mnnx.backends.cpu.kernels.registry import kernel_factory
from mnnx.backends.cpu.kernels.tile import make_tile
from mnnx.backends.cpu.kernels.vectors import load_words

_product, _pack, _transpose = (load_words(len(block._fields)) for block in (Product, Pack, Transpose))
_FACTOR = 8 * Pack._fields.index("factor")


@kernel_factory("gemm.product")
def make_product(rows, vectors, lanes, fma, kind):
    """`kind`: of the epilogue. The items × row chunks × panel chunks are shared out to the parts.

    Where a tile reaches beyond the last row or column, it is computed in scratch memory and what is inside is copied.
    """
    tile3, tile2, tile1 = (make_tile(rows, n, lanes, fma, kind) for n in (vectors, max(1, vectors - 1), 1))
    half, quarter, single = (make_tile(max(1, n), vectors, lanes, fma, kind) for n in (rows // 2, rows // 4, 1))
    copy_block = make_copy_block(lanes)
    half_rows, quarter_rows, panel_columns = max(1, rows // 2), max(1, rows // 4), vectors * lanes
    edge, edge_stride = alloca(4 * rows * panel_columns), 4 * panel_columns

    def product(args, part, parts):
        (
            a_start, a_stride, b_start, b_stride, panel_bytes, bias_start, bias_bytes, c_start, c_stride, residual_start, residual_stride,
            parameters, m, n, depth, batch, items, row_chunks, panel_chunks,
        ) = _product(args)  # fmt: skip
        panels, scratch = (n + panel_columns - 1) // panel_columns, edge()
        first_task, last_task = share(batch * row_chunks * panel_chunks, part, parts, 1)
        for task in range(first_task, last_task):
            item, rest = task // (row_chunks * panel_chunks), task % (row_chunks * panel_chunks)
            first_row, last_row = share(m, rest // panel_chunks, row_chunks, rows)
            first_panel, last_panel = share(panels, rest % panel_chunks, panel_chunks, 1)
            a, b = a_start + load_i64(items + 32 * item), b_start + load_i64(items + 32 * item + 8)
            c, residual = c_start + load_i64(items + 32 * item + 16), residual_start + load_i64(items + 32 * item + 24)
            for panel in range(first_panel, last_panel):
                b_panel, bias, width = (
                    b + panel * panel_bytes,
                    bias_start + panel * bias_bytes,
                    min(panel_columns, n - panel * panel_columns),
                )
                row = first_row
                while row < last_row:
                    left = last_row - row
                    height = rows if left >= rows else half_rows if left >= half_rows else quarter_rows if left >= quarter_rows else 1
                    a_row = a + row * a_stride
                    place = c + row * c_stride + panel * edge_stride
                    added, added_stride = residual + row * residual_stride + panel * edge_stride, residual_stride
                    if residual_start == 0:
                        added = 0
                    whole = width % lanes == 0 and (height == rows or width == panel_columns)
                    target, stride = place, c_stride
                    if not whole:
                        target, stride = scratch, edge_stride
                        if added != 0:
                            copy_block(added, residual_stride, scratch, edge_stride, height, width)
                            added, added_stride = scratch, edge_stride
                    if height == rows:
                        if width > (vectors - 1) * lanes:
                            tile3(a_row, a_stride, b_panel, b_stride, depth, bias, target, stride, added, added_stride, parameters)
                        elif width > lanes:
                            tile2(a_row, a_stride, b_panel, b_stride, depth, bias, target, stride, added, added_stride, parameters)
                        else:
                            tile1(a_row, a_stride, b_panel, b_stride, depth, bias, target, stride, added, added_stride, parameters)
                    elif height == half_rows:
                        half(a_row, a_stride, b_panel, b_stride, depth, bias, target, stride, added, added_stride, parameters)
                    elif height == quarter_rows:
                        quarter(a_row, a_stride, b_panel, b_stride, depth, bias, target, stride, added, added_stride, parameters)
                    else:
                        single(a_row, a_stride, b_panel, b_stride, depth, bias, target, stride, added, added_stride, parameters)
                    if not whole:
                        copy_block(scratch, edge_stride, place, c_stride, height, width)
                    row += height

    return product


@kernel_factory("gemm.pack")
def make_pack(vectors, lanes):
    """The panels of all items are shared out to the parts."""
    transpose, copy, fill, panel_columns = make_transpose(lanes), make_copy(lanes, 1), make_fill(lanes), vectors * lanes

    def pack(args, part, parts):
        b_start, depth_stride, column_stride, target_start, depth, n, batch, items, _ = _pack(args)
        factor = load_f32(args + _FACTOR)
        panels = (n + panel_columns - 1) // panel_columns
        first, last = share(batch * panels, part, parts, 1)
        for task in range(first, last):
            item, panel = task // panels, task % panels
            width = min(panel_columns, n - panel * panel_columns)
            source = b_start + load_i64(items + 8 * item) + panel * panel_columns * column_stride
            target = target_start + task * depth * panel_columns * 4
            if column_stride == 4:
                for k in range(depth):
                    row = target + k * panel_columns * 4
                    copy(source + k * depth_stride, row, width)
                    fill(row + 4 * width, panel_columns - width, 0)
            else:
                for j in range(0, panel_columns, lanes):
                    whole = depth if j >= width else depth // lanes * lanes if j + lanes <= width else 0
                    if j >= width:
                        for k in range(depth):
                            for lane in range(lanes):
                                store_f32(target + (k * panel_columns + j + lane) * 4, 0)
                    else:
                        for k in range(0, whole, lanes):
                            row = target + (k * panel_columns + j) * 4
                            transpose(source + j * column_stride + k * depth_stride, column_stride, row, 4 * panel_columns)
                    for k in range(whole, depth):
                        for column in range(j, j + lanes):
                            value = load_f32(source + column * column_stride + k * depth_stride) if column < width else 0
                            store_f32(target + (k * panel_columns + column) * 4, value)
            if factor != 1:
                for i in range(depth * panel_columns):
                    store_f32(target + 4 * i, load_f32(target + 4 * i) * factor)

    return pack


@kernel_factory("gemm.transpose")
def make_transposed(lanes):
    """Chunks are ranges of `lanes` rows of the targets."""
    transpose = make_transpose(lanes)

    def transposed(args, part, parts):
        source_start, target_start, batch, rows, columns = _transpose(args)
        blocks = (columns + lanes - 1) // lanes
        first, last = share(batch * blocks, part, parts, 1)
        for task in range(first, last):
            item, column = task // blocks, task % blocks * lanes
            source, target = source_start + item * rows * columns * 4, target_start + item * rows * columns * 4
            whole = rows // lanes * lanes if column + lanes <= columns else 0
            for row in range(0, whole, lanes):
                transpose(source + (row * columns + column) * 4, columns * 4, target + (column * rows + row) * 4, rows * 4)
            for j in range(column, min(column + lanes, columns)):
                for i in range(whole, rows):
                    store_f32(target + (j * rows + i) * 4, load_f32(source + (i * columns + j) * 4))

    return transposed
