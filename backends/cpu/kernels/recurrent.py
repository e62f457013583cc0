"""LSTM, GRU and RNN of float32 over time, the inputs' part of all gates computed beforehand. Argument block: Recurrent.

Gates stand side by side in a row, each padded to whole vectors; the rows of the recurrent weights' panels likewise. A chunk is some
sequences of one direction: up to a tile's rows of them go through the steps together.
"""

from __future__ import annotations

import functools

from numba import types
from numba.extending import intrinsic

from mnnx.backends.cpu.kernels.blocks import Recurrent
from mnnx.backends.cpu.kernels.intrinsics import inlined, load_i32, share, store_f32
from mnnx.backends.cpu.kernels.packing import make_copy
from mnnx.backends.cpu.kernels.registry import kernel_factory
from mnnx.backends.cpu.kernels.slots import claim_slot, free_slot
from mnnx.backends.cpu.kernels.tile import make_tile
from mnnx.backends.cpu.kernels.vectors import Loop, Vectors, load_words

_recurrent = load_words(len(Recurrent._fields))


def _lstm(v: Vectors, x, r, h, c):
    b = v.builder
    i, o, f = (v.sigmoid(b.fadd(x(gate), r(gate))) for gate in range(3))
    c = v.fma(f, c, b.fmul(i, v.tanh(b.fadd(x(3), r(3)))))
    return b.fmul(o, v.tanh(c)), c


def _gru(v: Vectors, x, r, h, c):
    """linear_before_reset: the reset gate scales the recurrent part of the third gate."""
    b = v.builder
    z, reset = (v.sigmoid(b.fadd(x(gate), r(gate))) for gate in range(2))
    n = v.tanh(v.fma(reset, r(2), x(2)))
    return v.fma(z, b.fsub(h, n), n), c


def _gru_reset(v: Vectors, x, r, h, c):
    """r * h, which meets the third gate's recurrent weights where the reset comes before the product."""
    b = v.builder
    return b.fmul(v.sigmoid(b.fadd(x(1), r(1))), h), c


def _gru_after_reset(v: Vectors, x, r, h, c):
    b = v.builder
    z = v.sigmoid(b.fadd(x(0), r(0)))
    n = v.tanh(b.fadd(x(2), r(2)))
    return v.fma(z, b.fsub(h, n), n), c


def _rnn_tanh(v: Vectors, x, r, h, c):
    return v.tanh(v.builder.fadd(x(0), r(0))), c


def _rnn_relu(v: Vectors, x, r, h, c):
    return v.maximum(v.constant(0), v.builder.fadd(x(0), r(0))), c


@functools.cache
def _make_cell(formula, lanes: int, fma: bool):
    """An intrinsic cell(x, r, hidden, target, cell_state, gate_bytes, third_gate_bytes, units): one sequence's next state.

    x, r: the gates' rows, inputs' and recurrent part; gate 2 lies third_gate_bytes after the start, others at multiples of gate_bytes.
    """

    @intrinsic
    def cell(typing, x, r, hidden, target, cell_state, gate_bytes, third_gate_bytes, units):
        def codegen(context, builder, signature, arguments):
            x, r, hidden, target, cell_state, gate_bytes, third_gate_bytes, units = arguments
            v = Vectors(builder, lanes, fma)
            with Loop(builder, builder.sdiv(units, v.index(lanes))) as loop:
                offset = builder.mul(loop.index, v.index(4 * lanes))

                def gates(row):
                    def gate(number: int):
                        start = third_gate_bytes if number == 2 else builder.mul(gate_bytes, v.index(number))
                        return v.load(row, builder.add(start, offset))

                    return gate

                h, c = formula(v, gates(x), gates(r), v.load(hidden, offset), v.load(cell_state, offset))
                v.store(h, target, offset)
                v.store(c, cell_state, offset)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 8), codegen

    return cell


