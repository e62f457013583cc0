"""Recurrent networks in all directions against a naive computation: one sequence, one step and one unit vector at a time."""

import math

import numpy as np

from mnnx.schema.ops.recurrent import GRU, LSTM, RNN
from tests.cases import case, f16, f32, f64

FUNCTIONS = {
    "Sigmoid": lambda x, a, b: 1 / (1 + math.exp(-x)),
    "Tanh": lambda x, a, b: math.tanh(x),
    "Relu": lambda x, a, b: max(x, 0.0),
    "HardSigmoid": lambda x, a, b: max(0.0, min(1.0, a * x + b)),
    "LeakyRelu": lambda x, a, b: x if x >= 0 else a * x,
    "ScaledTanh": lambda x, a, b: a * math.tanh(b * x),
    "Softsign": lambda x, a, b: x / (1 + abs(x)),
}
DEFAULTS = {RNN: ["Tanh"], GRU: ["Sigmoid", "Tanh"], LSTM: ["Sigmoid", "Tanh", "Tanh"]}


def reference_of(op, alpha=0.0, beta=0.0):
    """The naive computation for `op`; `alpha` and `beta` are those of all its activations that have them."""
    names = list(op.activations) or DEFAULTS[type(op)] * 2

    def apply(index, direction, x, clip=op.clip):
        function = FUNCTIONS[names[index + direction * len(DEFAULTS[type(op)])]]
        limit = math.inf if clip is None else clip
        return np.array([function(float(min(max(v, -limit), limit)), alpha, beta) for v in x])

    def step(direction, x, h, c, w, r, wb, rb, p):
        size = len(h)
        part = [slice(i * size, (i + 1) * size) for i in range(op.gates)]
        linear = [w[s] @ x + wb[s] for s in part]
        again = [r[s] @ h + rb[s] for s in part]
        if isinstance(op, RNN):
            return apply(0, direction, linear[0] + again[0]), c
        if isinstance(op, GRU):
            z, reset = (apply(0, direction, linear[i] + again[i]) for i in (0, 1))
            inner = reset * again[2] if op.linear_before_reset else r[part[2]] @ (reset * h) + rb[part[2]]
            return (1 - z) * apply(1, direction, linear[2] + inner) + z * h, c
        i = apply(0, direction, linear[0] + again[0] + p[part[0]] * c)
        f = 1 - i if op.input_forget else apply(0, direction, linear[2] + again[2] + p[part[2]] * c)
        c = f * c + i * apply(1, direction, linear[3] + again[3])
        o = apply(0, direction, linear[1] + again[1] + p[part[1]] * c)
        return o * apply(2, direction, c, clip=None), c

    def reference(x, w, r, b=None, lengths=None, initial_h=None, initial_c=None, p=None):
        dtype, size = x.dtype, r.shape[2]
        x, w, r = (a.astype(np.float64) for a in (x if not op.layout else x.swapaxes(0, 1), w, r))
        length, batch, _ = x.shape
        b = np.zeros((len(w), 2 * op.gates * size)) if b is None else b.astype(np.float64)
        p = np.zeros((len(w), 3 * size)) if p is None else p.astype(np.float64)
        lengths = [length] * batch if lengths is None else lengths
        y, last_h, last_c = np.zeros((length, len(w), batch, size)), np.zeros((len(w), batch, size)), np.zeros((len(w), batch, size))
        for d in range(len(w)):
            for n in range(batch):
                h, c = (
                    np.zeros(size) if s is None else (s[n, d] if op.layout else s[d, n]).astype(np.float64) for s in (initial_h, initial_c)
                )
                order = range(lengths[n])
                for t in reversed(order) if op.direction == "reverse" or d else order:
                    h, c = step(d, x[t, n], h, c, w[d], r[d], *np.split(b[d], 2), p[d])
                    y[t, d, n] = h
                last_h[d, n], last_c[d, n] = h, c
        if op.layout:
            y, last_h, last_c = y.transpose(2, 0, 1, 3), last_h.swapaxes(0, 1), last_c.swapaxes(0, 1)
        outputs = (y, last_h, last_c) if isinstance(op, LSTM) else (y, last_h)
        return tuple(o.astype(dtype) for o in outputs)

    return reference


def row(op, *inputs, alpha=0.0, beta=0.0, **tolerances):
    case(op, *inputs, reference=reference_of(op, alpha, beta), outputs=3 if isinstance(op, LSTM) else 2, **tolerances)


