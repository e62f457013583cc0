"""The LSTM with weights of 8 bits, whose hidden states are quantized at each step. Argument block: RecurrentUnit.

Both products are exact sums of int32s: that of the inputs comes ready, and that of the states is made as dot.py says. A cell scales both,
with the parameters of its columns (`RecurrentBytes.columns`).
"""

from __future__ import annotations

import functools

from numba import types
from numba.extending import intrinsic

from mnnx.backends.cpu.kernels.dot import group_of
from mnnx.backends.cpu.kernels.intrinsics import alloca, load_i32, share, store_i32
from mnnx.backends.cpu.kernels.recurrent_cell import PHASES, make_step_product, make_write_states
from mnnx.backends.cpu.kernels.recurrent_words import Recurrent, RecurrentBytes, RecurrentUnit
from mnnx.backends.cpu.kernels.registry import kernel_factory
from mnnx.backends.cpu.kernels.slots import claim_slot, free_slot
from mnnx.backends.cpu.kernels.vectors import I8, I16, I32, Loop, Vectors, ir, load_words

_unit, _layer, _bytes = (load_words(len(block._fields)) for block in (RecurrentUnit, Recurrent, RecurrentBytes))
_LAYER_BYTES = 8 * len(Recurrent._fields)
_GATES = 4


@functools.cache
def _make_range(lanes: int):
    """An intrinsic find_range(source, count, target): the scale and zero point, two floats, that spread `count` floats (whole vectors)
    and 0 over 0 … 255, as DynamicQuantizeLinear does."""

    @intrinsic
    def find_range(typing, source, count, target):
        def codegen(context, builder, signature, arguments):
            source, count, target = arguments
            v, one = Vectors(builder, lanes, False), Vectors(builder, 1, False)
            with Loop(builder, builder.sdiv(count, v.index(lanes)), [v.constant(0), v.constant(0)]) as loop:
                value = v.load(source, builder.mul(loop.index, v.index(4 * lanes)))
                loop.carry([v.minimum(value, loop.values[0]), v.maximum(value, loop.values[1])])
            low, high = one.constant(0), one.constant(0)
            for lane in range(lanes):
                least, most = (one.splat(builder.extract_element(result, v.index(lane))) for result in loop.results)
                low, high = one.minimum(least, low), one.maximum(most, high)
            scale = builder.fdiv(builder.fsub(high, low), one.constant(255))
            scale = builder.select(builder.fcmp_ordered("==", low, high), one.constant(1), scale)
            zero = one.intrinsic("rint", builder.fdiv(builder.fneg(low), scale))
            one.store(scale, target)
            one.store(one.minimum(one.constant(255), one.maximum(one.constant(0), zero)), target, 4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 3), codegen

    return find_range


@functools.cache
def _make_quantize(lanes: int, mode: str):
    """An intrinsic quantize(source, count, parameters, target) → int32: `count` floats (whole vectors) as elements of words.

    parameters: scale and zero point, two floats. The result is the sum of all elements, each less the zero point.
    """
    kind, offset = (I16, 0) if group_of(mode) == 2 else (I8, 128 if mode == "dotprod" else 0)

    @intrinsic
    def quantize(typing, source, count, parameters, target):
        def codegen(context, builder, signature, arguments):
            source, count, parameters, target = arguments
            v = Vectors(builder, lanes, False)
            scale, zero = v.load_splat(parameters), v.load_splat(parameters, 4)
            first, last = builder.fneg(zero), builder.fsub(v.constant(255), zero)
            shift = builder.sub(builder.fptosi(zero, v.integers), v.integer(offset))
            with Loop(builder, builder.sdiv(count, v.index(lanes)), [v.integer(0)]) as loop:
                real = builder.fdiv(v.load(source, builder.mul(loop.index, v.index(4 * lanes))), scale)
                value = builder.fptosi(v.minimum(last, v.maximum(v.intrinsic("rint", real), first)), v.integers)
                element = builder.trunc(builder.add(value, shift), ir.VectorType(kind, lanes))
                size = kind.width // 8
                builder.store(element, v.at(target, builder.mul(loop.index, v.index(size * lanes)), element.type), align=size)
                loop.carry([builder.add(value, loop.values[0])])
            total = ir.Constant(I32, 0)
            for lane in range(lanes):
                total = builder.add(total, builder.extract_element(loop.results[0], v.index(lane)))
            return total

        return types.int32(*[types.int64] * 4), codegen

    return quantize