@functools.cache
def _make_round(lanes: int):
    """An intrinsic round_states(source, target, count): `count` floats, whole vectors, rounded as DynamicQuantizeLinear does.

    Their range and 0 are spread over 256 values; each float becomes the nearest one.
    """

    @intrinsic
    def round_states(typing, source, target, count):
        def codegen(context, builder, signature, arguments):
            source, target, count = arguments
            v, one = Vectors(builder, lanes, False), Vectors(builder, 1, False)
            vectors = builder.sdiv(count, v.index(lanes))
            with Loop(builder, vectors, [v.constant(0), v.constant(0)]) as loop:
                value = v.load(source, builder.mul(loop.index, v.index(4 * lanes)))
                loop.carry([v.minimum(value, loop.values[0]), v.maximum(value, loop.values[1])])
            low, high = one.constant(0), one.constant(0)
            for lane in range(lanes):
                least, most = (one.splat(builder.extract_element(result, v.index(lane))) for result in loop.results)
                low, high = one.minimum(least, low), one.maximum(most, high)
            step = builder.fdiv(builder.fsub(high, low), one.constant(255))
            step = builder.select(builder.fcmp_ordered("==", low, high), one.constant(1), step)
            zero = one.minimum(
                one.constant(255), one.maximum(one.constant(0), one.intrinsic("rint", builder.fdiv(builder.fneg(low), step)))
            )
            scale, first, last = (
                v.splat(builder.extract_element(value, v.index(0)))
                for value in (step, builder.fneg(zero), builder.fsub(one.constant(255), zero))
            )
            with Loop(builder, vectors) as loop:
                offset = builder.mul(loop.index, v.index(4 * lanes))
                rounded = v.intrinsic("rint", builder.fdiv(v.load(source, offset), scale))
                v.store(builder.fmul(v.minimum(last, v.maximum(first, rounded)), scale), target, offset)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 3), codegen

    return round_states


