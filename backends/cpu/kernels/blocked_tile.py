"""The register tile of convolutions in the blocked layout, as LLVM IR: pixels × output channels, in registers over the whole depth.

Everything is float32; x and y have their channels in blocks of `lanes` (`backends/blocked.py`), x may also be plain.
"""

from __future__ import annotations

import functools

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from mnnx.backends.cpu.kernels.tile import add_residual
from mnnx.backends.cpu.kernels.vectors import I8, I32, I64, LINE, Loop, Vectors, activate


def prefetch(v: Vectors, address: ir.Value, offset: int) -> None:
    """Brings a line that will be read into the L2 cache."""
    kind = ir.FunctionType(ir.VoidType(), [I8.as_pointer(), I32, I32, I32])
    function = cgutils.get_or_insert_function(v.builder.module, kind, "llvm.prefetch.p0")
    v.builder.call(function, [v.at(address, offset, I8), *(ir.Constant(I32, n) for n in (0, 2, 1))])


@functools.cache
def make_blocked_tile(
    rows: int, vectors: int, lanes: int, fma: bool, kind: str, row_bytes: int, depth: int, run: int, edges: int = 0, across: int = 1
):
    """An intrinsic tile(x, places, count, masks, zeros, w, ahead, ahead_step, bias, y, y_stride, residual, parameters).

        y[j][i] = activation(bias[j] + sum for k < depth * count of x[places[k / run] + i * row_bytes + k % run] * w[k][j] + residual[j][i])

    for `rows` pixels i, which lie row_bytes apart in x and `across` pixels apart in y and the residual, and `vectors` vectors j of output
    channels, which lie y_stride bytes apart there. places: table of byte offsets, each of `run` floats; a step does `depth` of the k.
    w: [k][vectors * lanes] floats; bias: a float per output channel; residual: 0 for none; parameters: the address of two floats
    (`blocks.epilogue`). kind "": the bare sums, without bias and residual. With `edges`, that many first and last rows can lie outside the
    image: where bit i of masks[k / run] is set, row i reads zeros (`run` floats from there). Every step prefetches some lines, a quarter of
    what it takes of w, from ahead on, the next one ahead_step bytes further.
    """

    def row_starts(v, x, places, masks, zeros, entry):
        """Where the rows begin, as addresses and offsets, for an entry of the table."""
        builder = v.builder
        base = builder.add(x, builder.load(v.at(places, entry, I64), align=8))
        starts = [(base, i * row_bytes) for i in range(rows)]
        if edges:
            mask = builder.load(v.at(masks, entry, I64), align=8)
            for i in range(rows):
                if i < edges or i >= rows - edges:
                    outside = builder.icmp_signed("!=", builder.and_(mask, v.index(1 << i)), v.index(0))
                    starts[i] = builder.select(outside, zeros, builder.add(base, v.index(i * row_bytes))), 0
        return starts

    @intrinsic
    def tile(typing, x, places, count, masks, zeros, w, ahead, ahead_step, bias, y, y_stride, residual, parameters):
        def codegen(context, builder, signature, arguments):
            x, places, count, masks, zeros, w, ahead, ahead_step, bias, y, y_stride, residual, parameters = arguments
            v = Vectors(builder, lanes, fma)
            step = 4 * lanes
            first = [v.load(bias, step * j) if kind else v.constant(0) for _ in range(rows) for j in range(vectors)]
            with Loop(builder, count, [*first, w]) as loop:
                *sums, weights = loop.values
                soon = builder.add(ahead, builder.mul(loop.index, ahead_step))
                for k in range(0, max(LINE, depth * vectors * step // 4), LINE):
                    prefetch(v, soon, k)
                wide = lanes == 4 and run % lanes == 0  # vectors of so few lanes are loaded whole: any lane can be spread out of them
                for k in range(depth):
                    columns = [v.load(weights, (k * vectors + j) * step) for j in range(vectors)]
                    if k % run == 0:
                        index = builder.add(builder.mul(loop.index, v.index(depth // run)), v.index(k // run))
                        starts = row_starts(v, x, places, masks, zeros, builder.shl(index, v.index(3)))
                    if wide and k % lanes == 0:
                        pixels = [v.load(start, offset + 4 * (k % run)) for start, offset in starts]
                    for i, (start, offset) in enumerate(starts):
                        factor = v.spread(pixels[i], k % lanes) if wide else v.load_splat(start, offset + 4 * (k % run))
                        for j in range(vectors):
                            sums[i * vectors + j] = v.fma(factor, columns[j], sums[i * vectors + j])
                loop.carry([*sums, builder.add(weights, v.index(depth * vectors * step))])
            offsets = [
                builder.add(builder.mul(y_stride, v.index(j)), v.index(step * across * i)) for i in range(rows) for j in range(vectors)
            ]  # fmt: skip
            totals = loop.results[: rows * vectors]
            if kind:
                totals, p, q = add_residual(v, totals, residual, offsets), v.load_splat(parameters), v.load_splat(parameters, 4)
            for total, offset in zip(totals, offsets, strict=True):
                v.store(activate(v, kind, total, p, q) if kind else total, y, offset)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 13), codegen

    return tile


@functools.cache
def make_depthwise_tile(columns: int, taps: int, stride: int, dilation: int, left: int, right: int, lanes: int, fma: bool, kind: str):
    """An intrinsic tile(x, row_bytes, count, w, bias, y, residual, parameters): windows over `lanes` channels of their own.

        y[i] = activation(bias + sum over rows r < count and taps t of x[r * row_bytes][i * stride + t * dilation] * w[r][t] + residual[i])

    for `columns` neighbouring pixels i, all of them vectors. The first `left` and the last `right` columns of the source that the windows
    cover are padding: they count as zeros and are not read.
    """
    last = (columns - 1) * stride + (taps - 1) * dilation
    inside = [[t for t in range(taps) if left <= i * stride + t * dilation <= last - right] for i in range(columns)]

    @intrinsic
    def tile(typing, x, row_bytes, count, w, bias, y, residual, parameters):
        def codegen(context, builder, signature, arguments):
            x, row_bytes, count, w, bias, y, residual, parameters = arguments
            v = Vectors(builder, lanes, fma)
            step = 4 * lanes
            with Loop(builder, count, [*[v.load(bias)] * columns, x, w]) as loop:
                *sums, row, weights = loop.values
                factors = [v.load(weights, step * t) for t in range(taps)]
                for i in range(columns):
                    for t in inside[i]:
                        sums[i] = v.fma(factors[t], v.load(row, step * (i * stride + t * dilation)), sums[i])
                loop.carry([*sums, builder.add(row, row_bytes), builder.add(weights, v.index(step * taps))])
            offsets = [v.index(step * i) for i in range(columns)]
            totals = add_residual(v, loop.results[:columns], residual, offsets)
            p, q = v.load_splat(parameters), v.load_splat(parameters, 4)
            for total, offset in zip(totals, offsets, strict=True):
                v.store(activate(v, kind, total, p, q), y, offset)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 8), codegen

    return tile