@functools.cache
def _make_cell(lanes: int, fma: bool, mode: str):
    """An intrinsic cell(x, sums, columns, x_scale, parameters, total, target, cell_state), see `recurrent_cell.make_cell`.

    x, sums: int32s. columns: the parameters of the gates' columns. x_scale: the address of a float. parameters, total: of the states, see
    `_make_quantize`.
    """
    ((_, formula),) = PHASES["lstm"]
    offset = 128 if mode == "dotprod" else 0

    @intrinsic
    def cell(typing, x, sums, columns, x_scale, parameters, total, target, cell_state):
        def codegen(context, builder, signature, arguments):
            x, sums, columns, x_scale, parameters, total, target, cell_state = arguments
            v = Vectors(builder, lanes, fma)
            row = 4 * lanes * _GATES
            x_scale, h_scale, total = v.load_splat(x_scale), v.load_splat(parameters), v.splat(total)
            zero = builder.sub(builder.fptosi(v.load_splat(parameters, 4), v.integers), v.integer(offset))

            def integers(address, place):
                return builder.load(v.at(address, place, v.integers), align=4)

            def inputs(gate):
                place = 4 * lanes * gate
                scale = builder.fmul(x_scale, v.load(columns, place))
                return v.fma(builder.sitofp(integers(x, place), v.type), scale, v.load(columns, row + place))

            def states(gate):
                place = 4 * lanes * gate
                scale, weight_sums, factors = (
                    builder.fmul(h_scale, v.load(columns, 2 * row + place)),
                    integers(columns, 3 * row + place),
                    integers(columns, 4 * row + place),
                )
                value = builder.sub(integers(sums, place), builder.mul(zero, weight_sums))
                return builder.fmul(builder.sitofp(builder.add(value, builder.mul(total, factors)), v.type), scale)

            h, c = formula(v, inputs, states, None, v.load(cell_state))
            v.store(h, target)
            v.store(c, cell_state)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5, types.int32, types.int64, types.int64), codegen

    return cell


@kernel_factory("recurrent_bytes.layer")
def make_layer(rows, lanes, fma, mode):
    """All sequences of a direction are quantized together."""
    some_rows = max(1, rows // 2)
    many, some, one = (make_step_product(n, _GATES, lanes, fma, mode) for n in (rows, some_rows, 1))
    find_range, quantize, cell = _make_range(lanes), _make_quantize(lanes, mode), _make_cell(lanes, fma, mode)
    write_states = make_write_states(lanes)
    vector, row_bytes = 4 * lanes, 4 * lanes * _GATES
    scratch = alloca(row_bytes * rows)

    def layer(args, part, parts):
        block, first, last, _, column_parts = _unit(args)
        (
            x_start, x_time, x_batch, x_direction, weights_start, weights_direction, _, columns_start, columns_direction, _, directions,
            batch, steps, hidden, state_bytes, _, states, cells_start, _, all_start, all_time, all_direction, all_batch, reversed_,
        ) = _layer(block)  # fmt: skip
        depth, x_scale, flags, slots, memory, slot_bytes, words_bytes = _bytes(block + _LAYER_BYTES)
        slot = claim_slot(flags, slots)
        parameters = memory + slot * slot_bytes
        totals = parameters + 8
        words, sums = parameters + slot_bytes - batch * words_bytes, scratch()
        direction = part // column_parts
        first_block, last_block = share(state_bytes // vector, part % column_parts, column_parts, 1)
        backwards = reversed_ >> direction & 1 == 1
        place, half = direction * batch * state_bytes, directions * batch * state_bytes
        for step in range(first, last):
            old, new = states + (step & 1) * half + place, states + (1 - (step & 1)) * half + place
            find_range(old, batch * state_bytes // 4, parameters)
            for item in range(batch):
                total = quantize(old + item * state_bytes, state_bytes // 4, parameters, words + item * words_bytes)
                store_i32(totals + 4 * item, total)
            x_row = x_start + direction * x_direction + (steps - 1 - step if backwards else step) * x_time
            for index in range(first_block, last_block):
                block_index = first_block + last_block - 1 - index if step & 1 else index
                panel = weights_start + direction * weights_direction + block_index * depth * row_bytes
                columns = columns_start + direction * columns_direction + block_index * 5 * row_bytes
                item = 0
                while item < batch:
                    left, a = batch - item, words + item * words_bytes
                    if left > some_rows:
                        count = min(left, rows)
                        many(a, words_bytes, left - 1, panel, depth, 0, sums)
                    elif left > 1:
                        count = left
                        some(a, words_bytes, left - 1, panel, depth, 0, sums)
                    else:
                        count = 1
                        one(a, words_bytes, 0, panel, depth, 0, sums)
                    for i in range(count):
                        x = x_row + (item + i) * x_batch + block_index * row_bytes
                        target = (item + i) * state_bytes + block_index * vector + place
                        total = load_i32(totals + 4 * (item + i))
                        cell(x, sums + i * row_bytes, columns, x_scale, parameters, total, new - place + target, cells_start + target)
                    item += count
            if all_start != 0:
                write_states(
                    new, state_bytes, all_start + direction * all_direction, all_time, all_batch, hidden, 0, batch, first_block,
                    last_block, step, steps, 0, backwards,
                )  # fmt: skip
        free_slot(flags, slot)

    return layer
