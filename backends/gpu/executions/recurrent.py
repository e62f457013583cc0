"""LSTM, GRU and RNN of floats with constant weights: one product for the inputs of all steps, then a kernel or two for each step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.gpu.constants import (
    ACTIVATIONS,
    INPUT_FORGET,
    LAST_C,
    LAST_H,
    LENGTHS,
    PEEPHOLES,
    RANGE_TEAM,
    SEQUENCE_ROWS,
    SHARED_DEPTH,
    Y,
)
from mnnx.backends.gpu.creators import creator
from mnnx.backends.gpu.device import Memory
from mnnx.backends.gpu.epilogue import activation_params
from mnnx.backends.gpu.execution import GpuExecution
from mnnx.backends.gpu.executions.product import Product, Right, column_vectors, pack_right, product_kernels, record_product, strides_of
from mnnx.backends.gpu.floats import FLOATS
from mnnx.backends.gpu.kernel import Kernel, kernel
from mnnx.backends.gpu.steps import nested
from mnnx.backends.gpu.working_memory import bytes_of, cut
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.base import Spec
from mnnx.schema.ops.recurrent import GRU, LSTM, RNN, Recurrent, illegal_lengths

#: Up to so many sequences GPUs share the depth among work items.
_SHARED_ROWS = 4


def reason_against(op: Recurrent, x: Spec) -> str | None:
    """The reason against what all recurrent ops have."""
    if len(set(op.functions)) > 1:
        return "no kernel for directions with different activations"
    if names := {function.name for function in op.functions[0]}.difference(ACTIVATIONS):
        return f"no kernel for the activation {min(names)}"
    return None if x.shape[1 if op.layout else 0] else "no kernel for sequences of no steps"


def supports(op: Recurrent, inputs: Specs, outputs: Specs) -> str | None:
    x, w, r, b, _, _, _, peepholes = (*inputs, *[None] * 8)[:8]
    if x.dtype not in FLOATS:
        return f"no kernel for {x.dtype}"
    if any(spec is not None and spec.value is None for spec in (w, r, b, peepholes)):
        return "its weights, bias and peepholes must be constant"
    return reason_against(op, x)


@creator(LSTM, GRU, RNN, supports=supports)
def create(op: Recurrent, backend, inputs: Specs, outputs: Specs) -> Execution:
    return RecurrentExecution(op, backend, inputs[0], inputs[2].shape[2])


class RecurrentExecution(GpuExecution):
    """x [L, N, I] (layout 1: [N, L, I]), w [D, gates * H, I], r [D, gates * H, H], all kept in vectors of hidden units, see the kernels.

    Working memory: the inputs' part of all gates, then the states.
    """

    #: Whether hidden states are rounded before their product with r.
    rounds = False

    def __init__(self, op: Recurrent, backend, x: Spec, hidden: int):
        super().__init__(op, backend)
        self.inputs, self.hidden, self.directions = x.shape[2], hidden, op.directions
        self.batch, self.steps = x.shape[:2] if op.layout else x.shape[1::-1]
        self.dtype, self.storage = x.dtype, backend.storage(x.dtype)
        self.blocks = column_vectors(hidden, backend.block_width)
        self.columns = self.directions * op.gates * self.blocks * backend.block_width
        self.has_cells = not isinstance(op, GRU | RNN)
        #: Whether GRU's reset gates come before the product: a step is two then.
        self.resets_first = isinstance(op, GRU) and not op.linear_before_reset
        self.item_bytes = backend.stored(x.dtype.itemsize, x.dtype)
        kinds = 4 if self.resets_first or self.rounds else 3 if self.has_cells else 2
        state_bytes = 4 * self.directions * self.batch * self.blocks * backend.block_width
        self.parts: tuple[int, ...] = (self.batch * self.steps * self.columns * self.item_bytes, kinds * state_bytes)

    # ---- what it needs
    def kernels(self, inputs: Specs, outputs: Specs) -> Sequence[Kernel]:
        return [*product_kernels(self.backend, self.storage), self._step_kernel(self._formulas[0])]

    def largest_piece(self, inputs: Specs, outputs: Specs) -> int:
        return max(*self.parts, max(self.inputs, self.hidden) * self.columns * self.item_bytes)

    def loop_steps(self, inputs: Specs, outputs: Specs) -> int:
        rounding = 2 * nested(-(-self.batch * self.hidden // RANGE_TEAM)) if self.rounds else 0
        return max(nested(-(-self.hidden // SHARED_DEPTH) if self._shares else self.hidden), rounding)

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        return bytes_of(self.backend, self.parts)

    @property
    def _formulas(self) -> tuple[str, ...]:
        """Of the kernels that make a step."""
        if self.resets_first:
            return "gru reset", "gru update"
        return ("lstm",) if self.has_cells else ("gru",) if isinstance(self.op, GRU) else ("rnn",)

    @property
    def _shares(self) -> bool:
        return not self.backend.device.profile.is_cpu and self.batch <= _SHARED_ROWS

    def _step_kernel(self, formula: str) -> Kernel:
        rows = 1 if self._shares or (self.batch == 1 and self.backend.device.profile.is_cpu) else SEQUENCE_ROWS
        block = self.backend.block_width
        return kernel("recurrent.step", formula=formula, storage=self.storage, block=block, rows=rows, shared=self._shares)

    # ---- recording
    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        if not self.batch:
            return
        x, w, r, b, lengths, initial_h, initial_c, peepholes = (*inputs, *[None] * 8)[:8]
        gates, states, *more = cut(scratch, self.parts)
        self._record_inputs(self._inputs(x, more), w, b, gates)
        width = self.blocks * self.backend.block_width
        params = [self.batch, self.directions, self.hidden, width, int(self.op.layout)]
        params += [int(initial_h is not None), int(initial_c is not None), int(self.has_cells)]
        faults, slot = self.backend.commands.fault(illegal_lengths(self.steps)) if lengths else (states, 0)
        params += [int(lengths is not None), self.steps, slot]
        start = kernel("recurrent.start", storage=self.storage)
        buffers = [initial_h or x, initial_c or x, states, lengths or x, faults]
        self.backend.commands.record(start, buffers, params, (width, self.batch, self.directions))
        self._record_steps(gates, states, self._recurrent_weights(r), self._more(b, peepholes), lengths, outputs)

    def _inputs(self, x: DeviceTensor, more: Sequence[DeviceTensor]) -> DeviceTensor:
        """What the product with w reads, in `x`'s dtype; `more`: further pieces of working memory."""
        return x

    def _record_inputs(self, x: DeviceTensor, w: DeviceTensor, b: DeviceTensor | None, gates: DeviceTensor) -> None:
        backend, rows = self.backend, self.batch * self.steps
        zero = np.zeros(1, np.int64)
        right = self._packed("w", w, lambda a: pack_right(backend, self._spread(self._real(a, "w")).reshape(self.columns, self.inputs).T))
        product = Product(
            rows=rows,
            columns=self.columns,
            depth=self.inputs,
            a=x,
            a_items=zero,
            a_row=self.inputs,
            a_step=1,
            b=Right(right, zero, *strides_of(backend, self.columns, self.inputs)),
            c=gates,
            c_items=zero,
            c_row=self.columns,
            bias=None if b is None else self._packed("bias", b, self._bias),
        )
        record_product(backend, self.storage, product)

    def _record_steps(
        self,
        gates: DeviceTensor,
        states: DeviceTensor,
        r: Memory,
        more: Memory | None,
        lengths: DeviceTensor | None,
        outputs: Tensors,
    ) -> None:
        op, backend, block = self.op, self.backend, self.backend.block_width
        y, last_h, last_c = (*outputs, None, None)[:3]
        flags = Y * (y is not None) | LAST_H * (last_h is not None) | LAST_C * (last_c is not None) | LENGTHS * (lengths is not None)
        if self.has_cells:
            flags |= PEEPHOLES * (more is not None) | INPUT_FORGET * op.input_forget
        first_reversed = {"forward": 2, "reverse": 0, "bidirectional": 1}[op.direction]
        head = [self.steps, self.batch, self.directions, self.hidden, self.blocks, int(op.layout), first_reversed]
        tail = [*self._steps_of_r(), flags, float("inf") if op.clip is None else op.clip]
        functions = [activation_params(f.name, (f.alpha, f.beta)) for f in op.functions[0]]
        functions += [activation_params("", ())] * (2 - len(functions))
        tail += [value for function in functions for value in function]
        of_kind = self.directions * self.batch * self.blocks * block
        size: tuple[int, ...] = (self.blocks, -(-self.batch // SEQUENCE_ROWS), self.directions)
        if self._shares:
            size = (self.blocks, SHARED_DEPTH, self.directions * self.batch)
        local = None if self._shares else backend.device.profile.tile_group
        for now in range(self.steps):
            for formula in self._formulas:
                apart = self.rounds or formula == "gru update"
                own = [gates, r, states, states, *([more or r] if formula in ("gru", "lstm") else []), lengths or r]
                own += [y or states, last_h or states, *([last_c or states] if self.has_cells else [])]
                if self.rounds:
                    self._record_round(states, now % 2 * of_kind, 3 * of_kind)
                params = [now, *head, 3 * of_kind if apart else now % 2 * of_kind, *tail]
                backend.commands.record(self._step_kernel(formula), own, params, size, local)

    def _record_round(self, states: DeviceTensor, source: int, target: int) -> None:
        params = [source, target, self.batch, self.hidden, self.blocks * self.backend.block_width]
        self.backend.commands.record(kernel("recurrent.round"), [states], params, (self.directions * RANGE_TEAM,))

    # ---- weights
    def _recurrent_weights(self, r: DeviceTensor) -> Memory:
        """[directions, hidden, gates, blocks] vectors; on CPUs [directions, blocks, hidden, gates]."""
        gates, block = self.op.gates, self.backend.block_width

        def pack(a: np.ndarray) -> np.ndarray:
            vectors = self._spread(self._real(a, "r")).reshape(self.directions, gates, self.blocks, block, self.hidden)
            return vectors.transpose((0, 2, 4, 1, 3) if self.backend.device.profile.is_cpu else (0, 4, 1, 2, 3))

        return self._packed("r", r, pack)

    def _steps_of_r(self) -> tuple[int, int, int]:
        """The vectors from block to block, along the depth, and from gate to gate."""
        gates = self.op.gates
        return (self.hidden * gates, gates, 1) if self.backend.device.profile.is_cpu else (1, gates * self.blocks, self.blocks)

    def _more(self, b: DeviceTensor | None, peepholes: DeviceTensor | None) -> Memory | None:
        """What the cells need beside the gates: LSTM's peepholes, or what GRU adds to a product before its reset gate."""
        if self.has_cells:
            return None if peepholes is None else self._packed("peepholes", peepholes, self._spread)
        if not isinstance(self.op, GRU) or self.resets_first:
            return None
        if b is None:
            return self.backend.table(self.backend.to_storage(np.zeros(self.columns, self.dtype)))
        return self._packed("reset bias", b, lambda a: self._spread(a[:, -self.hidden :]))

    def _bias(self, b: np.ndarray) -> np.ndarray:
        """All that is added to the inputs' part of the gates: both biases, but for the one that GRU's reset gates meet."""
        of_w, of_r = np.split(b.astype(np.float32), 2, axis=1)
        if isinstance(self.op, GRU) and not self.resets_first:
            of_r[:, 2 * self.hidden :] = 0
        return self._spread((of_w + of_r).astype(b.dtype))

    def _spread(self, a: np.ndarray) -> np.ndarray:
        """[D, n * H, …] → [D, n, units of all blocks, …], missing units 0."""
        a = a.reshape(self.directions, a.shape[1] // self.hidden, self.hidden, *a.shape[2:])
        wide = np.zeros((*a.shape[:2], self.blocks * self.backend.block_width, *a.shape[3:]), a.dtype)
        wide[:, :, : self.hidden] = a
        return wide

    def _real(self, weights: np.ndarray, name: str) -> np.ndarray:
        """w or r in floats, [D, gates * H, …]."""
        return weights

    def _packed(self, name: str, weights: DeviceTensor, pack) -> Memory:
        kind = (type(self.op).__name__, self.resets_first, self.directions)
        return self.backend.packed(("recurrent", name, *kind, *self._parameters(name)), weights.constant, pack)

    def _parameters(self, name: str) -> tuple[bytes, ...]:
        """What packing the weights `name` depends on beside them."""
        return ()