def inputs(op_class, directions=1, floats=f32, length=4, batch=3, width=5, hidden=6):
    gates = op_class.gates
    return (
        floats(length, batch, width),
        floats(directions, gates * hidden, width, low=-1, high=1),
        floats(directions, gates * hidden, hidden, low=-1, high=1),
        floats(directions, 2 * gates * hidden),
    )


LENGTHS = np.array([4, 1, 3], np.int32)

for op_class in (RNN, GRU, LSTM):
    row(op_class(hidden_size=6), *inputs(op_class)[:3])
    row(op_class(), *inputs(op_class))
    row(op_class(direction="reverse"), *inputs(op_class), None, f32(1, 3, 6))
    row(op_class(direction="bidirectional"), *inputs(op_class, 2))
    row(op_class(direction="bidirectional"), *inputs(op_class, 2), LENGTHS, f32(2, 3, 6))
    row(op_class(direction="reverse"), *inputs(op_class), LENGTHS)
    row(op_class(clip=0.4), *inputs(op_class))
    row(op_class(layout=True), *inputs(op_class, length=3, batch=2), None, f32(3, 1, 6))
    row(op_class(), *inputs(op_class, length=1, batch=1, width=17, hidden=16))
    row(op_class(), *inputs(op_class, batch=0))
    row(op_class(), *inputs(op_class, floats=f64))
    row(op_class(), *inputs(op_class, floats=f16), rtol=2e-2, atol=2e-2)
    for batch, hidden in ((1, 23), (3, 16), (5, 50)):
        lengths = np.arange(batch, dtype=np.int32)
        row(op_class(), *inputs(op_class, batch=batch, hidden=hidden, width=3))
        row(op_class(direction="bidirectional"), *inputs(op_class, 2, batch=batch, hidden=hidden, width=3), lengths)
row(GRU(linear_before_reset=True), *inputs(GRU), None, f32(1, 3, 6))
row(GRU(linear_before_reset=True, direction="bidirectional"), *inputs(GRU, 2, batch=5, hidden=50), None, f32(2, 5, 50))
row(GRU(activations=("HardSigmoid", "LeakyRelu"), activation_alpha=(0.3, 0.3), activation_beta=(0.4,)), *inputs(GRU), alpha=0.3, beta=0.4)
row(LSTM(direction="bidirectional"), *inputs(LSTM, 2), LENGTHS, f32(2, 3, 6), f32(2, 3, 6), f32(2, 18))
row(LSTM(input_forget=True), *inputs(LSTM), None, None, f32(1, 3, 6))
row(
    LSTM(activations=("Sigmoid", "Softsign", "ScaledTanh"), activation_alpha=(1.2,), activation_beta=(0.7,)),
    *inputs(LSTM),
    alpha=1.2,
    beta=0.7,
)
row(RNN(activations=("Relu",)), *inputs(RNN))
row(RNN(activations=("LeakyRelu", "Relu"), activation_alpha=(0.2,), direction="bidirectional"), *inputs(RNN, 2), LENGTHS, alpha=0.2)
for op_class in (RNN, GRU, LSTM):
    row(op_class(), *inputs(op_class, length=0))
    row(op_class(), *inputs(op_class, width=0))
    row(op_class(layout=True), *inputs(op_class, length=3, batch=4, hidden=17), LENGTHS, f32(3, 1, 17))
    row(op_class(layout=True, direction="bidirectional"), *inputs(op_class, 2, length=3, batch=4), LENGTHS, f32(3, 2, 6))
    row(op_class(direction="reverse", clip=0.5), *inputs(op_class, batch=9, hidden=70), np.array([0, 1, 2, 3, 4, 4, 3, 2, 1], np.int32))
    row(op_class(), *inputs(op_class, batch=4, width=1, hidden=1))
row(GRU(linear_before_reset=True), *inputs(GRU)[:3], None, None, f32(1, 3, 6))
row(GRU(linear_before_reset=True, clip=0.3, layout=True), *inputs(GRU, length=3, batch=6, hidden=20), None, f32(3, 1, 20))
row(
    LSTM(layout=True, clip=0.7, input_forget=True, direction="bidirectional"),
    *inputs(LSTM, 2, length=3, batch=6, hidden=20),
    *(None, f32(3, 2, 20), f32(3, 2, 20), f32(2, 60)),
)
row(
    LSTM(activations=("HardSigmoid", "Relu", "LeakyRelu"), activation_alpha=(0.3, 0.3), activation_beta=(0.4,)),
    *inputs(LSTM, hidden=33),
    *(None, None, f32(1, 3, 33)),
    alpha=0.3,
    beta=0.4,
)
