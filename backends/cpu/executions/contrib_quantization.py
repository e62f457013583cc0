"""ONNX Runtime's quantized LSTM: products of bytes, with inputs and states that are quantized as they come."""

from __future__ import annotations

from typing import Any

import numpy as np

from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.cpu.arguments import address_of, arguments, round_up
from mnnx.backends.cpu.creators import creator
from mnnx.backends.cpu.executions.dot import Weights, Zero
from mnnx.backends.cpu.executions.dot_matrix import Finish, MatrixProduct
from mnnx.backends.cpu.executions.quantization import ranges_bytes, record_dynamic
from mnnx.backends.cpu.executions.recurrent import RecurrentExecution
from mnnx.backends.cpu.kernel import kernel
from mnnx.backends.cpu.kernels.recurrent_words import Recurrent, RecurrentBytes
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.base import Spec
from mnnx.schema.ops.contrib_quantization import DynamicQuantizeLSTM

_FLOAT32, _UINT8 = np.dtype("float32"), np.dtype("uint8")


def supports(op: DynamicQuantizeLSTM, inputs: Specs, outputs: Specs) -> str | None:
    _, w, r, b, lengths, _, _, peepholes, *parameters = inputs
    if any(spec is not None and spec.value is None for spec in (w, r, b, *parameters)):
        return "its weights, bias, scales and zero points must be constant"
    if peepholes is not None or op.input_forget or op.clip is not None or lengths is not None or op.layout:
        return "clip, input_forget, peepholes, sequence lengths and layout 1 are not native"
    if any(tuple(f.name for f in functions) != op.default_activations for functions in op.functions):
        return "only the default activations are native"
    return None


@creator(DynamicQuantizeLSTM, supports=supports)
def create(op: DynamicQuantizeLSTM, backend, inputs: Specs, outputs: Specs) -> Execution:
    return DynamicLSTMExecution(op, backend, inputs)


class DynamicLSTMExecution(RecurrentExecution):
    """w [D, I, 4 * H], r [D, H, 4 * H] in bytes. The inputs' part of the gates are the int32s of the product, without scale and bias."""

    def __init__(self, op: DynamicQuantizeLSTM, backend, inputs: Specs):
        x, w, r = inputs[:3]
        real = (Spec(_FLOAT32, (spec.shape[0], spec.shape[2], spec.shape[1])) for spec in (w, r))
        super().__init__(op, backend, [x, *real])
        self.size = x.size
        rows = Spec(_UINT8, (self.batch * self.steps, self.inputs))
        columns = Spec.of(np.broadcast_to(np.zeros(1, w.dtype), (self.inputs, self.gates.columns)))  # constant ones, of these sizes
        self.product = MatrixProduct(backend, rows, columns, self._per_unit(inputs[9].value).reshape(-1))
        self.words_bytes = round_up(max(4 * self.depth, self.state_bytes // 4 * self.tiling.element_size))
        self.slot_bytes = round_up(8 + 4 * self.batch) + self.batch * self.words_bytes

    @property
    def depth(self) -> int:
        return self.tiling.words(self.hidden)

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        quantized = 64 + ranges_bytes(self.backend, self.size) + round_up(self.size) + self.product.scratch_bytes
        return super().scratch_bytes(inputs, outputs) + self.backend.threads * self.slot_bytes + quantized

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        self.w_scale, self.w_zero, self.r_scale, self.r_zero = (tensor.constant for tensor in inputs[8:])
        super().on_resize([*inputs[:7], None], outputs, scratch)

    def _record_inputs(self, x: DeviceTensor, w: DeviceTensor, b: DeviceTensor | None, gates: int, spare: int) -> None:
        """x as a whole in bytes, then their product with w."""
        scale = self._x_scale(spare)
        zero, ranges = scale + 4, scale + 64
        quantized = ranges + ranges_bytes(self.backend, self.size)
        record_dynamic(self.backend, x, ranges, quantized, scale, zero)

        def pack(a: np.ndarray) -> Weights:
            columns = self.gates.spread(a.swapaxes(1, 2)).reshape(self.gates.columns, self.inputs)
            return self.product.pack(columns.T)

        weights = Weights(*self.backend.packed(self._key("w"), w.constant, pack))
        panels, sums = address_of(weights.panels), address_of(weights.sums)
        finish, scratch = Finish(np.dtype("int32")), quantized + round_up(self.size)
        self.product.record_packed(quantized, Zero(zero, _UINT8), panels, sums, gates, scratch, finish, None, weights)

    def _recurrent_part(self, w: DeviceTensor, r: DeviceTensor, b: DeviceTensor | None) -> tuple[np.ndarray, np.ndarray]:
        bias = None if b is None else b.constant
        parameters = (self.w_scale, self.r_scale, self.r_zero, *(() if b is None else (bias,)))
        weights = self.backend.packed(self._key("r"), r.constant, self._panels)
        columns = self.backend.packed(self._key("columns", *parameters), r.constant, lambda a: self._columns(a, bias))
        return weights, columns

    def _panels(self, r: np.ndarray) -> np.ndarray:
        return self.gates.panels(self.tiling.signed_words(r.swapaxes(1, 2)))

    def _columns(self, r: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
        """The parameters of columns, see the argument block."""
        count = 4 * self.hidden
        bias = np.zeros((self.directions, 2 * count), _FLOAT32) if bias is None else bias
        sums = (r.astype(np.int32) + self.tiling.signed_zero(np.zeros(1, r.dtype))).sum(1, dtype=np.int32)
        rows = [
            self._per_unit(self.w_scale),
            self.gates.spread(bias[:, :count] + bias[:, count:]),
            self._per_unit(self.r_scale),
            self.gates.spread(sums),
            -self.tiling.signed_zero(self._per_unit(self.r_zero)),
        ]
        return np.ascontiguousarray(np.stack([row.view(np.int32) for row in rows], 2)).reshape(self.directions, -1)

    def _per_unit(self, parameter: np.ndarray) -> np.ndarray:
        """[D] or [D, 4 * H] → [D, blocks, 4, lanes]."""
        whole = np.broadcast_to(parameter.reshape(self.directions, -1), (self.directions, 4 * self.hidden))
        return self.gates.spread(whole)

    def _key(self, name: str, *arrays: np.ndarray) -> tuple:
        return ("quantized LSTM", name, self.tiling.columns, self.tiling.dot, *self.gates, *(a.tobytes() for a in arrays))

    def _x_scale(self, spare: int) -> int:
        """The address of x's scale in working memory."""
        return spare + self.backend.threads * self.slot_bytes

    def _record_steps(self, block: Recurrent, spare: int, keep: Any) -> None:
        tiling = self.tiling
        flags = np.zeros(self.backend.threads, np.int64)
        more = RecurrentBytes(
            words=self.depth,
            x_scale=self._x_scale(spare),
            flags=address_of(flags),
            slots=self.backend.threads,
            memory=spare,
            slot_bytes=self.slot_bytes,
            words_bytes=self.words_bytes,
        )
        layer = kernel("recurrent_bytes.layer", rows=tiling.rows_of(4), lanes=tiling.lanes, fma=tiling.fma, mode=tiling.dot)
        self._record_units(layer, arguments(*block, *more), self.batch, (flags, keep))  # sequences are quantized together: one tile
