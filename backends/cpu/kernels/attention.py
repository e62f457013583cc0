"""Scaled dot-product attention of float32: softmax(q @ k + mask) @ v, a block of queries at a time. Argument block: AttentionRows.

The scores of some queries and as many keys as fit the cache are computed, turned into weights, and multiplied by v's rows before the next
keys' are. Where there are more keys, the sums so far are scaled to each query's new largest score. Source: Milakov & Gimelshein, Online
normalizer calculation for softmax, 2018; Dao et al., FlashAttention, 2022.
"""

from __future__ import annotations

import functools

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mnnx.backends.cpu.kernels.attention_words import AttentionRows
from mnnx.backends.cpu.kernels.intrinsics import alloca, inlined, load_f32, load_i64, load_u8, share, store_f32
from mnnx.backends.cpu.kernels.math import exp_f32
from mnnx.backends.cpu.kernels.packing import make_copy_block, make_fill
from mnnx.backends.cpu.kernels.registry import kernel_factory
from mnnx.backends.cpu.kernels.slots import claim_slot, free_slot
from mnnx.backends.cpu.kernels.tile import make_tile
from mnnx.backends.cpu.kernels.vectors import F32, I32, Loop, Vectors, load_words

F = np.float32
_LEAST = F(-np.inf)
#: Rows whose weights are computed together; a tile's rows are a multiple of them.
_TOGETHER = 4
_words = load_words(len(AttentionRows._fields))
_FACTOR = 8 * AttentionRows._fields.index("factor")
_BLIND = 8 * AttentionRows._fields.index("blind")


def _across(v: Vectors, combine, vector: ir.Value) -> ir.Value:
    """All lanes of a vector combined."""
    lanes = list(range(v.lanes))
    step = v.lanes
    while step := step // 2:
        mask = ir.Constant(v.integers, [(i + step) % v.lanes for i in lanes])
        vector = combine(vector, v.builder.shuffle_vector(vector, vector, mask))
    return v.builder.extract_element(vector, ir.Constant(I32, 0))


@functools.cache
def _make_largest(rows: int, lanes: int):
    """An intrinsic largest(first, stride, vectors, results): the largest of the first floats, so many vectors of them, of each of `rows`
    rows, NaN left out; -inf where there is none. Rows go together so that one needn't wait for another."""

    @intrinsic
    def largest(typing, first, stride, vectors, results):
        def codegen(context, builder, signature, arguments):
            first, stride, vectors, results = arguments
            v = Vectors(builder, lanes, False)
            starts = [builder.add(first, builder.mul(stride, v.index(i))) for i in range(rows)]
            with Loop(builder, vectors, [v.constant(-np.inf)] * rows) as loop:
                offset = builder.mul(loop.index, v.index(4 * lanes))
                loop.carry([v.maximum(v.load(row, offset), top) for row, top in zip(starts, loop.values, strict=True)])
            for i, top in enumerate(loop.results):
                builder.store(_across(v, v.maximum, top), v.at(results, 4 * i, F32), align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), codegen

    return largest


@functools.cache
def _make_weigh(rows: int, lanes: int, fma: bool):
    """An intrinsic weigh(first, stride, vectors, tops, results): the floats x that `largest` saw become e**(x - top), with a top >= x for
    each row; gives the sum of each row."""

    @intrinsic
    def weigh(typing, first, stride, vectors, tops, results):
        def codegen(context, builder, signature, arguments):
            first, stride, vectors, tops, results = arguments
            v = Vectors(builder, lanes, fma)
            starts = [builder.add(first, builder.mul(stride, v.index(i))) for i in range(rows)]
            shifts = [v.load_splat(tops, 4 * i) for i in range(rows)]
            with Loop(builder, vectors, [v.constant(0)] * rows) as loop:
                offset = builder.mul(loop.index, v.index(4 * lanes))
                weights = [v.exp_negative(builder.fsub(v.load(row, offset), shift)) for row, shift in zip(starts, shifts, strict=True)]
                for row, weight in zip(starts, weights, strict=True):
                    v.store(weight, row, offset)
                loop.carry([builder.fadd(total, weight) for total, weight in zip(loop.values, weights, strict=True)])
            for i, total in enumerate(loop.results):
                builder.store(_across(v, builder.fadd, total), v.at(results, 4 * i, F32), align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), codegen

    return weigh


