"""ONNX Runtime's quantized LSTM on GPUs: one of floats, whose inputs and hidden states are rounded to 256 values as they come."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.gpu.constants import RANGE_GROUPS
from mnnx.backends.gpu.creators import creator
from mnnx.backends.gpu.executions.quantization import record_dynamic, steps_of_range
from mnnx.backends.gpu.executions.recurrent import RecurrentExecution, reason_against
from mnnx.backends.gpu.kernel import kernel
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.contrib_quantization import DynamicQuantizeLSTM


def supports(op: DynamicQuantizeLSTM, inputs: Specs, outputs: Specs) -> str | None:
    x, w, r, b, _, _, _, peepholes, *parameters = inputs
    if any(spec is not None and spec.value is None for spec in (w, r, b, peepholes, *parameters)):
        return "its weights, bias, peepholes, scales and zero points must be constant"
    return reason_against(op, x)


@creator(DynamicQuantizeLSTM, supports=supports)
def create(op: DynamicQuantizeLSTM, backend, inputs: Specs, outputs: Specs) -> Execution:
    return DynamicLSTMExecution(op, backend, inputs)


class DynamicLSTMExecution(RecurrentExecution):
    """w [D, I, 4 * H], r [D, H, 4 * H] in bytes, which the device has as floats. Further working memory: x's range, scale and zero point, x
    in bytes, and x as the bytes say."""

    rounds = True

    def __init__(self, op: DynamicQuantizeLSTM, backend, inputs: Specs):
        x, _, r = inputs[:3]
        super().__init__(op, backend, x, r.shape[1])
        self.parts = (*self.parts, 8 * RANGE_GROUPS, 4, 1, max(1, x.size), max(1, x.size) * self.item_bytes)

    def loop_steps(self, inputs: Specs, outputs: Specs) -> int:
        return max(super().loop_steps(inputs, outputs), steps_of_range(inputs[0].size))

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        scales = [tensor.constant for tensor in inputs[8:]]
        self.quantization = {"w": scales[:2], "r": scales[2:]}
        super().on_resize(inputs[:8], outputs, scratch)

    def _inputs(self, x: DeviceTensor, more: Sequence[DeviceTensor]) -> DeviceTensor:
        ends, scale, zero, integers, rounded = more
        total, commands = x.spec.size, self.backend.commands
        record_dynamic(self.backend, x, ends, integers, scale, zero, "float")
        if total:
            dequantize = kernel("quantization.dequantize", storage="uchar", scale="float", result=self.storage, coded=False)
            commands.record(dequantize, [integers, scale, zero, rounded], [total, 1, 1, 0, 0, 0, 1, 8, 0], (total,))
        return rounded

    def _real(self, weights: np.ndarray, name: str) -> np.ndarray:
        scale, zero = (parameter.reshape(self.directions, 1, -1).astype(np.float32) for parameter in self.quantization[name])
        return ((weights - zero) * scale).swapaxes(1, 2)

    def _parameters(self, name: str) -> tuple[bytes, ...]:
        return tuple(parameter.tobytes() for parameter in self.quantization.get(name, ()))
