"""The register tile: the inner loop of every product of matrices, as LLVM IR.

    c[i][j] = activation(bias + sum over k of a[i][k] * b[k][j] + residual[i][j])

for `rows` rows and `vectors` vectors of columns, all in registers over the whole depth. Everything is float32.
"""

from __future__ import annotations

import functools

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mnnx.backends.cpu.kernels.vectors import F32, I64, Vectors, activate


@functools.cache
def make_tile(rows: int, vectors: int, lanes: int, fma: bool, kind: str, panel_rows: int = 0, bias_by: str = "column"):
    """An intrinsic tile(a, a_stride, b, b_stride, depth, bias, c, c_stride, residual, residual_stride, parameters).

    a: with `panel_rows` a panel [depth][panel_rows] (a_stride unused), else rows of `depth` floats, a_stride bytes apart.
    b: rows k of vectors * lanes floats, b_stride bytes apart. bias: floats, one per row or one per column (`bias_by`).
    residual: address of the first of `rows` rows, residual_stride bytes apart, or 0. parameters: the address of two floats
    (`epilogue_parameters`). c and residual may be the same memory.
    """

    @intrinsic
    def tile(typing, a, a_stride, b, b_stride, depth, bias, c, c_stride, residual, residual_stride, parameters):
        def codegen(context, builder, signature, arguments):
            a, a_stride, b, b_stride, depth, bias, c, c_stride, residual, residual_stride, parameters = arguments
            v = Vectors(builder, lanes, fma)
            step = 4 * lanes
            starts = [a if panel_rows else builder.add(a, builder.mul(a_stride, v.index(i))) for i in range(rows)]
            first = [
                [v.load_splat(bias, 4 * i) if bias_by == "row" else v.load(bias, step * j) for j in range(vectors)] for i in range(rows)
            ]
            entry = builder.block
            loop, end, after = (builder.append_basic_block(name) for name in ("depth", "depth.end", "sum"))
            builder.cbranch(builder.icmp_signed(">", depth, v.index(0)), loop, end)

            builder.position_at_end(loop)
            k, a_offset, b_row = builder.phi(I64), builder.phi(I64), builder.phi(I64)
            sums = [[builder.phi(v.type) for _ in range(vectors)] for _ in range(rows)]
            columns = [v.load(b_row, step * j) for j in range(vectors)]
            nexts = []
            for i in range(rows):
                if panel_rows:
                    factor = v.load_splat(builder.add(a, a_offset), 4 * i)
                else:
                    factor = v.load_splat(starts[i], a_offset)
                nexts.append([v.fma(factor, columns[j], sums[i][j]) for j in range(vectors)])
            following = builder.add(k, v.index(1))
            a_step = v.index(4 * (panel_rows or 1))
            for phi, start, value in (
                (k, v.index(0), following),
                (a_offset, v.index(0), builder.add(a_offset, a_step)),
                (b_row, b, builder.add(b_row, b_stride)),
            ):
                phi.add_incoming(start, entry)
                phi.add_incoming(value, builder.block)
            for i in range(rows):
                for j in range(vectors):
                    sums[i][j].add_incoming(first[i][j], entry)
                    sums[i][j].add_incoming(nexts[i][j], builder.block)
            builder.cbranch(builder.icmp_signed("<", following, depth), loop, end)

            builder.position_at_end(end)
            totals = _merge(builder, v.type, [(first, entry), (nexts, loop)])
            with_residual = builder.append_basic_block("residual")
            builder.cbranch(builder.icmp_signed("!=", residual, v.index(0)), with_residual, after)
            builder.position_at_end(with_residual)
            added = []
            for i in range(rows):
                row = builder.add(residual, builder.mul(residual_stride, v.index(i)))
                added.append([builder.fadd(totals[i][j], v.load(row, step * j)) for j in range(vectors)])
            builder.branch(after)

            builder.position_at_end(after)
            totals = _merge(builder, v.type, [(totals, end), (added, with_residual)])
            p, q = v.load_splat(parameters), v.load_splat(parameters, 4)
            for i in range(rows):
                row = builder.add(c, builder.mul(c_stride, v.index(i)))
                for j in range(vectors):
                    v.store(activate(v, kind, totals[i][j], p, q), row, step * j)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 11), codegen

    return tile


def _merge(builder: ir.IRBuilder, llvm_type: ir.Type, sources: list) -> list:
    """Phi nodes that choose between grids of values by the block that control comes from."""
    grid = []
    for i in range(len(sources[0][0])):
        grid.append([])
        for j in range(len(sources[0][0][0])):
            phi = builder.phi(llvm_type)
            for values, block in sources:
                phi.add_incoming(values[i][j], block)
            grid[-1].append(phi)
    return grid