@functools.cache
def _make_scale(lanes: int):
    """An intrinsic scale(row, vectors, factor): multiplies the floats of so many vectors."""

    @intrinsic
    def scale(typing, row, vectors, factor):
        def codegen(context, builder, signature, arguments):
            row, vectors, factor = arguments
            v = Vectors(builder, lanes, False)
            factor = v.splat(factor)
            with Loop(builder, vectors) as loop:
                offset = builder.mul(loop.index, v.index(4 * lanes))
                v.store(builder.fmul(v.load(row, offset), factor), row, offset)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.float32), codegen

    return scale


@inlined
def _apply_mask(row, mask, mask_bytes, begin, end):
    """Adds a float mask to the scores begin … end-1 of a row; a bool mask makes -inf of those that it hides."""
    if mask_bytes == 4:
        for j in range(begin, end):
            store_f32(row + 4 * j, load_f32(row + 4 * j) + load_f32(mask + 4 * j))
    else:
        for j in range(begin, end):
            store_f32(row + 4 * j, load_f32(row + 4 * j) if load_u8(mask + j) != 0 else _LEAST)


@inlined
def _within(value, low, high):
    return min(max(value, low), high)


@kernel_factory("attention.rows")
def make_rows(rows, vectors, lanes, fma):
    """The blocks of queries of all items are shared out to the parts."""
    widths = (vectors, max(1, vectors - 1), 1)
    tile3, tile2, tile1 = (make_tile(rows, n, lanes, fma, "") for n in widths)
    single3, single2, single1 = (make_tile(1, n, lanes, fma, "") for n in widths)
    largest4, weigh4 = _make_largest(_TOGETHER, lanes), _make_weigh(_TOGETHER, lanes, fma)
    largest1, weigh1, scale = _make_largest(1, lanes), _make_weigh(1, lanes, fma), _make_scale(lanes)
    copy_block, fill = make_copy_block(lanes), make_fill(lanes)
    fresh_totals = alloca(4 * _TOGETHER)
    columns, stride, line = vectors * lanes, 4 * vectors * lanes, 4 * lanes

    @inlined
    def multiply(a, a_stride, b, b_stride, depth, zeros, c, c_stride, count, width, added):
        """c = a @ b (+ c): `count` rows, whole tiles of them or fewer than a tile has; `width` columns, up to whole vectors, of a panel."""
        step = 1 if count < rows else rows
        for row in range(0, count, step):
            a_row, c_row = a + row * a_stride, c + row * c_stride
            residual = c_row if added else 0
            if width > (vectors - 1) * lanes:
                if step == 1:
                    single3(a_row, a_stride, b, b_stride, depth, zeros, c_row, c_stride, residual, c_stride, zeros)
                else:
                    tile3(a_row, a_stride, b, b_stride, depth, zeros, c_row, c_stride, residual, c_stride, zeros)
            elif width > lanes:
                if step == 1:
                    single2(a_row, a_stride, b, b_stride, depth, zeros, c_row, c_stride, residual, c_stride, zeros)
                else:
                    tile2(a_row, a_stride, b, b_stride, depth, zeros, c_row, c_stride, residual, c_stride, zeros)
            elif step == 1:
                single1(a_row, a_stride, b, b_stride, depth, zeros, c_row, c_stride, residual, c_stride, zeros)
            else:
                tile1(a_row, a_stride, b, b_stride, depth, zeros, c_row, c_stride, residual, c_stride, zeros)

    def attend(args, part, parts):
        (
            q_start, q_stride, k_start, v_start, v_stride, v_panel, mask_start, mask_stride, mask_bytes, y_start, y_stride, items, batch,
            queries, keys, head, v_head, first_seen, last_seen, block_rows, block_keys, _, _, zeros, flags, slots, memory, slot_bytes,
        ) = _words(args)  # fmt: skip
        factor, blind = load_f32(args + _FACTOR), load_f32(args + _BLIND)
        v_panels = (v_head + columns - 1) // columns
        scores_stride, sums_stride = 4 * block_keys, v_panels * stride
        slot = claim_slot(flags, slots)
        block = memory + slot * slot_bytes
        scores = block + 4 * block_rows * head
        sums = scores + block_rows * scores_stride
        tops = sums + block_rows * sums_stride
        totals, shifts, fresh = tops + 4 * block_rows, tops + 8 * block_rows, fresh_totals()
        row_blocks = (queries + block_rows - 1) // block_rows
        first_task, last_task = share(batch * row_blocks, part, parts, 1)
        for task in range(first_task, last_task):
            item, first = items + 40 * (task // row_blocks), task % row_blocks * block_rows
            count = min(block_rows, queries - first)
            padded = count if count < rows and block_rows < rows else (count + rows - 1) // rows * rows
            copy_block(q_start + load_i64(item) + first * q_stride, q_stride, block, 4 * head, count, head)
            scale(block, (count * head + lanes - 1) // lanes, factor)
            fill(block + 4 * head * count, (padded - count) * head, F(0))
            for i in range(padded):
                store_f32(tops + 4 * i, _LEAST)
                store_f32(totals + 4 * i, F(0))
            start = _within(first + first_seen, 0, keys) // columns * columns
            end = _within(first + count + last_seen, start, keys)
            if end == start:
                fill(sums, count * v_panels * columns, F(0))
            k, v, mask = k_start + load_i64(item + 8), v_start + load_i64(item + 16), mask_start + load_i64(item + 24)
            for key in range(start, end, block_keys):
                width = min(block_keys, end - key)
                for column in range(0, width, columns):
                    panel = k + (key + column) * head * 4
                    multiply(block, 4 * head, panel, stride, head, zeros, scores + 4 * column, scores_stride, padded, width - column, False)
                whole = (width + lanes - 1) // lanes
                for i in range(count):
                    row = scores + i * scores_stride
                    seen = _within(first + i + first_seen - key, 0, width)
                    beyond = _within(first + i + last_seen + 1 - key, seen, width)
                    if mask_start != 0:
                        _apply_mask(row, mask + (first + i) * mask_stride + key * mask_bytes, mask_bytes, seen, beyond)
                    fill(row, seen, _LEAST)
                    fill(row + 4 * beyond, whole * lanes - beyond, _LEAST)
                step = _TOGETHER if padded % _TOGETHER == 0 else 1
                for i in range(0, padded, step):
                    row = scores + i * scores_stride
                    if step == _TOGETHER:
                        largest4(row, scores_stride, whole, shifts + 4 * i)
                    else:
                        largest1(row, scores_stride, whole, shifts + 4 * i)
                    for j in range(i, i + step):
                        before = load_f32(tops + 4 * j)
                        top = max(before, load_f32(shifts + 4 * j))
                        store_f32(tops + 4 * j, top)
                        store_f32(shifts + 4 * j, top if top > _LEAST else F(0))
                        if before > _LEAST and before < top:
                            correction = exp_f32(before - top)
                            scale(sums + j * sums_stride, sums_stride // line, correction)
                            store_f32(totals + 4 * j, load_f32(totals + 4 * j) * correction)
                    if step == _TOGETHER:
                        weigh4(row, scores_stride, whole, shifts + 4 * i, fresh)
                    else:
                        weigh1(row, scores_stride, whole, shifts + 4 * i, fresh)
                    for j in range(step):
                        store_f32(totals + 4 * (i + j), load_f32(totals + 4 * (i + j)) + load_f32(fresh + 4 * j))
                for column in range(0, v_head, columns):
                    panel, place = v + column // columns * v_panel + key * v_stride, sums + 4 * column
                    multiply(scores, scores_stride, panel, v_stride, width, zeros, place, sums_stride, padded, v_head - column, key > start)
            y = y_start + load_i64(item + 32) + first * y_stride
            for i in range(count):
                total = load_f32(totals + 4 * i)
                scale(sums + i * sums_stride, sums_stride // line, blind if total == F(0) else F(1) / total)
            copy_block(sums, sums_stride, y, y_stride, count, v_head)
        free_slot(flags, slot)

    return attend
