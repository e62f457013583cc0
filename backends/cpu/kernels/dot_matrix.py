"""Products of matrices of bytes: the right operand packed into panels of words, and the tile of dot.py led over both."""

from __future__ import annotations

import functools

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mnnx.backends.cpu.kernels.dot import dot_words, group_of, make_dot_tile, shift, shifted_zero
from mnnx.backends.cpu.kernels.dot_finish import make_finish
from mnnx.backends.cpu.kernels.dot_words import DotPack, DotProduct
from mnnx.backends.cpu.kernels.intrinsics import alloca, inlined, load_i32, load_i64, load_u8, share, store_i32, store_u8
from mnnx.backends.cpu.kernels.packing import interleaved, make_copy_block
from mnnx.backends.cpu.kernels.registry import kernel_factory
from mnnx.backends.cpu.kernels.vectors import I8, Loop, Vectors, load_words

_product, _pack = (load_words(len(block._fields)) for block in (DotProduct, DotPack))


@functools.cache
def _make_pack_words(lanes: int, mode: str):
    """An intrinsic pack_words(b, stride, words, panel, panel_stride, sums, signed, flip): one vector of columns of whole words.

    Each word is made of the bytes of neighbouring rows of b; what the columns sum up to is added to `sums`.
    """
    group = group_of(mode)

    @intrinsic
    def pack_words(typing, b, stride, words, panel, panel_stride, sums, signed, flip):
        def codegen(context, builder, signature, arguments):
            b, stride, words, panel, panel_stride, sums, signed, flip = arguments
            v = Vectors(builder, lanes, False)
            ones = v.integer(0x00010001 if group == 2 else 0x01010101)
            place = v.at(sums, 0, v.integers)
            with Loop(builder, words, [builder.load(place, align=4)]) as loop:
                first = builder.mul(loop.index, v.index(group))
                rows = []
                for i in range(group):
                    offset = builder.mul(builder.add(first, v.index(i)), stride)
                    rows.append(shift(builder, builder.load(v.at(b, offset, ir.VectorType(I8, lanes)), align=1), signed, flip, mode))
                word = interleaved(builder, rows)
                builder.store(word, v.at(panel, builder.mul(loop.index, panel_stride), word.type), align=4)
                loop.carry([dot_words(v, mode, loop.values[0], ones, word)])
            builder.store(loop.results[0], place, align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 8), codegen

    return pack_words


@kernel_factory("dot_matrix.pack")
def make_pack(vectors, lanes, mode):
    """Argument block: DotPack. Matrices × panels are shared out to the parts."""
    pack_words, group = _make_pack_words(lanes, mode), group_of(mode)
    columns, rows = vectors * lanes, alloca(group * lanes)

    @inlined
    def copy_rows(b, n, height, width, target, flip):
        """The rows of a word of a vector of columns, of which `height` and `width` exist; the rest counts as 0."""
        nothing = 128 if flip != 0 else 0
        for i in range(group * lanes):
            store_u8(target + i, nothing)
        for i in range(height):
            for j in range(width):
                store_u8(target + i * lanes + j, load_u8(b + i * n + j))

    def pack(args, part, parts):
        source, target, panel_bytes, sums_start, depth, n, words, batch, signed, flip = _pack(args)
        panels, whole, scratch = (n + columns - 1) // columns, depth // group, rows()
        first, last = share(batch * panels, part, parts, 1)
        for task in range(first, last):
            item, column = task // panels, task % panels * columns
            b, panel, sums = source + item * depth * n + column, target + task * panel_bytes, sums_start + 4 * task * columns
            for j in range(columns):
                store_i32(sums + 4 * j, 0)
            for j in range(0, columns, lanes):
                width = min(lanes, n - column - j)
                done = whole if width == lanes else 0
                if done > 0:
                    pack_words(b + j, n, done, panel + 4 * j, 4 * columns, sums + 4 * j, signed, flip)
                for k in range(done, words):
                    height, place = min(group, depth - k * group), panel + 4 * (k * columns + j)
                    copy_rows(b + k * group * n + j, n, height, max(0, width), scratch, flip)
                    pack_words(scratch, lanes, 1, place, 0, sums + 4 * j, signed, flip)

    return pack