def _make_kernel(rows, vectors, lanes, fma, first_formula, second_formula, rounds=False):
    """With a second formula the first one gives what meets the recurrent weights of the last gate.

    `rounds`: states are rounded to 256 values before they meet the weights.
    """
    tile, half, quarter, single = (make_tile(max(1, n), vectors, lanes, fma, "Clip") for n in (rows, rows // 2, rows // 4, 1))
    half_rows, quarter_rows, panel_columns = max(1, rows // 2), max(1, rows // 4), vectors * lanes
    cell, second_cell = _make_cell(first_formula, lanes, fma), _make_cell(second_formula or first_formula, lanes, fma)
    two_steps, copy, round_states = second_formula is not None, make_copy(lanes, 1), _make_round(lanes)

    @inlined
    def multiply(a, a_stride, weights, first_panel, last_panel, depth, bias, target, row_bytes, count, parameters):
        """target = a @ weights + bias for `count` rows and some panels."""
        for panel in range(first_panel, last_panel):
            b, column = weights + panel * depth * panel_columns * 4, panel * panel_columns * 4
            row = 0
            while row < count:
                left = count - row
                a_row, c = a + row * a_stride, target + row * row_bytes + column
                if left >= rows:
                    tile(a_row, a_stride, b, 4 * panel_columns, depth, bias + column, c, row_bytes, 0, 0, parameters)
                    row += rows
                elif left >= half_rows:
                    half(a_row, a_stride, b, 4 * panel_columns, depth, bias + column, c, row_bytes, 0, 0, parameters)
                    row += half_rows
                elif left >= quarter_rows:
                    quarter(a_row, a_stride, b, 4 * panel_columns, depth, bias + column, c, row_bytes, 0, 0, parameters)
                    row += quarter_rows
                else:
                    single(a_row, a_stride, b, 4 * panel_columns, depth, bias + column, c, row_bytes, 0, 0, parameters)
                    row += 1

    @inlined
    def length_of(lengths, item, steps):
        return steps if lengths == 0 else max(0, min(steps, load_i32(lengths + 4 * item)))

    @inlined
    def fill(target, initial, count, padded):
        """A state from its initial value (0: zeros)."""
        for i in range(padded):
            store_f32(target + 4 * i, 0)
        if initial != 0:
            copy(initial, target, count)

    def recurrent(args, part, parts):
        (
            gates_start, row_bytes, gates_time, gates_batch, gates_direction, weights_start, weights_direction, bias_start, directions,
            batch, steps, hidden, padded, panels, first_panels, lengths, initial_h, initial_c, state_direction, state_batch,
            all_start, all_time,
            all_direction, all_batch, last_h, last_c, reversed_, flags, slots, memory, slot_bytes, parameters,
        ) = _recurrent(args)  # fmt: skip
        slot = claim_slot(flags, slots)
        state_bytes, gate_bytes = 4 * padded, 4 * padded
        h_start = memory + slot * slot_bytes
        c_start, reset_start = h_start + rows * state_bytes, h_start + 2 * rows * state_bytes
        products = h_start + 3 * rows * state_bytes
        third_gate = first_panels * panel_columns * 4 if first_panels != panels else 2 * gate_bytes
        blocks = (batch + rows - 1) // rows
        first_task, last_task = share(directions * blocks, part, parts, 1)
        for task in range(first_task, last_task):
            direction, first_item = task // blocks, task % blocks * rows
            count = min(rows, batch - first_item)
            weights, bias = weights_start + direction * weights_direction, bias_start + direction * row_bytes
            backwards = reversed_ >> direction & 1 == 1
            state = direction * state_direction + first_item * state_batch
            for i in range(count):
                place = state + i * state_batch
                fill(h_start + i * state_bytes, initial_h + place if initial_h != 0 else 0, hidden, padded)
                fill(c_start + i * state_bytes, initial_c + place if initial_c != 0 else 0, hidden, padded)
            for step in range(steps):
                states = h_start
                if rounds:
                    states = reset_start
                    round_states(h_start, states, count * padded)
                multiply(states, state_bytes, weights, 0, first_panels, hidden, bias, products, row_bytes, count, parameters)
                for i in range(count):
                    length = length_of(lengths, first_item + i, steps)
                    time = length - 1 - step if backwards else step
                    if step < length:
                        x = gates_start + direction * gates_direction + time * gates_time + (first_item + i) * gates_batch
                        h, target = h_start + i * state_bytes, reset_start + i * state_bytes if two_steps else h_start + i * state_bytes
                        cell(x, products + i * row_bytes, h, target, c_start + i * state_bytes, gate_bytes, third_gate, padded)
                if two_steps:
                    multiply(reset_start, state_bytes, weights, first_panels, panels, hidden, bias, products, row_bytes, count, parameters)
                    for i in range(count):
                        length = length_of(lengths, first_item + i, steps)
                        time = length - 1 - step if backwards else step
                        if step < length:
                            x = gates_start + direction * gates_direction + time * gates_time + (first_item + i) * gates_batch
                            h = h_start + i * state_bytes
                            second_cell(x, products + i * row_bytes, h, h, c_start + i * state_bytes, gate_bytes, third_gate, padded)
                if all_start != 0:
                    for i in range(count):
                        length = length_of(lengths, first_item + i, steps)
                        time = length - 1 - step if backwards and step < length else step
                        target = all_start + time * all_time + direction * all_direction + (first_item + i) * all_batch
                        if step < length:
                            copy(h_start + i * state_bytes, target, hidden)
                        else:
                            for unit in range(hidden):
                                store_f32(target + 4 * unit, 0)
            for i in range(count):
                if length_of(lengths, first_item + i, steps) == 0:
                    fill(h_start + i * state_bytes, 0, hidden, padded)
                    fill(c_start + i * state_bytes, 0, hidden, padded)
                if last_h != 0:
                    copy(h_start + i * state_bytes, last_h + state + i * state_batch, hidden)
                if last_c != 0:
                    copy(c_start + i * state_bytes, last_c + state + i * state_batch, hidden)
        free_slot(flags, slot)

    return recurrent


_FORMULAS = {
    "lstm": (_lstm, None),
    "lstm rounded": (_lstm, None, True),
    "gru": (_gru, None),
    "gru reset first": (_gru_reset, _gru_after_reset),
    "rnn Tanh": (_rnn_tanh, None),
    "rnn Relu": (_rnn_relu, None),
}


@kernel_factory("recurrent.layer")
def make_layer(rows, vectors, lanes, fma, formula):
    return _make_kernel(rows, vectors, lanes, fma, *_FORMULAS[formula])
