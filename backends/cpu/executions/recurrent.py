"""LSTM, GRU and RNN of float32 with constant weights and default activations: one product for the inputs of all steps, then the steps."""

from __future__ import annotations

import math

import numpy as np

from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.cpu.arguments import address_of, arguments
from mnnx.backends.cpu.creators import creator
from mnnx.backends.cpu.executions.pixel_product import round_up
from mnnx.backends.cpu.kernel import kernel
from mnnx.backends.cpu.kernels.blocks import Product, epilogue
from mnnx.backends.cpu.kernels.blocks import Recurrent as Block
from mnnx.backends.cpu.tiling import Tiling
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.recurrent import GRU, LSTM, RNN, Recurrent

_FLOAT32 = np.dtype("float32")
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
    """x [L, N, I] (layout 1: [N, L, I]), w [D, gates * H, I], r [D, gates * H, H]."""

    def __init__(self, op: Recurrent, backend, inputs: Specs):
        super().__init__(op, backend)
        self.tiling = tiling = Tiling.of(backend.target)
        self.directions, _, self.inputs = inputs[1].shape
        self.hidden = inputs[2].shape[2]
        self.batch, self.steps = inputs[0].shape[:2] if op.layout else inputs[0].shape[1::-1]
        self.padded = -(-self.hidden // tiling.lanes) * tiling.lanes
        self.reset_first = isinstance(op, GRU) and not op.linear_before_reset
        groups = (2, 1) if self.reset_first else (op.gates,)
        self.panels = tuple(-(-gates * self.padded // tiling.columns) for gates in groups)
        self.columns = sum(self.panels) * tiling.columns
        self.gates_bytes = round_up(4 * self.directions * self.batch * self.steps * self.columns)
        self.slot_bytes = round_up(4 * tiling.rows * (3 * self.padded + self.columns))

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        return self.gates_bytes + self.backend.threads * self.slot_bytes

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        if not self.batch:
            return
        x, w, r, b, lengths, initial_h, initial_c, _ = (*inputs, *[None] * 8)[:8]
        op, backend, tiling, batch, directions = self.op, self.backend, self.tiling, self.batch, self.directions
        gates = address_of(scratch)
        inputs_start = self._inputs(x, gates + self.gates_bytes + backend.threads * self.slot_bytes)
        parameters = np.array(epilogue("", ())[1], _FLOAT32)
        if self.steps:
            self._record_inputs(inputs_start, w, b, gates, parameters)
        weights = self._weights("r", r)
        bias = self._bias(b, 1)
        outputs = [0 if y is None else address_of(y) for y in (*outputs, None, None)[:3]]
        optional = [0 if tensor is None else address_of(tensor) for tensor in (lengths, initial_h, initial_c)]
        hidden, row = 4 * self.hidden, 4 * self.columns
        if op.layout:
            gates_strides, state_strides = (row, self.steps * row), (hidden, directions * hidden)
            all_strides = (directions * hidden, hidden, self.steps * directions * hidden)
        else:
            gates_strides, state_strides = (batch * row, row), (batch * hidden, hidden)
            all_strides = (directions * batch * hidden, batch * hidden, hidden)
        flags = np.zeros(backend.threads, np.int64)
        block = Block(
            gates, row, *gates_strides, batch * self.steps * row, address_of(weights), weights[0].nbytes, address_of(bias), directions,
            batch, self.steps, self.hidden, self.padded, sum(self.panels), self.panels[0], *optional, *state_strides, outputs[0],
            *all_strides,
            *outputs[1:], {"forward": 0, "reverse": 1, "bidirectional": 2}[op.direction], address_of(flags), backend.threads,
            gates + self.gates_bytes, self.slot_bytes, address_of(parameters),
        )  # fmt: skip
        layer = kernel("recurrent.layer", formula=self._formula(), **tiling.parameters)
        keep = (weights, bias, flags, parameters)
        backend.commands.record(layer, arguments(*block), directions * -(-batch // tiling.rows), keep)

    def _record_inputs(self, x: int, w: DeviceTensor, b: DeviceTensor | None, gates: int, parameters: np.ndarray) -> None:
        """The product x @ w + bias for all steps, sequences and directions."""
        backend, tiling, rows = self.backend, self.tiling, self.batch * self.steps
        weights, bias = self._weights("w", w), self._bias(b, 0)
        panels = sum(self.panels)
        product = kernel("gemm.product", kind="Clip", **tiling.parameters)
        for direction in range(self.directions):
            items = np.zeros(4, np.int64)
            wanted = backend.chunks(rows * panels * tiling.vectors * self.inputs)
            panel_chunks = min(panels, wanted)
            row_chunks = min(-(-rows // tiling.rows), -(-wanted // panel_chunks))
            block = Product(
                a=x,
                a_stride=4 * self.inputs,
                b=address_of(weights[direction]),
                b_stride=4 * tiling.columns,
                panel_bytes=4 * tiling.columns * self.inputs,
                bias=address_of(bias[direction]),
                bias_bytes=4 * tiling.columns,
                c=gates + 4 * direction * rows * self.columns,
                c_stride=4 * self.columns,
                residual=0,
                residual_stride=0,
                parameters=address_of(parameters),
                rows=rows,
                columns=self.columns,
                depth=self.inputs,
                batch=1,
                items=address_of(items),
                row_chunks=row_chunks,
                panel_chunks=panel_chunks,
            )
            backend.commands.record(product, arguments(*block), min(wanted, row_chunks * panel_chunks), (weights, bias, parameters, items))

    def _inputs(self, x: DeviceTensor, scratch: int) -> int:
        """The address of the rows that meet w. `scratch`: that of more working memory, for those who ask for it."""
        return address_of(x)

    def _weights(self, name: str, weights: DeviceTensor) -> np.ndarray:
        """The panels of w or r."""
        return self.backend.packed(("recurrent", name, self.tiling.columns, self.reset_first), weights.constant, self._panels)

    def _formula(self) -> str:
        if isinstance(self.op, RNN):
            return f"rnn {self.op.functions[0][0].name}"
        return "lstm" if isinstance(self.op, LSTM) else "gru reset first" if self.reset_first else "gru"

    def _gate_columns(self, w: np.ndarray) -> np.ndarray:
        """[D, gates * H, …] → [D, columns, …]: every gate padded to whole vectors, the parts of the product to whole panels."""
        gates = self.op.gates
        spread = np.zeros((self.directions, self.columns, *w.shape[2:]), _FLOAT32)
        for gate in range(gates):
            late = self.reset_first and gate == gates - 1
            start = self.panels[0] * self.tiling.columns if late else gate * self.padded
            spread[:, start : start + self.hidden] = w[:, gate * self.hidden : (gate + 1) * self.hidden]
        return spread

    def _panels(self, w: np.ndarray) -> np.ndarray:
        return self.tiling.pack_columns(np.swapaxes(self._gate_columns(w), 1, 2))

    def _bias(self, b: DeviceTensor | None, half: int) -> np.ndarray:
        """[D, columns]: the bias of the inputs' part (half 0) or of the recurrent one (half 1)."""
        if b is None:
            return np.zeros((self.directions, self.columns), _FLOAT32)
        gates = math.prod(b.shape[1:]) // 2
        key = ("recurrent bias", half, self.tiling.columns, self.tiling.lanes, self.reset_first)
        return self.backend.packed(key, b.constant, lambda a: self._gate_columns(a[:, half * gates : (half + 1) * gates]))
