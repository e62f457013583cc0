"""Products of matrices of bytes, summed exactly in int32s.

Operands lie in memory as 32-bit words of 4 bytes (or 2 int16s), neighbours along the depth, so that a tile goes word by word as the
float32 tile goes float by float. `mode` is how a word is multiplied:

    vnni     4 bytes, one operand unsigned and the other signed: AVX512-VNNI, AVX-VNNI
    dotprod  4 bytes, both signed: Arm's dot product
    madd     2 int16s: x86
    pairs    2 int16s: everywhere

Bytes are shifted to the signedness that the mode wants (`flip`), and their zero points with them; what the shifted zero points add to
the sums is taken off at the end: the sum of (a - za)(b - zb) is that of ab, less za times b's sum, less zb times (a's sum - depth za).
"""

from __future__ import annotations

import functools

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from mnnx.backends.cpu.kernels.dot_words import DotRows
from mnnx.backends.cpu.kernels.intrinsics import inlined, load_u8, share, store_i32, store_u8
from mnnx.backends.cpu.kernels.registry import kernel_factory
from mnnx.backends.cpu.kernels.tile import Left, row_starts, sum_products
from mnnx.backends.cpu.kernels.vectors import I8, I16, I32, I64, Loop, Vectors, load_words

_rows = load_words(len(DotRows._fields))


def group_of(mode: str) -> int:
    """Elements in a word."""
    return 2 if mode in ("madd", "pairs") else 4


_MADD = {4: "llvm.x86.sse2.pmadd.wd", 8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}


def dot_words(v: Vectors, mode: str, sums, unsigned, signed):
    """sums + the products of the words' elements; `unsigned` is the operand that vnni takes as unsigned."""
    builder, lanes = v.builder, v.lanes
    if group_of(mode) == 2:
        halves = ir.VectorType(I16, 2 * lanes)
        parts = [builder.bitcast(operand, halves) for operand in (unsigned, signed)]
        if mode == "madd":
            madd = cgutils.get_or_insert_function(builder.module, ir.FunctionType(v.integers, [halves, halves]), _MADD[lanes])
            return builder.add(sums, builder.call(madd, parts))
        for start in (0, 1):
            mask = ir.Constant(v.integers, [2 * i + start for i in range(lanes)])
            a, b = (builder.sext(builder.shuffle_vector(part, part, mask), v.integers) for part in parts)
            sums = builder.add(sums, builder.mul(a, b))
        return sums
    name = "llvm.aarch64.neon.sdot.v4i32.v16i8" if mode == "dotprod" else f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"
    operand = ir.VectorType(I8, 4 * lanes) if mode == "dotprod" or binding.llvm_version_info[0] >= 22 else v.integers
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(v.integers, [v.integers, operand, operand]), name)
    return builder.call(function, [sums, builder.bitcast(unsigned, operand), builder.bitcast(signed, operand)])


