"""What the kernels of recurrent layers share: a step's product with the recurrent weights, the cells, and the lengths of sequences.

Hidden units go in blocks of a vector's lanes. All gates of a block stand side by side, in what the inputs give as in the panels of the
recurrent weights, so that a cell takes its gates right behind the product that made them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mnnx.backends.cpu.kernels.dot import dot_words
from mnnx.backends.cpu.kernels.intrinsics import inlined, load_i32
from mnnx.backends.cpu.kernels.packing import make_copy, make_fill
from mnnx.backends.cpu.kernels.tile import Left, sum_products
from mnnx.backends.cpu.kernels.vectors import Vectors


@functools.cache
def make_step_product(rows: int, gates: int, lanes: int, fma: bool, mode: str = ""):
    """An intrinsic product(a, a_stride, last, panel, depth, start, sums): sums = start + a @ panel.

    a: rows of `depth` words a_stride bytes apart, `last` + 1 of them: the tile's further rows are the last one again. panel: `depth`
    rows of gates * lanes words. start: as many words, or 0: none. sums: [rows][gates * lanes]. Words are floats, or with a `mode` those
    of dot.py, a's unsigned, summed in int32s. A single row goes through several words of the depth at once: its few sums alone would
    wait for one another.
    """
    sets = 1 if rows > 2 else 2 if gates * rows > 3 else 4

    @intrinsic
    def product(typing, a, a_stride, last, panel, depth, start, sums):
        def codegen(context, builder, signature, arguments):
            a, a_stride, last, panel, depth, start, sums = arguments
            v = Vectors(builder, lanes, fma)
            step = 4 * lanes
            kind = v.integers if mode else v.type
            by_lane = mode == "dotprod" if mode else v.multiplies_by_lane

            def multiply_add(total, element, column):
                if mode:
                    return dot_words(v, mode, total, *((column, element) if by_lane else (element, column)))
                return v.fma(element, column, total)

            starts = []
            for i in range(rows):
                index = v.index(i)
                index = builder.select(builder.icmp_signed("<", index, last), index, last) if i else index
                starts.append(builder.add(a, builder.mul(a_stride, index)))
            zeros = [ir.Constant(kind, None)] * (rows * gates)
            left = Left(starts, by_lane=by_lane)
            totals = sum_products(v, left, panel, v.index(step * gates), depth, zeros, multiply_add, sets)
            for i in range(rows):
                for j in range(gates):
                    value = totals[i * gates + j]
                    if not mode:
                        value = builder.fadd(value, v.load(start, step * j))
                    builder.store(value, v.at(sums, (i * gates + j) * step, kind), align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), codegen

    return product


#: formula(v, x, r, h, c) → the next h and c. x(gate) and r(gate): the parts of a gate that the inputs and the last states give.
Formula = Callable[..., tuple[ir.Value, ir.Value]]


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


def _gru_gates(v: Vectors, x, r, h, c):
    """r * h, which meets the third gate's weights, and z, where the reset comes before the product."""
    b = v.builder
    z, reset = (v.sigmoid(b.fadd(x(gate), r(gate))) for gate in range(2))
    return b.fmul(reset, h), z


def _gru_state(v: Vectors, x, r, h, c):
    """The rest of it: `c` is z, r(0) the recurrent part of the third gate."""
    b = v.builder
    n = v.tanh(b.fadd(x(2), r(0)))
    return v.fma(c, b.fsub(h, n), n), c


def _rnn_tanh(v: Vectors, x, r, h, c):
    return v.tanh(v.builder.fadd(x(0), r(0))), c


def _rnn_relu(v: Vectors, x, r, h, c):
    return v.maximum(v.constant(0), v.builder.fadd(x(0), r(0))), c


#: By name: the phases of a step, each a product with the weights of so many gates and a formula.
PHASES: dict[str, tuple[tuple[int, Formula], ...]] = {
    "lstm": ((4, _lstm),),
    "gru": ((3, _gru),),
    "gru reset first": ((2, _gru_gates), (1, _gru_state)),
    "rnn Tanh": ((1, _rnn_tanh),),
    "rnn Relu": ((1, _rnn_relu),),
}


@functools.cache
def make_cell(formula: Formula, lanes: int, fma: bool):
    """An intrinsic cell(x, r, hidden, target, cell_state): one block of one sequence; x and r: its gates, in vectors side by side.

    hidden: the last state; target: where the next one goes. cell_state is read and written.
    """

    @intrinsic
    def cell(typing, x, r, hidden, target, cell_state):
        def codegen(context, builder, signature, arguments):
            x, r, hidden, target, cell_state = arguments
            v = Vectors(builder, lanes, fma)

            def gates(row):
                return lambda gate: v.load(row, 4 * lanes * gate)

            h, c = formula(v, gates(x), gates(r), v.load(hidden), v.load(cell_state))
            v.store(h, target)
            v.store(c, cell_state)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), codegen

    return cell


@functools.cache
def make_copy_vector(lanes: int):
    """An intrinsic copy_vector(source, target)."""

    @intrinsic
    def copy_vector(typing, source, target):
        def codegen(context, builder, signature, arguments):
            v = Vectors(builder, lanes, False)
            v.store(v.load(arguments[0]), arguments[1])
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    return copy_vector


@inlined
def length_of(lengths, item, steps):
    """The steps that a sequence takes, also where its length is illegal; `lengths`: the address of int32s, 0: all of them."""
    return steps if lengths == 0 else max(0, min(steps, load_i32(lengths + 4 * item)))


@functools.cache
def make_write_states(lanes):
    """write_states(…): the new states of some sequences and units of a direction, to their place among those of all steps; 0 after the
    end of a sequence."""
    copy, fill, vector = make_copy(lanes, 1), make_fill(lanes), 4 * lanes

    @inlined
    def write_states(
        source, state_bytes, target, target_time, target_batch, hidden, first_item, last_item, first_block, last_block, step, steps,
        lengths, backwards,
    ):  # fmt: skip
        start, count = first_block * vector, min(last_block * lanes, hidden) - first_block * lanes
        for item in range(first_item, last_item):
            length = length_of(lengths, item, steps)
            place = target + item * target_batch + start
            if step < length:
                time = length - 1 - step if backwards else step
                copy(source + item * state_bytes + start, place + time * target_time, count)
            else:
                fill(place + step * target_time, count, 0)

    return write_states
