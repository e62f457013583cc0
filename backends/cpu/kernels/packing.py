"""Copies that bring operands into the order in which register tiles read them: panels [depth][columns of a tile]."""

from __future__ import annotations

import functools

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mnnx.backends.cpu.kernels.vectors import I64, Loop, Vectors


@functools.cache
def make_pack_runs(lanes: int):
    """An intrinsic pack_runs(source, offsets, depth, runs, count, panel, panel_stride): one vector of each row of a panel.

    Row k of the panel (panel + k * panel_stride) gets, in its first `lanes` columns, `count` >= 1 runs of neighbouring floats: lanes from
    runs[r].lane on come from source + offsets[k] + runs[r].start + 4 * lane. `runs` is a table of (start, lane) words with rising
    lanes, the first 0. Whole vectors are read at every start, so `lanes` floats from there must be readable.
    """

    @intrinsic
    def pack_runs(typing, source, offsets, depth, runs, count, panel, panel_stride):
        def codegen(context, builder, signature, arguments):
            source, offsets, depth, runs, count, panel, panel_stride = arguments
            v = Vectors(builder, lanes, True)
            numbers = ir.Constant(ir.VectorType(I64, lanes), list(range(lanes)))

            def load_word(address, offset=0):
                return builder.load(v.at(address, offset, I64), align=8)

            def rows(more: int | None):
                """The loop over the panel's rows, for vectors of 1 + `more` runs (None: of `count`)."""
                with Loop(builder, depth) as loop:
                    k = loop.index
                    base = builder.add(source, load_word(offsets, builder.shl(k, v.index(3))))
                    vector = v.load(builder.add(base, load_word(runs)))
                    if more is None:
                        with Loop(builder, builder.sub(count, v.index(1)), [vector]) as runs_loop:
                            runs_loop.carry([select(base, builder.add(runs_loop.index, v.index(1)), runs_loop.values[0])])
                        vector = runs_loop.results[0]
                    elif more:
                        vector = select(base, v.index(1), vector)
                    v.store(vector, panel, builder.mul(k, panel_stride))

            def select(base, run, vector):
                entry = builder.add(runs, builder.shl(run, v.index(4)))
                later = builder.icmp_signed(">=", numbers, v.splat(load_word(entry, 8)))
                return builder.select(later, v.load(builder.add(base, load_word(entry))), vector)

            one, two, many, done = (builder.append_basic_block(name) for name in ("one", "two", "many", "done"))
            switch = builder.switch(count, many)
            switch.add_case(v.index(1), one)
            switch.add_case(v.index(2), two)
            for block, more in ((one, 0), (two, 1), (many, None)):
                builder.position_at_end(block)
                rows(more)
                builder.branch(done)
            builder.position_at_end(done)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), codegen

    return pack_runs


@functools.cache
def make_transpose(lanes: int):
    """An intrinsic transpose(source, source_stride, target, target_stride): a lanes × lanes block of floats, strides in bytes."""

    @intrinsic
    def transpose(typing, source, source_stride, target, target_stride):
        def codegen(context, builder, signature, arguments):
            source, source_stride, target, target_stride = arguments
            v = Vectors(builder, lanes, True)
            rows = [v.load(builder.add(source, builder.mul(source_stride, v.index(i)))) for i in range(lanes)]
            size = 1
            while size < lanes:  # swaps the off-diagonal blocks of size × size
                low = [i if not i & size else lanes + i - size for i in range(lanes)]
                high = [i + size if not i & size else lanes + i for i in range(lanes)]
                low, high = (ir.Constant(v.integers, mask) for mask in (low, high))
                for i in range(lanes):
                    if not i & size:
                        a, b = rows[i], rows[i + size]
                        rows[i], rows[i + size] = builder.shuffle_vector(a, b, low), builder.shuffle_vector(a, b, high)
                size *= 2
            for i, row in enumerate(rows):
                v.store(row, builder.add(target, builder.mul(target_stride, v.index(i))))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), codegen

    return transpose
