"""One-layer recurrent networks. L steps of a batch of N, I inputs, H hidden units, D directions (2 where bidirectional).

Shapes: x [L, N, I]; w [D, gates * H, I]; r [D, gates * H, H]; b [D, 2 * gates * H] (of w, then of r); sequence_lens [N]; initial states
[D, N, H]. Outputs: all hidden states [L, D, N, H], 0 beyond a sequence's end, and each sequence's last states [D, N, H], 0 for a
sequence of length 0. With layout 1 N comes first everywhere. A reverse direction reads each sequence from its own end.
"""

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from mnnx.schema.ops.base import Op, Spec, op, require
from mnnx.schema.ops.rules import LIMIT, require_floats, require_shape
from mnnx.schema.records import Row

#: The activations that recurrent ops know: their default alpha and beta, None where they have none.
ACTIVATIONS: dict[str, tuple[float | None, float | None]] = {
    "Affine": (1.0, 0.0),
    "Elu": (1.0, None),
    "HardSigmoid": (0.2, 0.5),
    "LeakyRelu": (0.01, None),
    "Relu": (None, None),
    "ScaledTanh": (1.0, 1.0),
    "Sigmoid": (None, None),
    "Softplus": (None, None),
    "Softsign": (None, None),
    "Tanh": (None, None),
    "ThresholdedRelu": (1.0, None),
}
_BY_LOWER = {name.lower(): name for name in ACTIVATIONS}


def illegal_lengths(steps: int) -> str:
    """What is wrong with sequence_lens, with a place for the illegal one."""
    return f"sequence_lens must be in 0 … {steps}, not {{}}"


class Activation(Row):
    """One activation with its parameters; those that it doesn't have are 0."""

    name: str
    alpha: float
    beta: float


class Recurrent(Op):
    """What LSTM, GRU and RNN share."""

    gates: ClassVar[int]
    default_activations: ClassVar[tuple[str, ...]]

    activation_alpha: tuple[float, ...] = ()
    activation_beta: tuple[float, ...] = ()
    activations: tuple[str, ...] = ()
    clip: float | None = None
    direction: str = "forward"
    hidden_size: int | None = None
    layout: bool = False

    def check(self) -> None:
        directions = ("forward", "reverse", "bidirectional")
        require(self.direction in directions, f"direction must be one of {', '.join(directions)}; it is {self.direction!r}")
        require(self.hidden_size is None or 0 < self.hidden_size < LIMIT, f"hidden_size must be positive; it is {self.hidden_size}")
        require(self.clip is None or self.clip > 0, f"clip must be positive; it is {self.clip}")
        per_direction = len(self.default_activations)
        counts = (0, per_direction * self.directions, 2 * per_direction)  # ONNX's default for RNN lists two, whatever the direction
        require(len(self.activations) in counts, f"there must be {counts[1]} activations; they are {list(self.activations)}")
        for name in self.activations:
            require(name.lower() in _BY_LOWER, f"the activations must be among {', '.join(ACTIVATIONS)}; found {name!r}")

    @property
    def directions(self) -> int:
        return 2 if self.direction == "bidirectional" else 1

    @property
    def functions(self) -> tuple[tuple[Activation, ...], ...]:
        """The activations of each direction. Those that have an alpha or beta take the next one given, or their default."""
        per_direction = len(self.default_activations)
        alphas, betas = iter(self.activation_alpha), iter(self.activation_beta)
        result = []
        for name in self.activations[: per_direction * self.directions] or self.default_activations * self.directions:
            name = _BY_LOWER[name.lower()]
            alpha, beta = ACTIVATIONS[name]
            result.append(Activation(name, 0 if alpha is None else next(alphas, alpha), 0 if beta is None else next(betas, beta)))
        return tuple(tuple(result[i : i + per_direction]) for i in range(0, len(result), per_direction))

    def infer_recurrent(
        self, x: Spec, w: Spec, r: Spec, b: Spec | None, sequence_lens: Spec | None, **states: Spec | None
    ) -> tuple[Spec, Spec]:
        """The Specs of all hidden states, and of a last state."""
        require_floats(x=x, w=w, r=r, b=b, **states)
        require(x.rank == w.rank == r.rank == 3, f"x, w and r must have rank 3; they are {x}, {w}, {r}")
        hidden, directions = r.shape[2], self.directions
        require(hidden > 0 and self.hidden_size in (None, hidden), f"hidden_size must be r's last dim {hidden}; it is {self.hidden_size}")
        batch, length = x.shape[:2] if self.layout else x.shape[1::-1]
        require_shape("w", w, (directions, self.gates * hidden, x.shape[2]))
        require_shape("r", r, (directions, self.gates * hidden, hidden))
        require_shape("b", b, (directions, 2 * self.gates * hidden))
        if sequence_lens is not None:
            require(sequence_lens.dtype == np.int32, f"sequence_lens must be int32; it is {sequence_lens}")
            require_shape("sequence_lens", sequence_lens, (batch,))
        state = (batch, directions, hidden) if self.layout else (directions, batch, hidden)
        for name, spec in states.items():
            require_shape(name, spec, state)
        every = (batch, length, directions, hidden) if self.layout else (length, directions, batch, hidden)
        return Spec(x.dtype, every), Spec(x.dtype, state)

    def flops(self, inputs: Sequence[Spec | None], outputs: Sequence[Spec | None]) -> int:
        return 2 * math.prod(inputs[0].shape[:2]) * (inputs[1].size + inputs[2].size)


