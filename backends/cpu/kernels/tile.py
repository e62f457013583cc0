"""The register tile: the inner loop of every product of matrices, as LLVM IR.

    c[i][j] = activation(bias + sum over k of a[i][k] * b[k][j] + residual[i][j])

for `rows` rows and `vectors` vectors of columns, all in registers over the whole depth. Everything is float32.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mnnx.backends.cpu.kernels.vectors import I64, Loop, Vectors, activate

#: How far ahead packed weights are asked for, in bytes: they often come from main memory.
_AHEAD = 2048


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
            starts = [a if panel_rows else builder.add(a, builder.mul(a_stride, v.index(i))) for i in range(rows)]
            first = [v.load_splat(bias, 4 * i) if bias_by == "row" else v.load(bias, step * j) for i in range(rows) for j in range(vectors)]
            with Loop(builder, depth, [*first, v.index(0), b]) as loop:
                *sums, a_offset, b_row = loop.values
                columns = [v.load(b_row, step * j) for j in range(vectors)]
                nexts = []
                if panel_rows:
                    v.prefetch(builder.add(a, a_offset), _AHEAD)
                else:
                    for j in range(vectors):
                        v.prefetch(b_row, _AHEAD + step * j)
                for i in range(rows):
                    place = (builder.add(a, a_offset), 4 * i) if panel_rows else (starts[i], a_offset)
                    factor = v.load_splat(*place)
                    nexts += [v.fma(factor, columns[j], sums[i * vectors + j]) for j in range(vectors)]
                loop.carry([*nexts, builder.add(a_offset, v.index(4 * (panel_rows or 1))), builder.add(b_row, b_stride)])
            totals = add_residual(
                v,
                loop.results[: rows * vectors],
                residual,
                [builder.add(builder.mul(residual_stride, v.index(i)), v.index(step * j)) for i in range(rows) for j in range(vectors)],
            )
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
