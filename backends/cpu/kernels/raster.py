"""Copies between dense tensors: the regions of a Raster (`schema/ops/raster.py`), as runs, fills, strided copies and transposes."""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mnnx.backends.cpu.kernels.intrinsics import I32, at, load_i64, load_in, pointer_to, quotient, share, store_out
from mnnx.backends.cpu.kernels.registry import kernel_factory

RUN, FILL, STRIDED, TRANSPOSED = range(4)


def transpose_tile(element: int, lanes: int):
    """An intrinsic (source, source_stride, target, target_stride): target[j][i] = source[i][j] for i, j < lanes; strides are those of
    the rows of `lanes` elements side by side."""
    vector = ir.VectorType(ir.IntType(8 * element), lanes)

    def zipped(builder, a, b, start):
        order = [index for i in range(start, start + lanes // 2) for index in (i, lanes + i)]
        return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, lanes), order))

    @intrinsic
    def transpose(typing, source, source_stride, target, target_stride):
        def codegen(context, builder, signature, arguments):
            source, source_stride, target, target_stride = arguments
            rows = []
            for _ in range(lanes):
                rows.append(builder.load(at(builder, source, vector), align=element))
                source = builder.add(source, source_stride)
            half = lanes // 2
            for _ in range(lanes.bit_length() - 1):
                rows = [zipped(builder, rows[i], rows[i + half], start) for i in range(half) for start in (0, half)]
            for row in rows:
                builder.store(row, at(builder, target, vector), align=element)
                target = builder.add(target, target_stride)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), codegen

    return transpose


@kernel_factory("raster")
def make(element: int, lanes: int):
    """Runs regions whose elements have `element` bytes; `lanes` is the side of a transposed tile.

    Arguments: items, regions, then the addresses of their descriptors. A descriptor: first item, kind, source, target,
    block and count of the middle dim, its strides in source and target; the same four of the inner dim; outer dims, and for each
    (innermost first) its count and strides. Strides count bytes. An item is one block of middle × inner of one outer index.
    """
    pointer = pointer_to({1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}[element])
    transpose = transpose_tile(element, lanes)

    def run(args, part, parts):
        item, last = share(load_i64(args), part, parts, 1)
        region = 0
        while item < last:
            while region + 1 < load_i64(args + 8) and load_i64(load_i64(args + 24 + 8 * region)) <= item:
                region += 1
            d = load_i64(args + 16 + 8 * region)
            kind, source, target = load_i64(d + 8), load_i64(d + 16), load_i64(d + 24)
            rows_block, rows, row_in, row_out = load_i64(d + 32), load_i64(d + 40), load_i64(d + 48), load_i64(d + 56)
            block, count, step_in, step_out = load_i64(d + 64), load_i64(d + 72), load_i64(d + 80), load_i64(d + 88)
            rest = item - load_i64(d)
            blocks, row_blocks = quotient(count + block - 1, block), quotient(rows + rows_block - 1, rows_block)
            upper = quotient(rest, blocks)
            first = (rest - upper * blocks) * block
            rest = quotient(upper, row_blocks)
            first_row = (upper - rest * row_blocks) * rows_block
            n, m = min(block, count - first), min(rows_block, rows - first_row)
            source += first * step_in + first_row * row_in
            target += first * step_out + first_row * row_out
            for k in range(load_i64(d + 96)):
                dim = d + 104 + 24 * k
                upper = quotient(rest, load_i64(dim))
                index = rest - upper * load_i64(dim)
                rest = upper
                source += index * load_i64(dim + 8)
                target += index * load_i64(dim + 16)
            if kind == RUN:
                for j in range(m):
                    x, y = pointer(source + j * row_in), pointer(target + j * row_out)
                    for i in range(n):
                        store_out(y, i, load_in(x, i))
            elif kind == FILL:
                for j in range(m):
                    value, y = load_in(pointer(source + j * row_in), 0), pointer(target + j * row_out)
                    for i in range(n):
                        store_out(y, i, value)
            elif kind == STRIDED:
                for j in range(m):
                    x, y = source + j * row_in, target + j * row_out
                    for i in range(n):
                        store_out(pointer(y + i * step_out), 0, load_in(pointer(x + i * step_in), 0))
            else:
                i = 0
                while i + lanes <= n:
                    j = 0
                    while j + lanes <= m:
                        transpose(source + i * step_in + j * element, step_in, target + i * element + j * row_out, row_out)
                        j += lanes
                    while j < m:
                        x, y = source + i * step_in + j * element, pointer(target + i * element + j * row_out)
                        for k in range(lanes):
                            store_out(y, k, load_in(pointer(x + k * step_in), 0))
                        j += 1
                    i += lanes
                while i < n:
                    x, y = pointer(source + i * step_in), target + i * element
                    for j in range(m):
                        store_out(pointer(y + j * row_out), 0, load_in(x, j))
                    i += 1
            item += 1

    return run
