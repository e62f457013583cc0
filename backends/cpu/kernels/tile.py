"""The register tile: the inner loop of every product of matrices, as LLVM IR.

    c[i][j] = activation(bias + sum over k of a[i][k] * b[k][j] + residual[i][j])

for `rows` rows and `vectors` vectors of columns, all in registers over the whole depth. Everything is float32; the loop alone,
`sum_products`, also serves words of bytes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mnnx.backends.cpu.kernels.vectors import I64, LINE, Loop, Vectors, activate
from mnnx.schema.records import Row

#: How far ahead packed weights are asked for, in bytes: they often come from main memory.
_AHEAD = 2048
#: How many k go together where the elements of a are lanes of vectors.
_BY_LANE = 8
#: How many sums a CPU adds to before the first can be added to again: it starts two additions in a cycle, and each takes four.
_IN_FLIGHT = 8


class Left(Row):
    """The left operand of a tile, 32-bit words: rows that begin at `starts`, or a panel [depth][panel_rows] that begins at the only start.

    `by_lane`: the target multiplies vectors by a lane of a vector, as NEON does, so that words are loaded by the vector.
    """

    starts: Sequence[ir.Value]
    panel_rows: int = 0
    by_lane: bool = False
    align: int = 4


def row_starts(v: Vectors, a: ir.Value, stride: ir.Value, rows: int) -> list[ir.Value]:
    """The addresses of rows that lie `stride` bytes apart."""
    return [v.builder.add(a, v.builder.mul(stride, v.index(i))) for i in range(rows)]


def sum_products(
    v: Vectors,
    left: Left,
    b: ir.Value,
    b_stride: ir.Value,
    depth: ir.Value,
    first: Sequence[ir.Value],
    multiply_add: Callable[[ir.Value, ir.Value, ir.Value], ir.Value],
    sets: int = 1,
    prefetch: bool = True,
) -> list[ir.Value]:
    """Emits the loop over the depth: first[i][j] + the sum over k of a[i][k] * b[k][j], vectors of floats or of int32s.

    b: rows k of as many vectors as `first` has for a row of a, b_stride bytes apart. multiply_add(total, element of a in all lanes, vector
    of b) → total. `sets`, a power of two: so many sums, each of every so-manyth k, make one, as few alone would wait for one another.
    `prefetch`: asks ahead for a if it is a panel, else for b. Nothing is read beyond the operands.
    """
    builder, lanes, kind, panel_rows, starts = v.builder, v.lanes, first[0].type, left.panel_rows, left.starts
    rows, step, count = panel_rows or len(starts), 4 * lanes, len(first)
    vectors = count // rows

    def advance(values: Sequence[ir.Value], depths: int, whole: bool) -> list[ir.Value]:
        """The carried values, `depths` further. `whole`: the words of a that these take fill vectors."""
        *sums, a_offset, b_start = values
        pieces: dict[int, ir.Value] = {}

        def element(i: int, k: int) -> ir.Value:
            line, index = (0, k * panel_rows + i) if panel_rows else (i, k)
            lane = index % lanes if whole else 0
            if lane == 0:
                if panel_rows:
                    place = builder.add(starts[0], a_offset), 4 * index
                else:
                    place = starts[i], builder.add(a_offset, v.index(4 * k)) if k else a_offset
                pieces[line] = builder.load(v.at(*place, kind if whole else kind.element), align=left.align)
            return v.spread(pieces[line], lane) if whole else v.splat(pieces[line])

        for k in range(depths):
            b_row = builder.add(b_start, builder.mul(b_stride, v.index(k)))
            columns = [builder.load(v.at(b_row, step * j, kind), align=4) for j in range(vectors)]
            if prefetch and panel_rows:
                v.prefetch(builder.add(starts[0], a_offset), _AHEAD + 4 * k * panel_rows)
            elif prefetch:
                for j in range(vectors):
                    if (k * vectors + j) * step % LINE == 0:
                        v.prefetch(b_row, _AHEAD + step * j)
            for i in range(rows):
                factor = element(i, k)
                for j in range(vectors):
                    index = (k * count + i * vectors + j) % len(sums)
                    sums[index] = multiply_add(sums[index], factor, columns[j])
        a_offset = builder.add(a_offset, v.index(4 * depths * (panel_rows or 1)))
        return [*sums, a_offset, builder.add(b_start, builder.mul(b_stride, v.index(depths)))]

    together = _BY_LANE if left.by_lane else sets
    state = [*first, v.index(0), b]
    if together > 1:
        zeros = [ir.Constant(kind, None)] * (count * (sets - 1))
        with Loop(builder, builder.sdiv(depth, v.index(together)), [*first, *zeros, *state[count:]]) as loop:
            loop.carry(advance(loop.values, together, left.by_lane))
        *sums, a_offset, b_start = loop.results
        add = builder.fadd if kind == v.type else builder.add
        while len(sums) > count:
            half = len(sums) // 2
            sums = [add(x, y) for x, y in zip(sums[:half], sums[half:], strict=True)]
        state, depth = [*sums, a_offset, b_start], builder.srem(depth, v.index(together))
    with Loop(builder, depth, state) as loop:
        loop.carry(advance(loop.values, 1, left.by_lane and panel_rows > 0 and panel_rows % lanes == 0))
    return loop.results[:count]


@functools.cache
def make_tile(rows: int, vectors: int, lanes: int, fma: bool, kind: str, panel_rows: int = 0, bias_by: str = "column"):
    """An intrinsic tile(a, a_stride, b, b_stride, depth, bias, c, c_stride, residual, residual_stride, parameters).

    a: with `panel_rows` a panel [depth][panel_rows] (a_stride unused), else rows of `depth` floats, a_stride bytes apart.
    b: rows k of vectors * lanes floats, b_stride bytes apart. bias: floats, one per row or one per column (`bias_by`).
    residual: address of the first of `rows` rows, residual_stride bytes apart, or 0. parameters: the address of two floats
    (`blocks.epilogue`). c and residual may be the same memory.
    """

    @intrinsic
    def tile(typing, a, a_stride, b, b_stride, depth, bias, c, c_stride, residual, residual_stride, parameters):
        def codegen(context, builder, signature, arguments):
            a, a_stride, b, b_stride, depth, bias, c, c_stride, residual, residual_stride, parameters = arguments
            v = Vectors(builder, lanes, fma)
            step = 4 * lanes
            first = [v.load_splat(bias, 4 * i) if bias_by == "row" else v.load(bias, step * j) for i in range(rows) for j in range(vectors)]
            left = Left(row_starts(v, a, a_stride, 1 if panel_rows else rows), panel_rows, v.multiplies_by_lane)
            sets = max(1, _IN_FLIGHT // len(first)) if left.by_lane else 1
            sums = sum_products(v, left, b, b_stride, depth, first, lambda total, x, y: v.fma(x, y, total), sets=sets)
            offsets = [
                builder.add(builder.mul(residual_stride, v.index(i)), v.index(step * j)) for i in range(rows) for j in range(vectors)
            ]
            totals = add_residual(v, sums, residual, offsets)
            p, q = v.load_splat(parameters), v.load_splat(parameters, 4)
            for i in range(rows):
                row = builder.add(c, builder.mul(c_stride, v.index(i)))
                for j in range(vectors):
                    v.store(activate(v, kind, totals[i * vectors + j], p, q), row, step * j)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 11), codegen

    return tile


def add_residual(v: Vectors, totals: Sequence[ir.Value], residual: ir.Value, offsets: Sequence[ir.Value]) -> list[ir.Value]:
    """totals[i] plus the vector at residual + offsets[i], or just the totals where the address `residual` is 0."""
    builder = v.builder
    entry, with_residual, after = builder.block, builder.append_basic_block("residual"), builder.append_basic_block("no_residual")
    builder.cbranch(builder.icmp_signed("!=", residual, v.index(0)), with_residual, after)
    builder.position_at_end(with_residual)
    sums = [builder.fadd(total, v.load(residual, offset)) for total, offset in zip(totals, offsets, strict=True)]
    builder.branch(after)
    builder.position_at_end(after)
    merged = [builder.phi(v.type) for _ in totals]
    for phi, total, sum_ in zip(merged, totals, sums, strict=True):
        phi.add_incoming(total, entry)
        phi.add_incoming(sum_, with_residual)
    return merged


@functools.cache
def make_finish(lanes: int, fma: bool, kind: str):
    """An intrinsic finish(row, residual, count, parameters): row[i] = activation(row[i] + residual[i]) for i < count; residual 0: none."""

    @intrinsic
    def finish(typing, row, residual, count, parameters):
        def codegen(context, builder, signature, arguments):
            row, residual, count, parameters = arguments
            done = ir.Constant(I64, 0)
            for width in (lanes, 1):
                v = Vectors(builder, width, fma)
                p, q = v.load_splat(parameters), v.load_splat(parameters, 4)
                left = builder.sdiv(builder.sub(count, done), v.index(width))
                with Loop(builder, left) as loop:
                    offset = builder.shl(builder.add(done, builder.mul(loop.index, v.index(width))), v.index(2))
                    (total,) = add_residual(v, [v.load(row, offset)], residual, [offset])
                    v.store(activate(v, kind, total, p, q), row, offset)
                done = builder.add(done, builder.mul(left, v.index(width)))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), codegen

    return finish
