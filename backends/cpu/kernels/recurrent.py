"""LSTM, GRU and RNN of float32 over time, the inputs' part of all gates computed beforehand. Argument block: RecurrentUnit.

A unit is some stages of a layer: a stage is a step, or one of a step's phases. Its chunks are directions × parts of the sequences × parts
of the blocks of hidden units. Where the blocks are cut, a unit is one stage, as the next one needs all hidden units of this one.
"""

from __future__ import annotations

from mnnx.backends.cpu.kernels.intrinsics import alloca, inlined, load_i32, report, share
from mnnx.backends.cpu.kernels.packing import make_copy, make_fill
from mnnx.backends.cpu.kernels.recurrent_cell import (
    PHASES,
    length_of,
    make_cell,
    make_copy_vector,
    make_step_product,
    make_write_states,
)
from mnnx.backends.cpu.kernels.recurrent_words import Recurrent, RecurrentStates, RecurrentUnit
from mnnx.backends.cpu.kernels.registry import kernel_factory
from mnnx.backends.cpu.kernels.vectors import load_words

_unit, _layer, _states = (load_words(len(block._fields)) for block in (RecurrentUnit, Recurrent, RecurrentStates))


def _make_stage(rows, lanes, fma, layer_gates, gates, formula):
    """A phase of a step, for some sequences of a direction and some blocks of hidden units."""
    some_rows = max(1, rows // 2)
    many, some, one = (make_step_product(n, gates, lanes, fma) for n in (rows, some_rows, 1))
    cell, copy_vector = make_cell(formula, lanes, fma), make_copy_vector(lanes)
    vector, panel_row, gates_bytes = 4 * lanes, 4 * lanes * gates, 4 * lanes * layer_gates
    scratch = alloca(4 * lanes * gates * rows)

    @inlined
    def stage(
        source, hidden, target, cells, state_bytes, x_start, x_time, x_batch, weights, bias, depth, first_item, last_item, first_block,
        last_block, step, steps, lengths, backwards,
    ):  # fmt: skip
        sums = scratch()
        for index in range(first_block, last_block):
            # There and back again: what the cache held last is used first, where it doesn't hold all weights.
            block = first_block + last_block - 1 - index if step & 1 else index
            panel, start = weights + block * depth * panel_row, bias + block * panel_row
            item = first_item
            while item < last_item:
                left, a = last_item - item, source + item * state_bytes
                if left > some_rows:
                    count = min(left, rows)
                    many(a, state_bytes, left - 1, panel, depth, start, sums)
                elif left > 1:
                    count = left
                    some(a, state_bytes, left - 1, panel, depth, start, sums)
                else:
                    count = 1
                    one(a, state_bytes, 0, panel, depth, start, sums)
                for i in range(count):
                    length, place = length_of(lengths, item + i, steps), (item + i) * state_bytes + block * vector
                    if step < length:
                        time = length - 1 - step if backwards else step
                        x = x_start + time * x_time + (item + i) * x_batch + block * gates_bytes
                        cell(x, sums + i * panel_row, hidden + place, target + place, cells + place)
                    else:
                        copy_vector(hidden + place, target + place)
                item += count

    return stage


@kernel_factory("recurrent.layer")
def make_layer(rows, lanes, fma, formula):
    """`rows`: of each phase's tile."""
    phases = PHASES[formula]
    layer_gates, two_phases = sum(gates for gates, _ in phases), len(phases) == 2
    first_stage, second_stage = (_make_stage(rows[i], lanes, fma, layer_gates, *phases[i]) for i in (0, -1))
    write_states, vector, grain = make_write_states(lanes), 4 * lanes, rows[0]

    def layer(args, part, parts):
        block, first, last, row_parts, column_parts = _unit(args)
        (
            x_start, x_time, x_batch, x_direction, weights_start, weights_direction, second_weights, bias_start, bias_direction,
            second_bias, directions, batch, steps, hidden, state_bytes, lengths, states, cells_start, reset_start, all_start, all_time,
            all_direction, all_batch, reversed_,
        ) = _layer(block)  # fmt: skip
        task = part // column_parts
        direction = task // row_parts
        first_item, last_item = share(batch, task % row_parts, row_parts, grain)
        first_block, last_block = share(state_bytes // vector, part % column_parts, column_parts, 1)
        backwards = reversed_ >> direction & 1 == 1
        place, half = direction * batch * state_bytes, directions * batch * state_bytes
        x, cells, reset = x_start + direction * x_direction, cells_start + place, reset_start + place
        weights, bias = weights_start + direction * weights_direction, bias_start + direction * bias_direction
        for stage in range(first, last):
            step = stage // 2 if two_phases else stage
            old, new = states + (step & 1) * half + place, states + (1 - (step & 1)) * half + place
            if two_phases and stage & 1 == 0:
                first_stage(
                    old, old, reset, cells, state_bytes, x, x_time, x_batch, weights, bias, hidden, first_item, last_item, first_block,
                    last_block, step, steps, lengths, backwards,
                )  # fmt: skip
                continue
            second_stage(
                reset if two_phases else old, old, new, cells, state_bytes, x, x_time, x_batch, weights + second_weights,
                bias + second_bias, hidden, first_item, last_item, first_block, last_block, step, steps, lengths, backwards,
            )  # fmt: skip
            if all_start != 0:
                write_states(
                    new, state_bytes, all_start + direction * all_direction, all_time, all_batch, hidden, first_item, last_item,
                    first_block, last_block, step, steps, lengths, backwards,
                )  # fmt: skip

    return layer


@kernel_factory("recurrent.states")
def make_states(lanes):
    """Copies initial states to where a layer works, or its last states to the outputs. Argument block: RecurrentStates. One chunk.

    Lengths that no sequence can have are reported; the layer's steps took them for the nearest legal ones."""
    copy, fill = make_copy(lanes, 1), make_fill(lanes)

    def states(args, part, parts):
        (
            first_source, first_target, second_source, second_target, source_direction, source_batch, target_direction, target_batch,
            directions, batch, hidden, width, lengths, steps, status, code,
        ) = _states(args)  # fmt: skip
        if lengths != 0:
            for item in range(batch):
                given = load_i32(lengths + 4 * item)
                if given < 0 or given > steps:
                    report(status, code, given)
        for kind in range(2):
            source, target = (first_source, first_target) if kind == 0 else (second_source, second_target)
            if target == 0:
                continue
            for row in range(directions * batch):
                direction, item = row // batch, row % batch
                place = target + direction * target_direction + item * target_batch
                fill(place, width, 0)
                if source != 0 and length_of(lengths, item, 1) > 0:
                    copy(source + direction * source_direction + item * source_batch, place, hidden)

    return states