@op("LSTM")
class LSTM(Recurrent):
    """Long short-term memory; gates in the order i, o, f, c, peepholes p [D, 3 * H] in the order i, o, f. LSTM-22.

    i = f(x W + h R + b + p c), likewise f (or 1 - i with input_forget) and o, the latter with the new c; c = f c + i g(…); h = o h(c).
    The gates' activations have their inputs clipped to ±clip. Outputs: hidden states, last hidden state, last cell state.
    """

    gates = 4
    default_activations = ("Sigmoid", "Tanh", "Tanh")

    input_forget: bool = False

    def infer(
        self,
        x: Spec,
        w: Spec,
        r: Spec,
        b: Spec | None = None,
        sequence_lens: Spec | None = None,
        initial_h: Spec | None = None,
        initial_c: Spec | None = None,
        p: Spec | None = None,
    ) -> tuple[Spec, Spec, Spec]:
        every, last = self.infer_recurrent(x, w, r, b, sequence_lens, initial_h=initial_h, initial_c=initial_c)
        require_floats(x=x, p=p)
        require_shape("p", p, (self.directions, 3 * r.shape[2]))
        return every, last, last


@op("GRU")
class GRU(Recurrent):
    """Gated recurrent unit; gates in the order z, r, h. GRU-22.

    z, r = f(x W + h R + b); n = g(x W + (r h) R + b), or g(x W + r (h R + bR) + bW) with linear_before_reset; h = (1 - z) n + z h.
    Every activation's input is clipped to ±clip. Outputs: hidden states, last hidden state.
    """

    gates = 3
    default_activations = ("Sigmoid", "Tanh")

    linear_before_reset: bool = False

    def infer(
        self, x: Spec, w: Spec, r: Spec, b: Spec | None = None, sequence_lens: Spec | None = None, initial_h: Spec | None = None
    ) -> tuple[Spec, Spec]:
        return self.infer_recurrent(x, w, r, b, sequence_lens, initial_h=initial_h)


@op("RNN")
class RNN(Recurrent):
    """h = f(x W + h R + b), f's input clipped to ±clip. RNN-22. Outputs: hidden states, last hidden state."""

    gates = 1
    default_activations = ("Tanh",)

    def infer(
        self, x: Spec, w: Spec, r: Spec, b: Spec | None = None, sequence_lens: Spec | None = None, initial_h: Spec | None = None
    ) -> tuple[Spec, Spec]:
        return self.infer_recurrent(x, w, r, b, sequence_lens, initial_h=initial_h)
