"""NumPy executions of ONNX Runtime's quantization ops."""

from __future__ import annotations

import numpy as np

from mnnx.backends.cpu.numpy_executions.quantization import quantization_range
from mnnx.backends.cpu.numpy_executions.recurrent import Step, lstm_step, run_recurrent
from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.schema.ops.contrib_quantization import DequantizeBits, DynamicQuantizeLSTM


def _unpacked(packed: np.ndarray, bits: int) -> np.ndarray:
    """uint8 [..., n] → the 8 / bits values in each byte, low ones first, [..., n * 8 / bits]."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    values = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return values.reshape(*packed.shape[:-1], -1)


@numpy_execution(DequantizeBits)
def dequantize_bits(op: DequantizeBits, packed: np.ndarray, scales: np.ndarray, zero_points: np.ndarray | None = None) -> np.ndarray:
    weights = _unpacked(packed.reshape(op.rows, op.blocks, -1), op.bits).astype(np.float32)
    if zero_points is None:
        offset = np.float32(1 << (op.bits - 1))
    elif zero_points.dtype == np.uint8:
        offset = _unpacked(zero_points.reshape(op.rows, -1), op.bits)[:, : op.blocks, None].astype(np.float32)
    else:
        offset = zero_points.reshape(op.rows, op.blocks, 1).astype(np.float32)
    real = (weights - offset) * scales.reshape(op.rows, op.blocks, 1).astype(np.float32)
    return np.ascontiguousarray(real.reshape(op.rows, -1)[:, : op.columns]).astype(scales.dtype, copy=False)


def _rounded(x: np.ndarray) -> np.ndarray:
    """x rounded to the 256 values that DynamicQuantizeLinear keeps of it."""
    scale, zero_point = quantization_range(x)
    zero = zero_point.astype(np.float32)
    return (np.clip(np.rint(x / scale) + zero, 0, 255) - zero) * scale


def _real_weights(weights: np.ndarray, scale: np.ndarray, zero_point: np.ndarray) -> np.ndarray:
    """[D, inputs, 4 * H] quantized → [D, 4 * H, inputs] in floats."""
    scale, zero_point = (parameter.reshape(len(weights), 1, -1).astype(np.float32) for parameter in (scale, zero_point))
    return ((weights.astype(np.float32) - zero_point) * scale).transpose(0, 2, 1)


@numpy_execution(DynamicQuantizeLSTM)
def dynamic_quantize_lstm(
    op: DynamicQuantizeLSTM, x, w, r, b, sequence_lens, initial_h, initial_c, p, w_scale, w_zero, r_scale, r_zero
) -> tuple[np.ndarray, ...]:
    hidden = r.shape[1]
    recurrences = _real_weights(r, r_scale, r_zero)
    biases = np.zeros((op.directions, 4 * hidden), np.float32) if b is None else b[:, : 4 * hidden] + b[:, 4 * hidden :]

    def make_step(direction: int) -> Step:
        recurrence = recurrences[direction].T
        return lstm_step(op, direction, lambda h: _rounded(h) @ recurrence, None if p is None else p[direction])

    return run_recurrent(op, _rounded(x), _real_weights(w, w_scale, w_zero), list(biases), sequence_lens, (initial_h, initial_c), make_step)
