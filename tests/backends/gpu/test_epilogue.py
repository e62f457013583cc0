"""The activations that fused products end in: small, large and special numbers, against float64."""

from __future__ import annotations

import math

import numpy as np
import pytest

import mnnx
from mnnx.schema.ops.fused import ACTIVATIONS, FusedMatMul
from mnnx.schema.writer import serialize
from tests.op_model import model_of

_ERF = np.vectorize(math.erf)
_PARAMETERS = {"Clip": (-0.5, 0.75), "LeakyRelu": (0.1,), "HardSigmoid": (0.2, 0.5), "Swish": (1.5,), "Elu": (0.7,)}
_X = np.array([-30, -8, -3, -1, -0.3, -0.25, -0.2, -1e-3, -1e-6, 0, 1e-6, 1e-3, 0.2, 0.25, 0.3, 1, 3, 8, 30, np.nan], np.float32)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


_REFERENCES = {
    "": lambda x: x,
    "Relu": lambda x: np.maximum(x, 0),
    "Clip": lambda x, low, high: np.clip(x, low, high),
    "LeakyRelu": lambda x, a: np.where(x < 0, a * x, x),
    "HardSigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "Sigmoid": _sigmoid,
    "Swish": lambda x, a: x * _sigmoid(a * x),
    "Tanh": np.tanh,
    "Elu": lambda x, a: np.where(x < 0, a * np.expm1(x), x),
    "Gelu": lambda x: 0.5 * x * (1 + _ERF(x / math.sqrt(2))),
    "GeluTanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "Mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activation_of_a_product(activation: str, gpu: str) -> None:
    parameters = _PARAMETERS.get(activation, ())
    op = FusedMatMul(activation=activation, activation_parameters=parameters)
    one = np.ones((1, 1), np.float32)
    with mnnx.Interpreter.from_bytes(serialize(model_of(op, (_X.reshape(-1, 1), one), 1, frozenset({1})))) as interpreter:
        session = interpreter.create_session(mnnx.ScheduleConfig(backend=gpu))
        assert [row.backend for row in session.placement()] == [gpu]
        got = session.run({"i0": _X.reshape(-1, 1)})["o0"].reshape(-1)
    wanted = _REFERENCES[activation](_X.astype(np.float64), *parameters)
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol={"Gelu": 5e-6, "GeluTanh": 2e-6}.get(activation, 4e-8 * 30))
    if activation in ("Tanh", "Elu"):  # to their last digits near 0, too
        near = np.abs(_X) < 0.5
        np.testing.assert_allclose(got[near], wanted[near], rtol=6e-7)
