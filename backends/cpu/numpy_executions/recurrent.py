"""Recurrent networks, one step at a time over the whole batch; the products with the inputs are made for all steps at once."""

from collections.abc import Callable

import numpy as np

from mnnx.backends.cpu.numpy_executions.precision import widened
from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.schema.ops.base import require
from mnnx.schema.ops.recurrent import GRU, LSTM, RNN, Activation, Recurrent, illegal_lengths

_FUNCTIONS: dict[str, Callable[[np.ndarray, float, float], np.ndarray]] = {
    "Affine": lambda x, alpha, beta: alpha * x + beta,
    "Elu": lambda x, alpha, beta: np.where(x >= 0, x, alpha * np.expm1(np.minimum(x, 0))),
    "HardSigmoid": lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1),
    "LeakyRelu": lambda x, alpha, beta: np.where(x >= 0, x, alpha * x),
    "Relu": lambda x, alpha, beta: np.maximum(x, 0),
    "ScaledTanh": lambda x, alpha, beta: alpha * np.tanh(beta * x),
    "Sigmoid": lambda x, alpha, beta: 1 / (1 + np.exp(-x)),
    "Softplus": lambda x, alpha, beta: np.logaddexp(x, 0),
    "Softsign": lambda x, alpha, beta: x / (1 + np.abs(x)),
    "Tanh": lambda x, alpha, beta: np.tanh(x),
    "ThresholdedRelu": lambda x, alpha, beta: np.where(x >= alpha, x, 0),
}

Step = Callable[[np.ndarray, tuple[np.ndarray, ...]], tuple[np.ndarray, ...]]


def activation_functions(op: Recurrent, direction: int) -> list[Callable[[np.ndarray], np.ndarray]]:
    """The activations of a direction, the inputs of the gates' ones clipped: all but LSTM's last, which reads the cell state."""

    def bound(activation: Activation, clip: float | None) -> Callable[[np.ndarray], np.ndarray]:
        function = _FUNCTIONS[activation.name]
        return lambda x: function(x if clip is None else np.clip(x, -clip, clip), activation.alpha, activation.beta)

    return [bound(activation, op.clip if index < 2 else None) for index, activation in enumerate(op.functions[direction])]


def run_recurrent(
    op: Recurrent,
    x: np.ndarray,
    w: np.ndarray,
    biases: list[np.ndarray],
    sequence_lens: np.ndarray | None,
    initial: tuple[np.ndarray | None, ...],
    make_step: Callable[[int], Step],
) -> tuple[np.ndarray, ...]:
    """All hidden states and the last states. A step gets the inputs' products with w plus bias, and the states, the hidden one first."""
    wide = widened(x if not op.layout else x.swapaxes(0, 1))
    length, batch, _ = wide.shape
    hidden = w.shape[1] // op.gates
    lengths = np.full(batch, length) if sequence_lens is None else sequence_lens.astype(np.int64)
    illegal = lengths[(lengths < 0) | (lengths > length)]
    require(not illegal.size, illegal_lengths(length).format(", ".join(map(str, illegal))))
    steps = np.arange(length)[:, None]
    active = steps < lengths
    y = np.zeros((length, op.directions, batch, hidden), wide.dtype)
    last = [np.zeros((op.directions, batch, hidden), wide.dtype) for _ in initial]
    for direction in range(op.directions):
        order = (
            np.where(active, lengths - 1 - steps, steps) if op.direction == "reverse" or direction else np.broadcast_to(steps, active.shape)
        )
        rows = np.arange(batch)
        inputs = np.matmul(wide[order, rows], widened(w[direction]).T) + biases[direction]
        states = tuple(_initial(op, state, direction, (batch, hidden), wide.dtype) for state in initial)
        step = make_step(direction)
        for time in range(length):
            on = active[time][:, None]
            new = step(inputs[time], states)
            states = tuple(np.where(on, after, before) for after, before in zip(new, states, strict=True))
            y[order[time], direction, rows] = np.where(on, new[0], 0)
        for array, state in zip(last, states, strict=True):
            array[direction] = np.where(lengths[:, None] > 0, state, 0)
    if op.layout:
        y, last = y.transpose(2, 0, 1, 3), [array.swapaxes(0, 1) for array in last]
    return tuple(array.astype(x.dtype, copy=False) for array in (y, *last))


