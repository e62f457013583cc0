"""Activations at the end of products and convolutions: tiny and large numbers, infinities and NaN."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mnnx.schema.ops.fused import ACTIVATIONS, FusedConv, FusedMatMul
from tests.backends.gpu.run import gpu as backend_of
from tests.backends.gpu.run import run
from tests.cases.convolution import PARAMETERS

_ERF = np.vectorize(math.erf)


def _sigmoid(v: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-v))


#: In float64, from forms that lose nothing near 0; parameters as in PARAMETERS.
_EXACT = {
    "": lambda v: v,
    "Relu": lambda v: np.maximum(v, 0),
    "Clip": lambda v: np.clip(v, -0.5, 6.0),
    "LeakyRelu": lambda v: np.where(v < 0, 0.1 * v, v),
    "HardSigmoid": lambda v: np.clip(0.2 * v + 0.5, 0, 1),
    "HardSwish": lambda v: v * np.clip(v / 6 + 0.5, 0, 1),
    "ScaledHardSwish": lambda v: 0.7 * v * np.clip(v / 6 + 0.5, 0, 1) + 0.5,
    "Sigmoid": _sigmoid,
    "Swish": lambda v: v * _sigmoid(v),
    "Tanh": np.tanh,
    "Elu": lambda v: np.where(v < 0, 1.3 * np.expm1(v), v),
    "Gelu": lambda v: 0.5 * v * (1 + _ERF(v / math.sqrt(2))),
    "GeluTanh": lambda v: v * _sigmoid(2 * math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)),
    "Mish": lambda v: v * np.tanh(np.logaddexp(v, 0)),
}


def _fused(activation: str) -> FusedMatMul:
    return FusedMatMul(activation=activation, activation_parameters=PARAMETERS.get(activation, ()))


@pytest.mark.parametrize("columns", [1, 16])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_activations_are_right_near_zero_and_far_from_it(gpu: str, activation: str, columns: int) -> None:
    sizes = np.concatenate([np.geomspace(1e-30, 1, 200), np.linspace(0.3, 1.2, 200), np.linspace(1, 12, 200), [50, 100, 1e4, 1e9]])
    v = np.concatenate([-sizes, [0.0], sizes]).astype(np.float32)[:, None]
    weights = np.zeros((1, columns), np.float32)
    weights[0, 0] = 1.0
    ((_, (got,)),) = run(backend_of(gpu), _fused(activation), v, weights, constants=(1,))
    exact = _EXACT[activation](v.astype(np.float64))
    # what is tiny beside v, where v is far below 0, is known to a part of v
    near = np.abs(v) < 1
    np.testing.assert_allclose(got[:, :1][near], exact[near], rtol=6e-7, atol=1e-37)
    np.testing.assert_allclose(got[:, :1], exact, rtol=1e-6, atol=3e-6)


@pytest.mark.parametrize("columns", [1, 16])
@pytest.mark.parametrize("precision", ["high", "low"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_nan_stays_nan_in_products(gpu: str, activation: str, precision: str, columns: int) -> None:
    a = np.array([[1.0], [np.nan], [-2.0]], np.float32)
    ((_, (got,)),) = run(backend_of(gpu, precision), _fused(activation), a, np.ones((1, columns), np.float32), constants=(1,))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(a).repeat(columns, 1))


@pytest.mark.parametrize("group", [1, 16])
@pytest.mark.parametrize("activation", ["Relu", "Clip", "HardSwish", "Tanh"])
def test_nan_stays_nan_in_convolutions(gpu: str, activation: str, group: int) -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.uniform(0.5, 1, shape).astype(np.float32) for shape in ((1, 16, 9, 9), (16, 16 // group, 3, 3)))
    x[0, 3, 4, 5] = np.nan
    op = FusedConv(group=group, pads=(1, 1, 1, 1), activation=activation, activation_parameters=PARAMETERS.get(activation, ()))
    wanted = np.zeros((1, 16, 9, 9), bool)
    wanted[0, slice(None) if group == 1 else 3, 3:6, 4:7] = True
    for _, (got,) in run(backend_of(gpu), op, x, w, constants=(1,)):
        assert np.isnan(got[wanted]).all()
