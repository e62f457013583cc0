"""The native DynamicQuantizeLSTM against the LSTM's formulas on rounded operands."""

import numpy as np
import pytest

from mnnx.backends.cpu.executions import recurrent_plan
from mnnx.schema.ops.contrib_quantization import DynamicQuantizeLSTM
from tests.backends.cpu.native import Native
from tests.backends.cpu.test_recurrent import sigmoid

RNG = np.random.default_rng(17)


def rounded(x: np.ndarray) -> np.ndarray:
    """x as DynamicQuantizeLinear (ONNX) and DequantizeLinear would give it."""
    low, high = np.float32(min(x.min(), 0)), np.float32(max(x.max(), 0))
    scale = np.float32(1) if low == high else (high - low) / np.float32(255)
    zero = np.clip(np.rint(-low / scale), 0, 255)
    return (np.clip(np.rint(x / scale) + zero, 0, 255) - zero) * scale


@pytest.mark.usefixtures("tiling")
@pytest.mark.parametrize("per_unit", [False, True])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_quantized_lstm(dtype, per_unit):
    check_lstm(dtype, per_unit, batch=3, hidden=33, threads=2)


@pytest.mark.parametrize(("batch", "hidden", "threads"), [(1, 50, 3), (5, 6, 2), (9, 40, 4)])
def test_quantized_lstm_shared_by_threads(batch, hidden, threads, monkeypatch):
    monkeypatch.setattr(recurrent_plan, "_SHARE", 1)
    check_lstm("int8", True, batch, hidden, threads)


def check_lstm(dtype, per_unit, batch, hidden, threads):
    steps, inputs = 4, 16
    shape = (2, 4 * hidden) if per_unit else (2,)
    w, r = (RNG.integers(0, 100, (2, n, 4 * hidden)).astype(dtype) for n in (inputs, hidden))
    scales = [RNG.uniform(0.001, 0.01, shape).astype(np.float32) for _ in range(2)]
    zeros = [RNG.integers(0, 9, shape).astype(dtype) for _ in range(2)]
    x, b, h0, c0 = (RNG.standard_normal(s).astype(np.float32) for s in ((steps, batch, inputs), (2, 8 * hidden), *[(2, batch, hidden)] * 2))
    op = DynamicQuantizeLSTM(direction="bidirectional")
    given = (x, w, r, b, None, h0, c0, None, scales[0], zeros[0], scales[1], zeros[1])
    every, *_ = Native(op, *given, constants=(1, 2, 3, 8, 9, 10, 11), threads=threads).run()
    for direction in range(2):
        w_real, r_real = (
            (q[direction].astype(np.float32) - z.reshape(2, -1)[direction]) * s.reshape(2, -1)[direction]
            for q, s, z in zip((w, r), scales, zeros, strict=True)
        )
        h, c = h0[direction], c0[direction]
        for time in range(steps) if direction == 0 else reversed(range(steps)):
            total = rounded(x)[time] @ w_real + rounded(h) @ r_real + b[direction].reshape(2, -1).sum(0)
            i, o, f, g = np.split(total, 4, axis=1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            np.testing.assert_allclose(every[time, direction], h, atol=5e-3)
