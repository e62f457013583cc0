"""Functions of expressions on Vulkan against NumPy's float64, in units in the last place of float32."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import mnnx
from mnnx.schema.ops import Op, activation, arithmetic
from mnnx.schema.writer import serialize
from tests.devices import missing
from tests.op_model import model_of

_SPECIAL = (0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 0.5, 2.0, 1e-30, 1e30, -1e30, 3.4e38, -3.4e38, 88.7, 89.0, -103.0, 1e10)

_UNARY: list[tuple[Op, Callable[[np.ndarray], np.ndarray]]] = [
    (arithmetic.Sqrt(), np.sqrt),
    (arithmetic.Exp(), np.exp),
    (arithmetic.Log(), np.log),
    (arithmetic.Sin(), np.sin),
    (arithmetic.Cos(), np.cos),
    (arithmetic.Tan(), np.tan),
    (arithmetic.Asin(), np.arcsin),
    (arithmetic.Acos(), np.arccos),
    (arithmetic.Atan(), np.arctan),
    (arithmetic.Sinh(), np.sinh),
    (arithmetic.Cosh(), np.cosh),
    (arithmetic.Tanh(), np.tanh),
    (arithmetic.Asinh(), np.arcsinh),
    (arithmetic.Acosh(), np.arccosh),
    (arithmetic.Atanh(), np.arctanh),
    (arithmetic.Erf(), np.vectorize(math.erf)),
    (activation.Elu(alpha=1.0), lambda x: np.where(x >= 0, x, np.expm1(x))),
    (activation.Softplus(), lambda x: np.logaddexp(0, x)),
]
_BINARY: list[tuple[Op, Callable[[np.ndarray, np.ndarray], np.ndarray]]] = [
    (arithmetic.Pow(), np.power),
    (arithmetic.Div(), np.divide),
    (arithmetic.Mod(fmod=True), np.fmod),
    (arithmetic.Max(), np.maximum),
    (arithmetic.Min(), np.minimum),
]


def _run(op: Op, *inputs: np.ndarray) -> np.ndarray:
    if reason := missing("vulkan"):
        pytest.skip(reason)
    with mnnx.Interpreter.from_bytes(serialize(model_of(op, inputs, 1))) as interpreter:
        session = interpreter.create_session(mnnx.ScheduleConfig(backend="vulkan"))
        result = session.run({f"i{i}": array for i, array in enumerate(inputs)})["o0"]
        assert {row.backend for row in session.placement()} == {"vulkan"}
    return result


def _assert_close(got: np.ndarray, exact: np.ndarray, units: float) -> None:
    want = exact.astype(np.float32)
    finite = np.isfinite(want)
    np.testing.assert_array_equal(got[~finite], want[~finite])
    assert np.isfinite(got[finite]).all()
    step = np.maximum(np.spacing(np.abs(want[finite])), np.finfo(np.float32).smallest_normal)
    assert (np.abs(got[finite] - exact[finite]) / step).max() <= units


@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
@pytest.mark.parametrize(("op", "exact"), _UNARY, ids=[op.name for op, _ in _UNARY])
def test_functions_are_right_to_a_few_units_in_the_last_place(op: Op, exact: Callable) -> None:
    rng = np.random.default_rng(0)
    large = np.exp(rng.uniform(-69, 69, 20000)) * rng.choice((-1, 1), 20000)
    x = np.concatenate([_SPECIAL, large, rng.uniform(-110, 110, 20000), rng.uniform(-3, 3, 20000)]).astype(np.float32)
    _assert_close(_run(op, x), exact(x.astype(np.float64)), 6)


@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
@pytest.mark.parametrize(("op", "exact"), _BINARY, ids=[f"{op.name}" for op, _ in _BINARY])
def test_functions_of_two_are_right_to_a_few_units_in_the_last_place(op: Op, exact: Callable) -> None:
    rng = np.random.default_rng(1)
    pairs = np.array([(a, b) for a in _SPECIAL for b in _SPECIAL])
    a = np.concatenate([pairs[:, 0], np.exp(rng.uniform(-23, 23, 20000)), rng.uniform(-3, 3, 20000)]).astype(np.float32)
    b = np.concatenate([pairs[:, 1], rng.uniform(-12, 12, 20000), np.rint(rng.uniform(-40, 40, 20000))]).astype(np.float32)
    _assert_close(_run(op, a, b), exact(a.astype(np.float64), b.astype(np.float64)), 4)