@kernel_factory("dot_matrix.product")
def make_product(rows, vectors, lanes, fma, mode, target, rounds, kind):
    """Argument block: DotProduct. Items × row chunks × panel chunks are shared out to the parts. dot_finish.py says what target, rounds
    and kind are."""
    tile, half, quarter, single = (make_dot_tile(max(1, n), vectors, lanes, mode) for n in (rows, rows // 2, rows // 4, 1))
    half_rows, quarter_rows, panel_columns = max(1, rows // 2), max(1, rows // 4), vectors * lanes
    edge, start_row, edge_stride, size = alloca(4 * rows * panel_columns), alloca(4 * panel_columns), 4 * panel_columns, 4
    in_place = target == "int32"
    if in_place:
        copy_block = make_copy_block(lanes)

        @inlined
        def finish_block(sums, place, stride, height, width, factors, addends, multiplier, constants):
            copy_block(sums, edge_stride, place, stride, height, width)

    else:
        finish, size = make_finish(lanes, fma, target, rounds, kind), 4 if target == "float32" else 1

        @inlined
        def finish_block(sums, place, stride, height, width, factors, addends, multiplier, constants):
            for i in range(height):
                finish(sums + i * edge_stride, place + i * stride, width, factors, addends, multiplier, constants)

    def product(args, part, parts):
        (
            a_start, a_stride, b_start, panel_bytes, column_sums, column_factors, row_sums, bias, zero, signed, flip, c_start, c_stride, m,
            n, depth, words, batch, items, row_chunks, panel_chunks, factors, addends,
            multiplier, constants,
        ) = _product(args)  # fmt: skip
        panels, scratch, start, a_zero = (n + panel_columns - 1) // panel_columns, edge(), start_row(), shifted_zero(zero, signed, flip)
        first_task, last_task = share(batch * row_chunks * panel_chunks, part, parts, 1)
        for task in range(first_task, last_task):
            item, rest = task // (row_chunks * panel_chunks), task % (row_chunks * panel_chunks)
            a_item, b_item = load_i64(items + 16 * item), load_i64(items + 16 * item + 8)
            a, b, c = a_start + a_item * m * a_stride, b_start + b_item * panels * panel_bytes, c_start + item * m * c_stride
            item_sums = column_sums + b_item * panels * edge_stride
            first_row, last_row = share(m, rest // panel_chunks, row_chunks, rows)
            first_panel, last_panel = share(panels, rest % panel_chunks, panel_chunks, 1)
            for panel in range(first_panel, last_panel):
                width, column = min(panel_columns, n - panel * panel_columns), panel * panel_columns * 4
                by_column = column_factors + column if column_factors != 0 else 0
                for j in range(0, edge_stride, 4):
                    own = load_i32(item_sums + column + j)
                    own += depth * load_i32(by_column + j) if by_column != 0 else 0
                    extra = load_i32(bias + column + j) if bias != 0 else 0
                    store_i32(start + j, extra - a_zero * own)
                row = first_row
                while row < last_row:
                    left = last_row - row
                    height = rows if left >= rows else half_rows if left >= half_rows else quarter_rows if left >= quarter_rows else 1
                    a_row, place = a + row * a_stride, c + row * c_stride + panel * panel_columns * size
                    by_row = row_sums + 4 * (a_item * m + row) if by_column != 0 else 0
                    whole = in_place and width == panel_columns
                    sums, stride = (place, c_stride) if whole else (scratch, edge_stride)
                    b_panel = b + panel * panel_bytes
                    if height == rows:
                        tile(a_row, a_stride, b_panel, words, start, by_row, by_column, sums, stride)
                    elif height == half_rows:
                        half(a_row, a_stride, b_panel, words, start, by_row, by_column, sums, stride)
                    elif height == quarter_rows:
                        quarter(a_row, a_stride, b_panel, words, start, by_row, by_column, sums, stride)
                    else:
                        single(a_row, a_stride, b_panel, words, start, by_row, by_column, sums, stride)
                    if not whole:
                        finish_block(scratch, place, c_stride, height, width, factors + column, addends + column, multiplier, constants)
                    row += height

    return product
