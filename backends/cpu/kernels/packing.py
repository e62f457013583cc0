"""Copies that bring operands into the order in which register tiles read them: panels [depth][columns of a tile]."""

from __future__ import annotations

import functools

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mnnx.backends.cpu.kernels.intrinsics import inlined
from mnnx.backends.cpu.kernels.vectors import F32, I8, I32, I64, Loop, Vectors


def _pieces(builder: ir.IRBuilder, count: ir.Value, lanes: int, piece) -> None:
    """Emits piece(lanes, start) for as many whole vectors as `count` has, then one of each smaller power of two that is left."""
    word = functools.partial(ir.Constant, I64)
    with Loop(builder, builder.ashr(count, word(lanes.bit_length() - 1))) as loop:
        piece(lanes, builder.mul(loop.index, word(lanes)))
    while lanes := lanes // 2:
        with builder.if_then(builder.icmp_signed("!=", builder.and_(count, word(lanes)), word(0))):
            piece(lanes, builder.and_(count, word(-2 * lanes)))


def interleaved(builder: ir.IRBuilder, vectors: list[ir.Value]) -> ir.Value:
    """The elements of 2ⁿ vectors as one: the first of each, the second of each, …"""
    while len(vectors) > 1:  # joins first and second half until one vector holds all
        count, half = vectors[0].type.count, len(vectors) // 2
        mask = ir.Constant(ir.VectorType(I32, 2 * count), [index for i in range(count) for index in (i, count + i)])
        vectors = [builder.shuffle_vector(low, high, mask) for low, high in zip(vectors[:half], vectors[half:], strict=True)]
    return vectors[0]


@functools.cache
def make_copy(lanes: int, stride: int, source_dtype: str = "float32"):
    """An intrinsic copy(source, target, count): target[i] = source[i * stride] for i < count, stride 1 or 2, count > 0.

    The target holds floats; the source holds floats, or int8s or uint8s. Reads nothing beyond the last element. With stride 2 a vector is
    the even half of two, which end one element after the last one that they serve: that is why the very last one is copied alone.
    """
    element, size = (F32, 4) if source_dtype == "float32" else (I8, 1)

    @intrinsic
    def copy(typing, source, target, count):
        def codegen(context, builder, signature, arguments):
            source, target, count = arguments
            v = Vectors(builder, lanes, False)

            def as_floats(values: ir.Value, kind: ir.Type) -> ir.Value:
                convert = {"float32": lambda x, kind: x, "uint8": builder.uitofp, "int8": builder.sitofp}[source_dtype]
                return convert(values, kind)

            def piece(width: int, start: ir.Value) -> None:
                kind, floats = ir.VectorType(element, width), ir.VectorType(F32, width)
                place = builder.add(source, builder.mul(start, v.index(size * stride)))
                parts = [builder.load(v.at(place, size * width * i, kind), align=size) for i in range(stride)]
                if stride == 2:
                    mask = ir.Constant(ir.VectorType(I32, width), [2 * i for i in range(width)])
                    parts = [builder.shuffle_vector(*parts, mask)]
                builder.store(as_floats(parts[0], floats), v.at(target, builder.shl(start, v.index(2)), floats), align=4)

            last = builder.sub(count, v.index(stride - 1))
            _pieces(builder, last, lanes, piece)
            if stride == 2:
                value = builder.load(v.at(source, builder.mul(last, v.index(2 * size)), element), align=size)
                builder.store(as_floats(value, F32), v.at(target, builder.shl(last, v.index(2)), F32), align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 3), codegen

    return copy


@functools.cache
def make_fill(lanes: int):
    """An intrinsic fill(target, count, value): `count` floats."""

    @intrinsic
    def fill(typing, target, count, value):
        def codegen(context, builder, signature, arguments):
            target, count, value = arguments

            def piece(width: int, start: ir.Value) -> None:
                v = Vectors(builder, width, False)
                v.store(v.splat(value), target, builder.shl(start, v.index(2)))

            _pieces(builder, count, lanes, piece)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.float32), codegen

    return fill


@functools.cache
def make_copy_block(lanes: int):
    """copy_block(source, source_stride, target, target_stride, rows, columns): floats; strides in bytes; columns > 0."""
    copy = make_copy(lanes, 1)

    @inlined
    def copy_block(source, source_stride, target, target_stride, rows, columns):
        for i in range(rows):
            copy(source + i * source_stride, target + i * target_stride, columns)

    return copy_block


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
