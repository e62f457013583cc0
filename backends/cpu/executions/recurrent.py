"""LSTM, GRU and RNN of float32 with constant weights and default activations: one product for the inputs of all steps, then the steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.cpu.arguments import address_of, arguments, round_up
from mnnx.backends.cpu.creators import creator
from mnnx.backends.cpu.executions.recurrent_plan import GateLayout, units
from mnnx.backends.cpu.kernel import Kernel, kernel
from mnnx.backends.cpu.kernels.blocks import Product, epilogue
from mnnx.backends.cpu.kernels.recurrent_words import Recurrent as Block
from mnnx.backends.cpu.kernels.recurrent_words import RecurrentStates, RecurrentUnit
from mnnx.backends.cpu.tiling import Tiling, flushed
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.recurrent import GRU, LSTM, RNN, Recurrent, illegal_lengths

_FLOAT32 = np.dtype("float32")
#: What the functions of a block's cells cost, in vector instructions.
_CELL = 100
_NATIVE = {LSTM: (("Sigmoid", "Tanh", "Tanh"),), GRU: (("Sigmoid", "Tanh"),), RNN: (("Tanh",), ("Relu",))}


def supports(op: Recurrent, inputs: Specs, outputs: Specs) -> str | None:
    inputs = (*inputs, *[None] * 8)[:8]
    names = {tuple(f.name for f in functions) for functions in op.functions}
    if inputs[0].dtype != _FLOAT32:
        return "only float32 is native"
    if any(spec is not None and spec.value is None for spec in inputs[1:4]):
        return "its weights and bias must be constant"
    if len(names) > 1 or names.pop() not in _NATIVE[type(op)]:
        return "only the default activations are native"
    if op.clip is not None or (isinstance(op, LSTM) and (op.input_forget or inputs[7] is not None)):
        return "clip, input_forget and peepholes are not native"
    return None


@creator(LSTM, GRU, RNN, supports=supports)
def create(op: Recurrent, backend, inputs: Specs, outputs: Specs) -> Execution:
    return RecurrentExecution(op, backend, inputs)


class RecurrentExecution(Execution):
    """x [L, N, I] (layout 1: [N, L, I]), w [D, gates * H, I], r [D, gates * H, H].

    Working memory: the inputs' part of all gates, a row of `GateLayout.columns` per row of x; then the states (see the argument block).
    """

    def __init__(self, op: Recurrent, backend, inputs: Specs):
        super().__init__(op, backend)
        self.tiling = Tiling.of(backend.target)
        self.directions, _, self.inputs = inputs[1].shape
        self.hidden = inputs[2].shape[2]
        self.batch, self.steps = inputs[0].shape[:2] if op.layout else inputs[0].shape[1::-1]
        phases = (2, 1) if isinstance(op, GRU) and not op.linear_before_reset else (op.gates,)
        self.gates = GateLayout(self.directions, self.hidden, self.tiling.lanes, phases)
        self.gates_bytes = round_up(4 * self.batch * self.steps * self.gates.columns)
        self.state_bytes = 4 * self.gates.blocks * self.tiling.lanes
        self.kind_bytes = self.directions * self.batch * self.state_bytes  # of one kind of states
        self.work_bytes = self.gates_bytes + round_up((2 + 1 + len(phases) - 1) * self.kind_bytes)

    @property
    def depth(self) -> int:
        """Words of a state that meets the recurrent weights."""
        return self.hidden

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        return self.work_bytes

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        if not self.batch:
            return
        x, w, r, b, lengths, initial_h, initial_c, _ = (*inputs, *[None] * 8)[:8]
        lengths, initial_h, initial_c, every, last_h, last_c = (
            0 if tensor is None else address_of(tensor)
            for tensor in (lengths, initial_h, initial_c, *(*outputs, None, None)[:3])
        )  # fmt: skip
        batch, directions, steps, state, row = self.batch, self.directions, self.steps, 4 * self.hidden, 4 * self.gates.columns
        gates = address_of(scratch)
        states, spare = gates + self.gates_bytes, gates + self.work_bytes
        cells = states + 2 * self.kind_bytes
        if self.op.layout:
            gates_strides, strides = (row, steps * row), (state, directions * state)
            every_strides = (directions * state, state, steps * directions * state)
        else:
            gates_strides, strides = (batch * row, row), (batch * state, state)
            every_strides = (directions * batch * state, batch * state, state)
        own_strides, counts = (batch * self.state_bytes, self.state_bytes), (directions, batch, self.hidden)
        self._record_states(initial_h, states, initial_c, cells, *strides, *own_strides, *counts, self.state_bytes // 4, 0, steps, 0, 0)
        if steps:
            self._record_inputs(x, w, b, gates, spare)
            weights, bias = self._recurrent_part(w, r, b)
            block = Block(
                gates, *gates_strides, row // directions, address_of(weights), weights[0].nbytes, 4 * self.gates.second_phase(self.depth),
                address_of(bias), bias[0].nbytes, 4 * self.gates.second_phase(1), directions, batch, steps, self.hidden, self.state_bytes,
                lengths, states, cells, cells + self.kind_bytes, every, *every_strides,
                {"forward": 0, "reverse": 1, "bidirectional": 2}[self.op.direction],
            )  # fmt: skip
            self._record_steps(block, spare, (weights, bias))
            last = (states + steps % 2 * self.kind_bytes, last_h, cells, last_c)
        else:
            last = (0, last_h, 0, last_c)
        fault = self.backend.commands.fault(illegal_lengths(steps)) if lengths else (0, 0)
        self._record_states(*last, *own_strides, *strides, *counts, self.hidden, lengths, steps, *fault)

    def _record_states(self, *values: int) -> None:
        self.backend.commands.record(kernel("recurrent.states", lanes=self.tiling.lanes), arguments(*RecurrentStates(*values)))

    def _record_inputs(self, x: DeviceTensor, w: DeviceTensor, b: DeviceTensor | None, gates: int, spare: int) -> None:
        """The product x @ w + bias for all steps, sequences and directions. `spare`: the address of more working memory, if asked for."""
        backend, tiling, rows, columns = self.backend, self.tiling, self.batch * self.steps, self.gates.columns
        weights = self._packed("w", w, lambda a: tiling.pack_columns(self.gates.spread(a).reshape(columns, self.inputs).T))
        bias = self._bias(b, 0, lambda a: tiling.pack_columns(self.gates.spread(a).reshape(1, columns)))
        panels = len(weights)
        parameters, items = np.array(epilogue("", ())[1], _FLOAT32), np.zeros(4, np.int64)
        wanted = backend.chunks(rows * panels * tiling.vectors * self.inputs)
        panel_chunks = min(panels, wanted)
        row_chunks = min(-(-rows // tiling.rows), -(-wanted // panel_chunks))
        block = Product(
            a=address_of(x),
            a_stride=4 * self.inputs,
            b=address_of(weights),
            b_stride=4 * tiling.columns,
            panel_bytes=4 * tiling.columns * self.inputs,
            bias=address_of(bias),
            bias_bytes=4 * tiling.columns,
            c=gates,
            c_stride=4 * columns,
            residual=0,
            residual_stride=0,
            parameters=address_of(parameters),
            rows=rows,
            columns=columns,
            depth=self.inputs,
            batch=1,
            items=address_of(items),
            row_chunks=row_chunks,
            panel_chunks=panel_chunks,
        )
        product = kernel("gemm.product", kind="Clip", **tiling.parameters)
        backend.commands.record(product, arguments(*block), min(wanted, row_chunks * panel_chunks), (weights, bias, parameters, items))

    def _recurrent_part(self, w: DeviceTensor, r: DeviceTensor, b: DeviceTensor | None) -> tuple[np.ndarray, np.ndarray]:
        """The panels of r, and what is added to their product, per direction."""
        weights = self._packed("r", r, lambda a: flushed(self.gates.panels(a)))
        return weights, self._bias(b, 1, lambda a: self.gates.panels(a[:, :, None]))

    def _record_steps(self, block: Block, spare: int, keep: Any) -> None:
        op, tiling = self.op, self.tiling
        rows = tuple(tiling.rows_of(count) for count in self.gates.phases)
        gru = "gru" if len(rows) == 1 else "gru reset first"
        formula = f"rnn {op.functions[0][0].name}" if isinstance(op, RNN) else "lstm" if isinstance(op, LSTM) else gru
        layer = kernel("recurrent.layer", formula=formula, rows=rows, lanes=tiling.lanes, fma=tiling.fma)
        self._record_units(layer, arguments(*block), rows[0], keep)

    def _record_units(self, layer: Kernel, block: np.ndarray, rows: int, keep: Any) -> None:
        gates, commands = self.gates, self.backend.commands
        work = self.batch * gates.blocks * (max(gates.phases) * self.depth + _CELL)
        stages = self.steps * len(gates.phases)
        for unit in units(self.backend, gates, stages, work, self.batch, rows):
            chunks = self.directions * unit.row_parts * unit.column_parts
            commands.record(layer, arguments(*RecurrentUnit(address_of(block), *unit)), chunks, (block, keep))

    def _packed(self, name: str, weights: DeviceTensor, pack: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        return self.backend.packed(("recurrent", name, self.tiling.columns, *self.gates), weights.constant, pack)

    def _bias(self, b: DeviceTensor | None, half: int, arrange: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """The bias of the inputs' part (half 0) or of the recurrent one (half 1), arranged."""
        count = self.op.gates * self.hidden
        if b is None:
            return arrange(np.zeros((self.directions, count), _FLOAT32))
        return self._packed(f"bias {half}", b, lambda a: arrange(a[:, half * count : (half + 1) * count]))
