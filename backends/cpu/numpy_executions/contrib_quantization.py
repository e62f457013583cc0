"""NumPy executions of ONNX Runtime's quantization ops."""

from __future__ import annotations

import numpy as np

from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.schema.ops.contrib_quantization import DequantizeBits


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
