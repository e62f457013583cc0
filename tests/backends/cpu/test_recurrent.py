"""Native recurrent layers against their formulas, step by step in float64."""

import itertools

import numpy as np
import pytest

from mnnx.schema.ops.recurrent import GRU, LSTM, RNN
from tests.backends.cpu.native import Native

RNG = np.random.default_rng(11)


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def step(op, x, w, r, b, h, c):
    """One sequence's next hidden and cell state, from the equations of the ONNX operators."""
    wb, rb = np.split(b, 2)
    inputs, recurrent = np.split(w @ x + wb, op.gates), np.split(r @ h + rb, op.gates)
    if isinstance(op, LSTM):
        i, o, f = (sigmoid(inputs[n] + recurrent[n]) for n in range(3))
        c = f * c + i * np.tanh(inputs[3] + recurrent[3])
        return o * np.tanh(c), c
    if isinstance(op, GRU):
        z, reset = (sigmoid(inputs[n] + recurrent[n]) for n in range(2))
        last = np.split(r, 3)[2]
        add = reset * recurrent[2] if op.linear_before_reset else last @ (reset * h) + np.split(rb, 3)[2]
        return (1 - z) * np.tanh(inputs[2] + add) + z * h, c
    total = inputs[0] + recurrent[0]
    return np.maximum(total, 0) if op.activations[:1] == ("Relu",) else np.tanh(total), c


def layer(op, x, w, r, b, lengths, initial_h, initial_c):
    """All hidden states [L, D, N, H] and the last states [D, N, H], for x [L, N, I]."""
    steps, batch, directions, hidden = x.shape[0], x.shape[1], w.shape[0], r.shape[2]
    every, last_h, last_c = np.zeros((steps, directions, batch, hidden)), *np.zeros((2, directions, batch, hidden))
    for direction, item in itertools.product(range(directions), range(batch)):
        length = steps if lengths is None else lengths[item]
        h, c = initial_h[direction, item].astype(float), initial_c[direction, item].astype(float)
        backwards = op.direction == "reverse" or direction == 1
        for time in reversed(range(length)) if backwards else range(length):
            h, c = step(op, x[time, item].astype(float), *(p[direction].astype(float) for p in (w, r, b)), h, c)
            every[time, direction, item] = h
        if length:
            last_h[direction, item], last_c[direction, item] = h, c
    return every, last_h, last_c


OPS = {
    "lstm": (LSTM, {}),
    "gru": (GRU, {}),
    "gru-linear": (GRU, {"linear_before_reset": True}),
    "rnn": (RNN, {}),
    "rnn-relu": (RNN, {"activations": ("Relu", "Relu")}),
}


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize(
    ("steps", "batch", "inputs", "hidden", "optional"),
    [(5, 1, 7, 9, False), (4, 3, 16, 16, True), (3, 11, 5, 33, True), (1, 1, 1, 1, False)],
)
def test_layer(name, direction, steps, batch, inputs, hidden, optional):
    kind, attributes = OPS[name]
    op = kind(direction=direction, **attributes)
    d, g = op.directions, op.gates
    x, w, r = f32(steps, batch, inputs), 0.3 * f32(d, g * hidden, inputs), 0.3 * f32(d, g * hidden, hidden)
    b, h, c = f32(d, 2 * g * hidden), f32(d, batch, hidden), f32(d, batch, hidden)
    lengths = RNG.integers(0, steps + 1, batch).astype(np.int32)
    if not optional:
        b, h, c, lengths = np.zeros_like(b), np.zeros_like(h), np.zeros_like(c), None
    expected = layer(op, x, w, r, b, lengths, h, c if kind is LSTM else np.zeros_like(c))
    states = (h, c) if kind is LSTM else (h,)
    given = (b, lengths, *states) if optional else ()
    count = 3 if kind is LSTM else 2
    for got, want in zip(Native(op, x, w, r, *given, constants=(1, 2, 3), outputs=count, threads=2).run(), expected, strict=False):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-5)
    batch_first = op.replace(layout=True)
    states = [np.ascontiguousarray(s.swapaxes(0, 1)) for s in states]
    given = (b, lengths, *states) if optional else ()
    results = Native(batch_first, np.ascontiguousarray(x.swapaxes(0, 1)), w, r, *given, constants=(1, 2, 3), outputs=count).run()
    np.testing.assert_allclose(results[0], expected[0].transpose(2, 0, 1, 3), rtol=1e-4, atol=2e-5)
    np.testing.assert_allclose(results[1], expected[1].swapaxes(0, 1), rtol=1e-4, atol=2e-5)


@pytest.mark.usefixtures("tiling")
def test_lstm_in_tiles_of_other_machines():
    test_layer("lstm", "bidirectional", 3, 11, 5, 33, True)


def test_lengths_out_of_range_touch_no_foreign_memory():
    op = LSTM()
    x, w, r = f32(3, 2, 4), f32(1, 20, 4), f32(1, 20, 5)
    lengths = np.array([-5, 1000], np.int32)
    every, *_ = Native(op, x, w, r, None, lengths, constants=(1, 2)).run()
    assert not every[:, :, 0].any()
    np.testing.assert_allclose(
        every[:, :, 1], layer(op, x, w, r, np.zeros((1, 40)), [0, 3], *np.zeros((2, 1, 2, 5)))[0][:, :, 1], atol=1e-5
    )
