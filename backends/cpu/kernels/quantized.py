"""Between float32 and integers of 8, 16 or 32 bits: quantize, dequantize, requantize, and the range of dynamic quantization."""

from __future__ import annotations

import functools

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mnnx.backends.cpu.kernels.blocks import DynamicRange, Linear
from mnnx.backends.cpu.kernels.intrinsics import inlined, load_f32, share, store_f32, store_u8
from mnnx.backends.cpu.kernels.registry import kernel_factory
from mnnx.backends.cpu.kernels.vectors import I64, Loop, Vectors, load_words

_linear, _range = load_words(len(Linear._fields)), load_words(len(DynamicRange._fields))


def _integers(dtype: str, lanes: int) -> ir.VectorType:
    return ir.VectorType(ir.IntType(8 * np.dtype(dtype).itemsize), lanes)


def elements(builder: ir.IRBuilder, count: ir.Value, lanes: int, emit) -> None:
    """emit(v, index) for whole vectors of elements from 0 on, then for single ones up to `count`."""
    done = ir.Constant(I64, 0)
    for width in (lanes, 1):
        v = Vectors(builder, width, False)
        pieces = builder.sdiv(builder.sub(count, done), v.index(width))
        with Loop(builder, pieces) as loop:
            emit(v, builder.add(done, builder.mul(loop.index, v.index(width))))
        done = builder.add(done, builder.mul(pieces, v.index(width)))


def _read_integers(v: Vectors, dtype: str, address: ir.Value, index: ir.Value, scalar: bool = False) -> ir.Value:
    """Elements (or one for all lanes) of an integer dtype, as int32s (of int32 as they are)."""
    size = np.dtype(dtype).itemsize
    kind = ir.IntType(8 * size) if scalar else _integers(dtype, v.lanes)
    value = v.builder.load(v.at(address, v.builder.mul(index, v.index(size)), kind), align=size)
    value = v.splat(value) if scalar else value
    if size == 4:
        return value
    return (v.builder.zext if dtype.startswith("u") else v.builder.sext)(value, v.integers)


def quantized(v: Vectors, dtype: str, real: ir.Value, zero: ir.Value) -> ir.Value:
    """saturate(round_to_even(real) + zero) in an integer dtype of 8 or 16 bits; NaN becomes the lowest value. `zero`: floats."""
    builder, info = v.builder, np.iinfo(dtype)
    low, high = builder.fsub(v.constant(info.min), zero), builder.fsub(v.constant(info.max), zero)
    rounded = v.intrinsic("rint", real)
    rounded = builder.select(builder.fcmp_ordered(">", rounded, low), rounded, low)
    rounded = builder.fadd(builder.select(builder.fcmp_ordered("<", rounded, high), rounded, high), zero)
    return builder.trunc(builder.fptosi(rounded, v.integers), _integers(dtype, v.lanes))


def write(v: Vectors, dtype: str, value: ir.Value, address: ir.Value, index: ir.Value) -> None:
    size = np.dtype(dtype).itemsize
    v.builder.store(value, v.at(address, v.builder.mul(index, v.index(size)), value.type), align=size)


def _parameters(v: Vectors, scale: ir.Value, zero: ir.Value, dtype: str, index: ir.Value | None, has_zero: bool):
    """Scale and zero point (float32s, int32s) for all lanes alike, or from `index` on one per element."""
    at = v.index(0) if index is None else index
    scales = v.load_splat(scale) if index is None else v.load(scale, v.builder.shl(at, v.index(2)))
    return scales, _read_integers(v, dtype, zero, at, scalar=index is None) if has_zero else v.integer(0)


@functools.cache
def make_span(lanes: int, source: str, target: str, per_element: bool, has_zero: bool, multiply: bool):
    """An intrinsic span(x, y, count, scale, zero): `count` neighbours, one scale for all or one per element.

    source float32: quantize, by division, or with `multiply` by multiplication; source int32 with `multiply`: requantize; else dequantize.
    """

    @intrinsic
    def span(typing, x, y, count, scale, zero):
        def codegen(context, builder, signature, arguments):
            x, y, count, scale, zero = arguments

            def emit(v: Vectors, index: ir.Value) -> None:
                own = index if per_element else None
                scales, zeros = _parameters(v, scale, zero, source if target == "float32" else target, own, has_zero)
                if target == "float32":
                    values = builder.sitofp(builder.sub(_read_integers(v, source, x, index), zeros), v.type)
                    v.store(builder.fmul(values, scales), y, builder.shl(index, v.index(2)))
                    return
                if source == "float32":
                    values = v.load(x, builder.shl(index, v.index(2)))
                else:
                    values = builder.sitofp(_read_integers(v, source, x, index), v.type)
                real = builder.fmul(values, scales) if multiply else builder.fdiv(values, scales)
                write(v, target, quantized(v, target, real, builder.sitofp(zeros, v.type)), y, index)

            elements(builder, count, lanes, emit)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), codegen

    return span


