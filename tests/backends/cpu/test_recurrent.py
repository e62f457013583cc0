"""Native recurrent layers against their formulas, step by step in float64."""

import itertools

import numpy as np
import pytest

from mnnx.backends.cpu.executions import recurrent_plan
from mnnx.backends.cpu.executions.recurrent_plan import GateLayout, units
from mnnx.errors import InputError
from mnnx.schema.ops.recurrent import GRU, LSTM, RNN
from tests.backends.cpu.native import Native
from tests.backends.cpu.run import cpu

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


def test_lengths_out_of_range_are_reported_and_touch_no_foreign_memory():
    op = LSTM()
    x, w, r = f32(3, 2, 4), f32(1, 20, 4), f32(1, 20, 5)
    lengths = np.array([-5, 1000], np.int32)
    native = Native(op, x, w, r, None, lengths, constants=(1, 2))
    with pytest.raises(InputError, match="sequence_lens must be in 0 … 3, not -5"):
        native.run()
    every = native.outputs[0].copy_to_host()
    assert not every[:, :, 0].any()
    np.testing.assert_allclose(
        every[:, :, 1], layer(op, x, w, r, np.zeros((1, 40)), [0, 3], *np.zeros((2, 1, 2, 5)))[0][:, :, 1], atol=1e-5
    )


@pytest.fixture
def eager(monkeypatch):
    """Hands over at every stage for the least work, and leaves what comes after a few stages to one unit."""
    monkeypatch.setattr(recurrent_plan, "_SHARE", 1)
    monkeypatch.setattr(recurrent_plan, "_MOST", 5)
    monkeypatch.setattr(recurrent_plan, "_CHUNK", 1)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("direction", ["reverse", "bidirectional"])
@pytest.mark.parametrize(("batch", "hidden", "threads"), [(1, 50, 2), (3, 33, 3), (5, 64, 2), (13, 20, 4)])
def test_steps_shared_by_threads(name, direction, batch, hidden, threads):
    kind, attributes = OPS[name]
    op, steps, inputs = kind(direction=direction, **attributes), 8, 6
    d, g = op.directions, op.gates
    x, w, r = f32(steps, batch, inputs), 0.3 * f32(d, g * hidden, inputs), 0.2 * f32(d, g * hidden, hidden)
    b, h, c = f32(d, 2 * g * hidden), f32(d, batch, hidden), f32(d, batch, hidden)
    lengths = RNG.integers(0, steps + 1, batch).astype(np.int32)
    c = c if kind is LSTM else np.zeros_like(c)
    expected = layer(op, x, w, r, b, lengths, h, c)
    states = (h, c) if kind is LSTM else (h,)
    count = 3 if kind is LSTM else 2
    runs = Native(op, x, w, r, b, lengths, *states, constants=(1, 2, 3), outputs=count, threads=threads)
    for _ in range(3):
        for got, want in zip(runs.run(), expected, strict=False):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=3e-5)


@pytest.mark.usefixtures("tiling")
@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize(("batch", "hidden"), [(1, 9), (2, 16), (7, 35)])
def test_layers_in_tiles_of_other_machines(name, batch, hidden):
    test_layer(name, "bidirectional", 3, batch, 5, hidden, True)


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_infinite_inputs_stay_where_they_are(name):
    kind, attributes = OPS[name]
    op, x = kind(**attributes), f32(3, 2, 4)
    x[1, 1, 2] = np.inf
    w, r = 0.1 + np.abs(f32(1, op.gates * 5, 4)), f32(1, op.gates * 5, 5)
    every, *_ = Native(op, x, w, r).run()
    expected, *_ = layer(op, x, w, r, np.zeros((1, 2 * op.gates * 5)), None, *np.zeros((2, 1, 2, 5)))
    np.testing.assert_allclose(every, expected, atol=1e-5)


@pytest.mark.parametrize("stages", [1, 7, 100, 20000])
@pytest.mark.parametrize("threads", [1, 2, 3, 4, 8])
@pytest.mark.parametrize(("directions", "batch", "hidden"), [(1, 1, 16), (1, 1, 400), (2, 1, 512), (1, 3, 64), (2, 40, 256)])
def test_units_take_every_stage_once_and_are_few(stages, threads, directions, batch, hidden):
    gates = GateLayout(directions, hidden, 16, (4,))
    made = list(units(cpu(threads), gates, stages, batch * gates.blocks * (4 * hidden + 100), batch, 6))
    assert [unit.first for unit in made] == [0, *(unit.last for unit in made[:-1])]
    assert made[-1].last == stages
    assert len(made) <= 4097
    assert all(unit.column_parts == 1 or unit.last - unit.first == 1 for unit in made)