def _initial(op: Recurrent, state: np.ndarray | None, direction: int, shape: tuple[int, int], dtype: np.dtype) -> np.ndarray:
    if state is None:
        return np.zeros(shape, dtype)
    return widened(state[:, direction] if op.layout else state[direction]).astype(dtype)


def _halves(op: Recurrent, b: np.ndarray | None, r: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The biases that belong to w and to r, [D, gates * H] each."""
    width = op.gates * r.shape[2]
    if b is None:
        b = np.zeros((op.directions, 2 * width), r.dtype)
    return widened(b)[:, :width], widened(b)[:, width:]


@numpy_execution(RNN)
def rnn(
    op: RNN,
    x: np.ndarray,
    w: np.ndarray,
    r: np.ndarray,
    b: np.ndarray | None = None,
    sequence_lens: np.ndarray | None = None,
    initial_h: np.ndarray | None = None,
) -> tuple[np.ndarray, ...]:
    of_w, of_r = _halves(op, b, r)

    def make_step(direction: int) -> Step:
        (f,) = activation_functions(op, direction)
        recurrence = widened(r[direction]).T
        return lambda inputs, states: (f(inputs + states[0] @ recurrence),)

    return run_recurrent(op, x, w, list(of_w + of_r), sequence_lens, (initial_h,), make_step)


@numpy_execution(GRU)
def gru(
    op: GRU,
    x: np.ndarray,
    w: np.ndarray,
    r: np.ndarray,
    b: np.ndarray | None = None,
    sequence_lens: np.ndarray | None = None,
    initial_h: np.ndarray | None = None,
) -> tuple[np.ndarray, ...]:
    of_w, of_r = _halves(op, b, r)
    hidden = r.shape[2]

    def make_step(direction: int) -> Step:
        f, g = activation_functions(op, direction)
        recurrence, bias = widened(r[direction]).T, of_r[direction]

        def step(inputs: np.ndarray, states: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
            h = states[0]
            gates = f(inputs[:, : 2 * hidden] + h @ recurrence[:, : 2 * hidden] + bias[: 2 * hidden])
            update, reset = gates[:, :hidden], gates[:, hidden:]
            if op.linear_before_reset:
                candidate = reset * (h @ recurrence[:, 2 * hidden :] + bias[2 * hidden :])
            else:
                candidate = (reset * h) @ recurrence[:, 2 * hidden :] + bias[2 * hidden :]
            return ((1 - update) * g(inputs[:, 2 * hidden :] + candidate) + update * h,)

        return step

    return run_recurrent(op, x, w, list(of_w), sequence_lens, (initial_h,), make_step)


def lstm_step(op: Recurrent, direction: int, recurrent: Callable[[np.ndarray], np.ndarray], p: np.ndarray | None) -> Step:
    """An LSTM's step. `recurrent` multiplies hidden states [N, H] by the recurrent weights → [N, 4 * H]; p: the peepholes [3 * H]."""
    f, g, output = activation_functions(op, direction)
    peep_i, peep_o, peep_f = (0, 0, 0) if p is None else np.split(p, 3)

    def step(inputs: np.ndarray, states: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        h, c = states
        for_i, for_o, for_f, for_c = np.split(inputs + recurrent(h), 4, axis=1)
        write = f(for_i + peep_i * c)
        keep = 1 - write if op.input_forget else f(for_f + peep_f * c)
        c = keep * c + write * g(for_c)
        return f(for_o + peep_o * c) * output(c), c

    return step


@numpy_execution(LSTM)
def lstm(
    op: LSTM,
    x: np.ndarray,
    w: np.ndarray,
    r: np.ndarray,
    b: np.ndarray | None = None,
    sequence_lens: np.ndarray | None = None,
    initial_h: np.ndarray | None = None,
    initial_c: np.ndarray | None = None,
    p: np.ndarray | None = None,
) -> tuple[np.ndarray, ...]:
    of_w, of_r = _halves(op, b, r)

    def make_step(direction: int) -> Step:
        recurrence = widened(r[direction]).T
        return lstm_step(op, direction, lambda h: h @ recurrence, None if p is None else widened(p[direction]))

    return run_recurrent(op, x, w, list(of_w + of_r), sequence_lens, (initial_h, initial_c), make_step)
