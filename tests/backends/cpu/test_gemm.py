"""Native matrix products against NumPy's."""

import itertools
import math
import re

import numpy as np
import pytest

from mnnx.backends.cpu.compiler import assembly
from mnnx.backends.cpu.target import Target
from mnnx.backends.cpu.tiling import Tiling
from mnnx.schema.ops.fused import ACTIVATIONS, FusedMatMul
from mnnx.schema.ops.matmul import Gemm, MatMul
from tests.backends.cpu.native import Guarded, native

RNG = np.random.default_rng(3)


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def same(got: np.ndarray, expected: np.ndarray) -> None:
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


SHAPES = [
    ((3, 4), (4, 5)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((4,), (4,)),
    ((2, 3, 4), (4, 5)),
    ((2, 1, 7, 33), (1, 3, 33, 49)),
    ((5, 2, 3, 4), (2, 4, 50)),
    ((1, 64), (64, 96)),
    ((0, 4), (4, 5)),
    ((3, 0), (0, 5)),
    ((131, 65), (65, 130)),
    ((5, 3, 64), (5, 64, 16)),
    ((1, 300), (300, 1000)),
    ((600, 300), (300, 17)),
]


@pytest.mark.usefixtures("tiling")
@pytest.mark.parametrize("constants", [(), (1,)], ids=["computed", "constant"])
@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_matmul(a, b, constants):
    a, b = f32(*a), f32(*b)
    same(native(MatMul(), a, b, constants=constants), a @ b)
    same(native(MatMul(), a, b, constants=constants, threads=3), a @ b)


@pytest.mark.usefixtures("tiling")
@pytest.mark.parametrize("depth", [1, 4, 7, 8, 13])
@pytest.mark.parametrize("rows", [16, 32])
def test_nothing_beyond_the_operands_is_read(rows, depth):
    a, b = f32(rows, depth), f32(depth, 16)  # whole cache lines: they end where the page does
    same(Guarded(MatMul(), a, b, constants=()).run()[0], a @ b)


@pytest.mark.parametrize(
    ("name", "instruction"),
    [
        ("gemm.product", r"fmla\tv\d+.4s, v\d+.4s, v\d+.s\[3\]"),
        ("convolution.product", r"fmla\tv\d+.4s, v\d+.4s, v\d+.s\[3\]"),
        ("dot_image.product", r"sdot\tv\d+.4s, v\d+.16b, v\d+.4b\[3\]"),
    ],
)
def test_neon_multiplies_by_lanes(name, instruction):
    target = Target.named("raspberrypi5")
    tiling = Tiling.of(target)
    parameters = tiling.dot_parameters if name.startswith("dot") else {**tiling.parameters, "kind": ""}
    assert len(re.findall(instruction, assembly(name, parameters, target))) >= 2 * tiling.rows * tiling.vectors // 4


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("c", [None, (53,), (1, 53), (19, 53), (19, 1), (1,), ()])
@pytest.mark.parametrize(("trans_a", "trans_b"), [*itertools.product((False, True), repeat=2)])
def test_gemm(trans_a, trans_b, c, constant):
    m, n, k = 19, 53, 37
    a, b = f32(*(k, m) if trans_a else (m, k)), f32(*(n, k) if trans_b else (k, n))
    c = None if c is None else np.asarray(f32(*c))
    if not constant and c is not None and c.shape[-1:] != (n,):
        with pytest.raises(ValueError, match="a computed bias must be a row or a whole result"):
            native(Gemm(transA=trans_a, transB=trans_b), a, b, c, constants=())
        return
    beta = 0.5 if constant else 1.0
    expected = 1.5 * (a.T if trans_a else a) @ (b.T if trans_b else b) + (0 if c is None else beta * c)
    op = Gemm(alpha=1.5, beta=beta, transA=trans_a, transB=trans_b)
    same(native(op, a, b, c, constants=(1, 2) if constant else (), threads=2), expected)


def test_nan_and_infinity_reach_the_result():
    a = np.array([[np.nan, 1], [np.inf, 1], [1, 2]], np.float32)
    b = np.array([[1.0], [2.0]], np.float32)
    np.testing.assert_array_equal(native(FusedMatMul(activation="Relu"), a, b), np.maximum(a @ b, 0))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


EXPECTED = {
    "": ((), lambda x: x),
    "Relu": ((), lambda x: np.maximum(x, 0)),
    "Clip": ((-1.0, 2.0), lambda x: np.clip(x, -1, 2)),
    "LeakyRelu": ((0.1,), lambda x: np.where(x < 0, 0.1 * x, x)),
    "HardSigmoid": ((0.2, 0.4), lambda x: np.clip(0.2 * x + 0.4, 0, 1)),
    "HardSwish": ((), lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    "ScaledHardSwish": ((-0.6, 0.4), lambda x: -0.6 * x * np.clip(x / 6 + 0.5, 0, 1) + 0.4),
    "Sigmoid": ((), sigmoid),
    "Swish": ((1.3,), lambda x: x * sigmoid(1.3 * x)),
    "Tanh": ((), np.tanh),
    "Elu": ((0.7,), lambda x: np.where(x < 0, 0.7 * np.expm1(np.minimum(x, 0)), x)),
    "Gelu": ((), lambda x: 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))),
    "GeluTanh": ((), lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
    "Mish": ((), lambda x: x * np.tanh(np.logaddexp(0, x))),
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_epilogue(activation):
    parameters, function = EXPECTED[activation]
    a, b, bias, residual = 3 * f32(2, 9, 17), 3 * f32(2, 21, 17), f32(21), f32(2, 9, 21)
    op = FusedMatMul(activation=activation, activation_parameters=parameters, transpose_b=True, alpha=0.5)
    expected = function((0.5 * a @ b.swapaxes(1, 2) + bias + residual).astype(np.float64))
    np.testing.assert_allclose(native(op, a, b, bias, residual, constants=(2,)), expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("activation", ["Sigmoid", "Tanh", "Gelu", "Mish", "Elu", "Swish", "GeluTanh"])
def test_activation_far_from_zero(activation):
    parameters, function = EXPECTED[activation]
    x = np.array([[-1e4, -200.0, -90.0, -20.0, -1e-3, 0.0, 1e-3, 20.0, 90.0, 200.0, 1e4]], np.float32)
    with np.errstate(over="ignore"):
        expected = function(x.astype(np.float64))
    op = FusedMatMul(activation=activation, activation_parameters=parameters)
    got = native(op, x.T.copy(), np.ones((1, 1), np.float32))
    np.testing.assert_allclose(got, expected.T, rtol=1e-5, atol=1e-6)


def test_computed_bias_is_added_to_every_row():
    a, b, bias = f32(5, 8), f32(8, 20), f32(20)
    same(native(FusedMatMul(), a, b, bias, constants=(1,)), a @ b + bias)
