"""The transforms of Winograd's convolutions on blocked images, as LLVM IR: a vector is `lanes` channels of a pixel."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mnnx.backends.cpu.kernels.tile import add_residual
from mnnx.backends.cpu.kernels.vectors import I8, Loop, Vectors, activate
from mnnx.backends.cpu.kernels.winograd import matrices


def _sum(v: Vectors, factors: Sequence[float], values: Sequence[ir.Value]) -> ir.Value | None:
    """The sum of factors times values; None where all factors are 0."""
    total = None
    for factor, value in sorted(zip(factors, values, strict=True), key=lambda pair: abs(pair[0]) != 1):
        if factor == 0:
            continue
        if total is None:
            total = value if factor == 1 else v.builder.fneg(value) if factor == -1 else v.builder.fmul(value, v.constant(factor))
        elif abs(factor) == 1:
            total = (v.builder.fadd if factor > 0 else v.builder.fsub)(total, value)
        else:
            total = v.fma(value, v.constant(factor), total)
    return total


def _plus(v: Vectors, a: ir.Value | None, b: ir.Value | None, sign: int = 1) -> ir.Value:
    if a is None or b is None:
        return a if b is None else b if sign > 0 else v.builder.fneg(b)
    return (v.builder.fadd if sign > 0 else v.builder.fsub)(a, b)


def transform_rows(v: Vectors, matrix: np.ndarray, values: Sequence[ir.Value]) -> list[ir.Value]:
    """matrix @ values. Rows that differ in the signs of their odd columns alone share both halves of their sums."""
    signs = np.where(np.arange(matrix.shape[1]) % 2 == 0, 1, -1)
    results: dict[int, ir.Value] = {}
    for i, row in enumerate(matrix):
        if i in results:
            continue
        even, odd = _sum(v, np.where(signs > 0, row, 0), values), _sum(v, np.where(signs < 0, row, 0), values)
        results[i] = _plus(v, even, odd)
        for j in range(i + 1, len(matrix)):
            if np.array_equal(matrix[j], row * signs) and even is not None and odd is not None:
                results[j] = _plus(v, even, odd, -1)
    return [results[i] for i in range(len(matrix))]


def transform_columns(v: Vectors, matrix: np.ndarray, values: Sequence[ir.Value]) -> list[ir.Value]:
    """matrix @ values. Columns that differ in the signs of their odd rows alone are added and subtracted first."""
    signs = np.where(np.arange(len(matrix)) % 2 == 0, 1, -1)
    used, even, odd, single = set(), [], [], []
    for i in range(matrix.shape[1]):
        pair = next(
            (j for j in range(i + 1, matrix.shape[1]) if j not in used and np.array_equal(matrix[:, j], matrix[:, i] * signs)), None
        )
        if i in used:
            continue
        if pair is None or not (matrix[::2, i].any() and matrix[1::2, i].any()):
            single.append((matrix[:, i], values[i]))
            continue
        used.add(pair)
        even.append((matrix[:, i], v.builder.fadd(values[i], values[pair])))
        odd.append((matrix[:, i], v.builder.fsub(values[i], values[pair])))
    results = []
    for row in range(len(matrix)):
        terms = [*(odd if row % 2 else even), *single]
        results.append(_sum(v, [column[row] for column, _ in terms], [value for _, value in terms]))
    return results


@functools.cache
def make_input_transform(outputs: int, lanes: int, fma: bool):
    """An intrinsic transform(x, row_bytes, target, point_bytes): Bᵀ d B of the (outputs + 2)² pixels d from x on.

    Its point (i, j) goes to target + (i * (outputs + 2) + j) * point_bytes.
    """
    matrix = matrices(outputs).input
    size = outputs + 2

    @intrinsic
    def transform(typing, x, row_bytes, target, point_bytes):
        def codegen(context, builder, signature, arguments):
            x, row_bytes, target, point_bytes = arguments
            v = Vectors(builder, lanes, fma)
            half = _buffer(builder, size * size * 4 * lanes)
            with Loop(builder, v.index(size)) as column:
                place = builder.mul(column.index, v.index(4 * lanes))
                here = builder.add(x, place)
                pixels = [v.load(builder.add(here, builder.mul(row_bytes, v.index(i)))) for i in range(size)]
                for i, value in enumerate(transform_rows(v, matrix, pixels)):
                    v.store(value, builder.add(half, place), i * size * 4 * lanes)
            with Loop(builder, v.index(size)) as row:
                here = builder.add(half, builder.mul(row.index, v.index(size * 4 * lanes)))
                there = builder.add(target, builder.mul(builder.mul(row.index, v.index(size)), point_bytes))
                pixels = [v.load(here, j * 4 * lanes) for j in range(size)]
                for j, value in enumerate(transform_rows(v, matrix, pixels)):
                    v.store(value, builder.add(there, builder.mul(point_bytes, v.index(j))))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), codegen

    return transform


@functools.cache
def make_output_transform(outputs: int, lanes: int, fma: bool, kind: str):
    """An intrinsic transform(source, point_bytes, bias, y, row_bytes, residual, parameters): activation(Aᵀ m A + bias + residual), where
    point (i, j) of m lies at source + (i * (outputs + 2) + j) * point_bytes; outputs² pixels of y, rows row_bytes apart as the residual's
    (0: none)."""
    matrix = matrices(outputs).output
    size = outputs + 2

    @intrinsic
    def transform(typing, source, point_bytes, bias, y, row_bytes, residual, parameters):
        def codegen(context, builder, signature, arguments):
            source, point_bytes, bias, y, row_bytes, residual, parameters = arguments
            v = Vectors(builder, lanes, fma)
            half, start = _buffer(builder, outputs * size * 4 * lanes), v.load(bias)
            p, q = v.load_splat(parameters), v.load_splat(parameters, 4)
            with Loop(builder, v.index(size)) as column:
                here = builder.add(source, builder.mul(column.index, point_bytes))
                row_step = builder.mul(point_bytes, v.index(size))
                points = [v.load(builder.add(here, builder.mul(row_step, v.index(i)))) for i in range(size)]
                there = builder.add(half, builder.mul(column.index, v.index(4 * lanes)))
                for i, value in enumerate(transform_columns(v, matrix, points)):
                    v.store(value, there, i * size * 4 * lanes)
            with Loop(builder, v.index(outputs)) as row:
                here = builder.add(half, builder.mul(row.index, v.index(size * 4 * lanes)))
                there = builder.mul(row.index, row_bytes)
                points = [v.load(here, j * 4 * lanes) for j in range(size)]
                sums = [builder.fadd(value, start) for value in transform_columns(v, matrix, points)]
                offsets = [builder.add(there, v.index(4 * lanes * j)) for j in range(outputs)]
                sums = add_residual(v, sums, residual, offsets)
                for total, offset in zip(sums, offsets, strict=True):
                    v.store(activate(v, kind, total, p, q) if kind else total, y, offset)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), codegen

    return transform


@functools.cache
def make_finish_pixels(lanes: int, fma: bool, kind: str):
    """An intrinsic finish(source, residual, target, count, parameters): target[i] = activation(source[i] + residual[i]) for `count` pixels;
    residual 0: none."""

    @intrinsic
    def finish(typing, source, residual, target, count, parameters):
        def codegen(context, builder, signature, arguments):
            source, residual, target, count, parameters = arguments
            v = Vectors(builder, lanes, fma)
            p, q = v.load_splat(parameters), v.load_splat(parameters, 4)
            with Loop(builder, count) as loop:
                offset = builder.mul(loop.index, v.index(4 * lanes))
                (total,) = add_residual(v, [v.load(source, offset)], residual, [offset])
                v.store(activate(v, kind, total, p, q), target, offset)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), codegen

    return finish


@functools.cache
def make_move_pixels(lanes: int):
    """Intrinsics copy(source, target, count) and clear(target, count) of `count` pixels."""

    @intrinsic
    def copy(typing, source, target, count):
        def codegen(context, builder, signature, arguments):
            source, target, count = arguments
            v = Vectors(builder, lanes, False)
            with Loop(builder, count) as loop:
                offset = builder.mul(loop.index, v.index(4 * lanes))
                v.store(v.load(source, offset), target, offset)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 3), codegen

    @intrinsic
    def clear(typing, target, count):
        def codegen(context, builder, signature, arguments):
            target, count = arguments
            v = Vectors(builder, lanes, False)
            with Loop(builder, count) as loop:
                v.store(v.constant(0), target, builder.mul(loop.index, v.index(4 * lanes)))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 2), codegen

    return copy, clear


def _buffer(builder: ir.IRBuilder, nbytes: int) -> ir.Value:
    """The address of bytes of the stack."""
    with builder.goto_entry_block():
        memory = builder.alloca(ir.ArrayType(I8, nbytes))
        memory.align = 64
    return builder.ptrtoint(memory, ir.IntType(64))
