"""ONNX Runtime's quantized LSTM: the native LSTM on weights in floats, inputs and states rounded as they come."""

from __future__ import annotations

import numpy as np

from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.cpu.arguments import address_of, arguments
from mnnx.backends.cpu.creators import creator
from mnnx.backends.cpu.executions.pixel_product import round_up
from mnnx.backends.cpu.executions.quantization import record_linear
from mnnx.backends.cpu.executions.recurrent import RecurrentExecution
from mnnx.backends.cpu.kernel import kernel
from mnnx.backends.cpu.kernels.blocks import DynamicRange
from mnnx.backends.cpu.tiling import Tiling
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.base import Spec
from mnnx.schema.ops.contrib_quantization import DynamicQuantizeLSTM

_FLOAT32, _UINT8 = np.dtype("float32"), np.dtype("uint8")


def supports(op: DynamicQuantizeLSTM, inputs: Specs, outputs: Specs) -> str | None:
    x, w, r, b, lengths, _, _, peepholes, *parameters = inputs
    if any(spec is not None and spec.value is None for spec in (w, r, b, *parameters)):
        return "its weights, bias, scales and zero points must be constant"
    if peepholes is not None or op.input_forget or op.clip is not None or lengths is not None or op.layout:
        return "clip, input_forget, peepholes, sequence lengths and layout 1 are not native"
    if any(tuple(f.name for f in functions) != op.default_activations for functions in op.functions):
        return "only the default activations are native"
    if x.shape[1] > 4:
        return "only batches of up to 4 sequences are native"  # rounded together: they must fit in one tile
    return None


@creator(DynamicQuantizeLSTM, supports=supports)
def create(op: DynamicQuantizeLSTM, backend, inputs: Specs, outputs: Specs) -> Execution:
    return DynamicLSTMExecution(op, backend, inputs)


class DynamicLSTMExecution(RecurrentExecution):
    """w [D, I, 4 * H], r [D, H, 4 * H] in bytes."""

    def __init__(self, op: DynamicQuantizeLSTM, backend, inputs: Specs):
        x, w, r = inputs[:3]
        real = (Spec(_FLOAT32, (spec.shape[0], spec.shape[2], spec.shape[1])) for spec in (w, r))
        super().__init__(op, backend, [x, *real])
        self.size = x.size
        self.parts = max(1, min(x.size, backend.chunks(x.size / 8)))

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        return super().scratch_bytes(inputs, outputs) + 64 + round_up(8 * self.parts) + round_up(self.size) + 4 * self.size

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        names = ("w", "w", "r", "r")
        self.quantization = {"w": [], "r": []}
        for name, tensor in zip(names, inputs[8:], strict=True):
            self.quantization[name].append(tensor.constant)
        super().on_resize([*inputs[:7], None], outputs, scratch)

    def _inputs(self, x: DeviceTensor, scratch: int) -> int:
        """x rounded to 256 values: quantized and dequantized again."""
        scale, zero, ranges = scratch, scratch + 4, scratch + 64
        quantized = ranges + round_up(8 * self.parts)
        rounded = quantized + round_up(self.size)
        commands, lanes = self.backend.commands, Tiling.of(self.backend.target).lanes
        block = arguments(*DynamicRange(address_of(x), self.size, ranges, self.parts, scale, zero))
        commands.record(kernel("quantized.range", lanes=lanes), block, self.parts)
        commands.record(kernel("quantized.scale"), block)
        record_linear(self.backend, _FLOAT32, _UINT8, x.shape, 0, 1, address_of(x), quantized, scale, zero)
        record_linear(self.backend, _UINT8, _FLOAT32, x.shape, 0, 1, quantized, rounded, scale, zero)
        return rounded

    def _weights(self, name: str, weights: DeviceTensor) -> np.ndarray:
        scale, zero = (a.reshape(self.directions, 1, -1).astype(_FLOAT32) for a in self.quantization[name])

        def pack(w: np.ndarray) -> np.ndarray:
            return self._panels(np.swapaxes((w.astype(_FLOAT32) - zero) * scale, 1, 2))

        return self.backend.packed(("rounded LSTM", name, scale.tobytes(), zero.tobytes()), weights.constant, pack)

    def _formula(self) -> str:
        return "lstm rounded"