@functools.cache
def make_dot_tile(rows: int, vectors: int, lanes: int, mode: str, panel_rows: int = 0):
    """An intrinsic tile(a, a_stride, b, depth, start, row_factors, column_factors, c, c_stride), all int32s.

    c[i][j] = start + the sum over `depth` words + row_factors[i] * column_factors[j] (row_factors 0: nothing). With `panel_rows` a is a
    panel [depth][panel_rows] of signed words, b unsigned, and start has one value per row; else a is rows of unsigned words, b signed,
    and start has one value per column.
    """

    @intrinsic
    def tile(typing, a, a_stride, b, depth, start, row_factors, column_factors, c, c_stride):
        def codegen(context, builder, signature, arguments):
            a, a_stride, b, depth, start, row_factors, column_factors, c, c_stride = arguments
            v = Vectors(builder, lanes, False)
            step = 4 * lanes

            def load(address, offset):
                return builder.load(v.at(address, offset, v.integers), align=4)

            def load_splat(address, offset):
                return v.splat(builder.load(v.at(address, offset, I32), align=4))

            by_lane = mode == "dotprod"

            def multiply_add(total, element, vector):
                return dot_words(v, mode, total, *((vector, element) if panel_rows or by_lane else (element, vector)))

            first = [load_splat(start, 4 * i) if panel_rows else load(start, step * j) for i in range(rows) for j in range(vectors)]
            left = Left(row_starts(v, a, a_stride, 1 if panel_rows else rows), panel_rows, by_lane, align=4 if panel_rows else 1)
            totals = sum_products(v, left, b, v.index(step * vectors), depth, first, multiply_add, prefetch=not panel_rows)
            entry, factored, after = builder.block, builder.append_basic_block("factored"), builder.append_basic_block("sums")
            builder.cbranch(builder.icmp_signed("!=", row_factors, v.index(0)), factored, after)
            builder.position_at_end(factored)
            by_row, by_column = (
                [load_splat(row_factors, 4 * i) for i in range(rows)],
                [load(column_factors, step * j) for j in range(vectors)],
            )
            sums = [builder.add(t, builder.mul(by_row[n // vectors], by_column[n % vectors])) for n, t in enumerate(totals)]
            builder.branch(after)
            builder.position_at_end(after)
            for n, (total, sum_) in enumerate(zip(totals, sums, strict=True)):
                result = builder.phi(v.integers)
                result.add_incoming(total, entry)
                result.add_incoming(sum_, factored)
                totals[n] = result
            for n, total in enumerate(totals):
                place = builder.add(c, builder.mul(c_stride, v.index(n // vectors)))
                builder.store(total, v.at(place, step * (n % vectors), v.integers), align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 9), codegen

    return tile


@inlined
def shifted_zero(zero, signed, flip):
    """The zero point at `zero` (0: none) as it is among shifted bytes. Bytes are `signed` before a `flip` by 128 changes that."""
    value = load_u8(zero) if zero != 0 else 0
    if signed != 0 and value >= 128:
        value -= 256
    if flip != 0:
        value += 128 if signed != 0 else -128
    return value


def shift(builder: ir.IRBuilder, value: ir.Value, signed: ir.Value, flip: ir.Value, mode: str) -> ir.Value:
    """A vector of bytes as elements of words: with the upper bit flipped, or widened to int16s."""
    if group_of(mode) == 4:
        bits = builder.trunc(builder.shl(flip, ir.Constant(I64, 7)), I8)
        lanes = value.type.count
        flips = Vectors(builder, lanes, False).splat(bits)
        return builder.xor(value, flips)
    wide = ir.VectorType(I16, value.type.count)
    return builder.select(builder.icmp_signed("!=", signed, ir.Constant(I64, 0)), builder.sext(value, wide), builder.zext(value, wide))


@functools.cache
def make_shift_row(lanes: int, mode: str, dense: bool = True):
    """An intrinsic shift_row(source, target, count, step, signed, flip): the bytes source[i * step] as elements of words.

    `dense`: step is 1, and whole vectors are read.
    """
    size = 4 // group_of(mode)

    @intrinsic
    def shift_row(typing, source, target, count, step, signed, flip):
        def codegen(context, builder, signature, arguments):
            source, target, count, step, signed, flip = arguments

            def piece(width: int, index: ir.Value) -> None:
                v = Vectors(builder, width, False)
                value = builder.load(v.at(source, builder.mul(index, step), ir.VectorType(I8, width)), align=1)
                value = shift(builder, value, signed, flip, mode)
                builder.store(value, v.at(target, builder.mul(index, ir.Constant(I64, size)), value.type), align=size)

            width = 4 * lanes if dense else 1
            whole = builder.ashr(count, ir.Constant(I64, width.bit_length() - 1))
            with Loop(builder, whole) as loop:
                piece(width, builder.mul(loop.index, ir.Constant(I64, width)))
            while width := width // 2:
                with builder.if_then(builder.icmp_signed("!=", builder.and_(count, ir.Constant(I64, width)), ir.Constant(I64, 0))):
                    piece(width, builder.and_(count, ir.Constant(I64, -2 * width)))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), codegen

    return shift_row


@functools.cache
def _make_sum(lanes: int, mode: str):
    """An intrinsic sum_row(row, words) → int32: the sum of the elements of words, as the left operand's are taken."""

    @intrinsic
    def sum_row(typing, row, words):
        def codegen(context, builder, signature, arguments):
            row, words = arguments
            done, total = ir.Constant(I64, 0), ir.Constant(I32, 0)
            for width in (lanes, 4):
                v = Vectors(builder, width, False)
                ones = v.integer(0x00010001 if group_of(mode) == 2 else 0x01010101)
                pieces = builder.sdiv(builder.sub(words, done), v.index(width))
                with Loop(builder, pieces, [v.integer(0)]) as loop:
                    index = builder.add(done, builder.mul(loop.index, v.index(width)))
                    word = builder.load(v.at(row, builder.shl(index, v.index(2)), v.integers), align=4)
                    loop.carry([dot_words(v, mode, loop.values[0], word, ones)])
                for lane in range(width):
                    total = builder.add(total, builder.extract_element(loop.results[0], v.index(lane)))
                done = builder.add(done, builder.mul(pieces, v.index(width)))
            return total

        return types.int32(types.int64, types.int64), codegen

    return sum_row


@kernel_factory("dot.rows")
def make_rows(lanes, mode):
    """The rows of the left operand as words, in fours, and the sums of their elements. Argument block: DotRows. Chunks: ranges of rows."""
    shift_row, sum_row, size = make_shift_row(lanes, mode), _make_sum(lanes, mode), 4 // group_of(mode)

    def rows(args, part, parts):
        source, target, sums, count, depth, row_bytes, signed, flip = _rows(args)
        first, last = share(count, part, parts, 1)
        for row in range(first, last):
            place = target + row * row_bytes
            shift_row(source + row * depth, place, depth, 1, signed, flip)
            for i in range(depth * size, row_bytes):
                store_u8(place + i, 0)
            store_i32(sums + 4 * row, sum_row(place, row_bytes // 4))

    return rows