@kernel_factory("quantized.linear")
def make_linear(lanes, source, target, per_element, has_zero, multiply):
    """Argument block: Linear. Chunks are ranges of blocks of up to Linear.block elements."""
    span = make_span(lanes, source, target, per_element, has_zero, multiply)
    source_size, target_size = np.dtype(source).itemsize, np.dtype(target).itemsize
    zero_size = source_size if target == "float32" else target_size

    def linear(args, part, parts):
        x, y, scale, zero, rows, channels, row, block = _linear(args)
        blocks = (row + block - 1) // block
        first, last = share(rows * blocks, part, parts, 1)
        for task in range(first, last):
            index, start = task // blocks, task % blocks * block
            channel = start if per_element else index % channels
            place = index * row + start
            span(x + place * source_size, y + place * target_size, min(block, row - start), scale + 4 * channel, zero + zero_size * channel)

    return linear


@functools.cache
def _make_range(lanes: int):
    """An intrinsic extend(x, count, range): widens the two floats (low, high) at `range` to hold all of x; NaNs don't count."""

    @intrinsic
    def extend(typing, x, count, range_):
        def codegen(context, builder, signature, arguments):
            x, count, target = arguments
            v = Vectors(builder, lanes, False)
            whole = builder.sdiv(count, v.index(lanes))
            one = Vectors(builder, 1, False)
            starts = [v.load_splat(target), v.load_splat(target, 4)]

            def widened(v: Vectors, values, low, high):
                return [v.minimum(values, low), v.maximum(values, high)]

            with Loop(builder, whole, starts) as loop:
                loop.carry(widened(v, v.load(x, builder.mul(loop.index, v.index(4 * lanes))), *loop.values))
            low, high = loop.results
            lows = [builder.extract_element(low, v.index(i)) for i in range(lanes)]
            highs = [builder.extract_element(high, v.index(i)) for i in range(lanes)]
            low, high = one.splat(lows[0]), one.splat(highs[0])
            for i in range(1, lanes):
                low, high = one.minimum(one.splat(lows[i]), low), one.maximum(one.splat(highs[i]), high)
            done = builder.mul(whole, v.index(lanes))
            with Loop(builder, builder.sub(count, done), [low, high]) as rest:
                value = one.load(x, builder.shl(builder.add(done, rest.index), v.index(2)))
                rest.carry(widened(one, value, *rest.values))
            for i, result in enumerate(rest.results):
                one.store(result, target, 4 * i)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 3), codegen

    return extend


@intrinsic
def _round_to_byte(typing, real):
    """saturate(round_to_even(real)) as uint8."""

    def codegen(context, builder, signature, arguments):
        v = Vectors(builder, 1, False)
        value = quantized(v, "uint8", v.splat(arguments[0]), v.constant(0))
        return builder.extract_element(value, v.index(0))

    return types.uint8(types.float32), codegen


@kernel_factory("quantized.range")
def make_range(lanes):
    """Argument block: DynamicRange. Part i writes the range of its share of x, and of 0, to ranges[i]."""
    extend = _make_range(lanes)

    def find_range(args, part, parts):
        x, count, ranges, _, _, _ = _range(args)
        first, last = share(count, part, parts, 1)
        store_f32(ranges + 8 * part, 0)
        store_f32(ranges + 8 * part + 4, 0)
        extend(x + 4 * first, last - first, ranges + 8 * part)

    return find_range


@kernel_factory("quantized.scale")
def make_scale():
    """Argument block: DynamicRange. One part: scale and zero point that spread all ranges over 0 … 255."""

    @inlined
    def quotient(a, b):
        return a / b

    def find_scale(args, part, parts):
        _, _, ranges, count, scale, zero = _range(args)
        low, high = load_f32(ranges), load_f32(ranges + 4)
        for i in range(1, count):
            low, high = min(low, load_f32(ranges + 8 * i)), max(high, load_f32(ranges + 8 * i + 4))
        step = np.float32(1)
        if low != high:
            step = quotient(np.float32(high - low), np.float32(255))
        store_f32(scale, step)
        store_u8(zero, _round_to_byte(quotient(np.float32(-low), step)))

    return find_scale


@kernel_factory("quantized.truncate")
def make_truncate(lanes):
    """float32s that hold integers → int32s, in place or not. Argument block: Linear, of which x, y, rows and row count."""

    @intrinsic
    def truncate(typing, x, y, count):
        def codegen(context, builder, signature, arguments):
            x, y, count = arguments

            def emit(v: Vectors, index: ir.Value) -> None:
                values = builder.fptosi(v.load(x, builder.shl(index, v.index(2))), v.integers)
                write(v, "int32", values, y, index)

            elements(builder, count, lanes, emit)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 3), codegen

    def kernel(args, part, parts):
        x, y, _, _, rows, _, row, _ = _linear(args)
        first, last = share(rows * row, part, parts, 64)
        truncate(x + 4 * first, y + 4 * first, last - first)

    return kernel
