"""NumPy executions of ONNX Runtime's quantization ops."""

from __future__ import annotations

import numpy as np

from mnnx.backends.cpu.numpy_executions.quantization import quantization_range
from mnnx.backends.cpu.numpy_executions.recurrent import Step, lstm_step, run_recurrent
from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.schema.ops.base import require
from mnnx.schema.ops.contrib_quantization import DequantizeBits, DequantizeBnb4, DynamicQuantizeLSTM, GatherBlockQuantized


def _unpacked(packed: np.ndarray, bits: int) -> np.ndarray:
    """uint8 [..., n] → the 8 / bits values in each byte, low ones first, [..., n * 8 / bits]."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    values = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return values.reshape(*packed.shape[:-1], -1)


@numpy_execution(DequantizeBits)
def dequantize_bits(
    op: DequantizeBits, packed: np.ndarray, scales: np.ndarray, zero_points: np.ndarray | None = None, blocks: np.ndarray | None = None
) -> np.ndarray:
    weights = _unpacked(packed.reshape(op.rows, -1), op.bits)[:, : op.columns].astype(np.float32)
    block = np.arange(op.columns) // op.block_size if blocks is None else blocks[: op.columns]
    legal = ((block >= 0) & (block < op.blocks)).all()
    require(legal, f"blocks must be in 0 … {op.blocks - 1}; found {block[:8]}")
    if zero_points is None:
        offset = np.float32(1 << (op.bits - 1))
    elif zero_points.dtype == np.uint8:
        offset = _unpacked(zero_points.reshape(op.rows, -1), op.bits)[:, block]
    else:
        offset = zero_points.reshape(op.rows, op.blocks)[:, block].astype(np.float32)
    real = (weights - offset) * scales.reshape(op.rows, op.blocks)[:, block].astype(np.float32)
    return np.ascontiguousarray(real).astype(scales.dtype, copy=False)


#: The values of bitsandbytes' 4-bit types, in the order of their codes (bitsandbytes' functional.py, get_4bit_type).
_FP4 = (0.0, 0.0625 / 12, 8 / 12, 1.0, 4 / 12, 6 / 12, 2 / 12, 3 / 12)
_NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334),
    *(-0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)


@numpy_execution(DequantizeBnb4)
def dequantize_bnb4(op: DequantizeBnb4, packed: np.ndarray, absmax: np.ndarray) -> np.ndarray:
    values = np.array(_NF4 if op.nf4 else (*_FP4, *(-value for value in _FP4)), np.float32)
    count = op.rows * op.columns
    real = values[_unpacked(packed.reshape(-1, 1), 4)[:, ::-1].reshape(-1)[:count]]
    scales = np.repeat(absmax.reshape(-1).astype(np.float32), op.block_size)[:count]
    return (real * scales).reshape(op.rows, op.columns).astype(absmax.dtype, copy=False)


@numpy_execution(GatherBlockQuantized)
def gather_block_quantized(
    op: GatherBlockQuantized, data: np.ndarray, indices: np.ndarray, scales: np.ndarray, zero_points: np.ndarray | None = None
) -> np.ndarray:
    axis, quantize, size = op.gather_axis % data.ndim, op.quantize_axis % data.ndim, data.shape[op.gather_axis]
    inside = (indices >= -size) & (indices < size)
    places = np.where(inside, np.where(indices < 0, indices + size, indices), 0).astype(np.intp)
    behind = quantize + indices.ndim - 1 if quantize > axis else quantize  # where quantize_axis comes to lie

    def entries(array: np.ndarray) -> np.ndarray:
        taken = np.take(array, places if array.shape[axis] > 1 else places * 0, axis)
        return (_unpacked(taken, op.bits) if array.dtype == np.uint8 else taken).astype(np.float32)

    shape = list(data.shape[:axis] + indices.shape + data.shape[axis + 1 :])
    shape[-1] *= 8 // op.bits if data.dtype == np.uint8 else 1
    if 0 in shape or data.size == 0:
        return np.zeros(shape, scales.dtype)
    block = op.block_size or shape[behind]
    spread = lambda parameter: np.take(parameter, np.arange(shape[behind]) // block, behind)  # noqa: E731
    offset = spread(entries(zero_points)) if zero_points is not None else 1 << (op.bits - 1) if data.dtype == np.uint8 else 0
    real = (entries(data) - offset) * spread(entries(scales))
    known = inside.reshape(inside.shape + (1,) * (data.ndim - 1 - axis))
    return np.where(known, real, 0).astype(scales.dtype)


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
