"""Products of bytes on GPUs, in sizes that fit no tile, against sums in int64."""

from __future__ import annotations

import numpy as np
import pytest

from mnnx.schema.ops import Op
from mnnx.schema.ops.dynamic_quantization import FusedDynamicQuantizeMatMul, FusedMatMulInteger
from mnnx.schema.ops.fused_quantization import FusedQLinearMatMul
from mnnx.schema.ops.quantization import MatMulInteger, QLinearMatMul
from tests.backends.gpu.test_products import assert_near, run
from tests.cases.fused_quantization import reference

SHAPES = [
    ((37, 64), (64, 48)),
    ((4, 68), (68, 131)),
    ((3, 64), (64, 48)),
    ((9, 33), (33, 20)),
    ((2, 5, 12, 32), (5, 32, 16)),
    ((2, 1, 7, 20), (2, 3, 20, 35)),
    ((6, 8, 16), (16, 64)),
]


def matrix(seed: int, dtype: str, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max + 1, shape, dtype)


@pytest.mark.parametrize("computed", [False, True], ids=["constant", "computed"])
@pytest.mark.parametrize("dtypes", [("uint8", "int8"), ("int8", "uint8"), ("uint8", "uint8")], ids=str)
@pytest.mark.parametrize(("a", "b"), SHAPES, ids=str)
def test_integers_are_summed(gpu: str, a: tuple[int, ...], b: tuple[int, ...], dtypes: tuple[str, str], computed: bool) -> None:
    x, y = matrix(0, dtypes[0], *a), matrix(1, dtypes[1], *b)
    zeros = matrix(2, dtypes[0], a[-2] if len(a) == 2 else 1), matrix(3, dtypes[1], b[-1])
    got = run(gpu, "high", MatMulInteger(), x, y, *zeros, constant=frozenset({3} if computed else {1, 3}))
    offset = zeros[0].astype(np.int64).reshape(-1, 1)
    np.testing.assert_array_equal(got, (x.astype(np.int64) - offset) @ (y.astype(np.int64) - zeros[1]))


@pytest.mark.parametrize("computed", [False, True], ids=["constant", "computed"])
@pytest.mark.parametrize("op", [QLinearMatMul(), FusedQLinearMatMul(), FusedQLinearMatMul(dequantizes=True, activation="Relu")], ids=repr)
@pytest.mark.parametrize(("a", "b"), SHAPES, ids=str)
def test_sums_are_finished(gpu: str, a: tuple[int, ...], b: tuple[int, ...], op: Op, computed: bool) -> None:
    one, zero = np.array(0.25, np.float32), np.array(77, np.uint8)
    scales = np.exp2(matrix(5, "uint8", b[-1]) % 4 - 9.0).astype(np.float32)
    given = (matrix(0, "uint8", *a), one, zero, matrix(1, "int8", *b), scales, matrix(3, "int8", b[-1]), np.array(2, np.float32), zero)
    fused = op if isinstance(op, FusedQLinearMatMul) else FusedQLinearMatMul()
    got = run(gpu, "high", op, *given, constant=frozenset(range(1, 8)) - ({3} if computed else set()))
    np.testing.assert_array_equal(got, reference(fused)(*given))


@pytest.mark.parametrize("precision", ["high", "low"])
@pytest.mark.parametrize(("a", "b"), SHAPES, ids=str)
def test_sums_become_floats_by_a_computed_scale(gpu: str, a: tuple[int, ...], b: tuple[int, ...], precision: str) -> None:
    x, y, a_zero, b_zero = matrix(0, "uint8", *a), matrix(1, "int8", *b), np.array(120, np.uint8), matrix(3, "int8", b[-1])
    scale, scales = np.array(2.0**-7, np.float32), np.exp2(matrix(5, "uint8", b[-1]) % 4 - 9.0).astype(np.float32)
    bias = np.linspace(-9, 9, b[-1], dtype=np.float32)
    wanted = np.maximum((x.astype(np.int64) - 120) @ (y.astype(np.int64) - b_zero) * (scale * scales).astype(np.float64) + bias, 0)
    inputs = x, y, a_zero, b_zero, scale, scales, bias
    assert_near(run(gpu, precision, FusedMatMulInteger(activation="Relu"), *inputs, constant=frozenset({1, 3, 5, 6})), wanted, precision)
    x.flat[0], x.flat[-1] = 0, 255  # so that this is how x is quantized
    real = ((x.astype(np.float32) - 120) * scale).astype(np.float32)
    wanted = np.tanh((x.astype(np.int64) - 120) @ (y.astype(np.int64) - b_zero) * (scale * scales).astype(np.float64) + bias)
    inputs = real, y, b_zero, scales, bias
    got = run(gpu, precision, FusedDynamicQuantizeMatMul(activation="Tanh"), *inputs, constant=frozenset({1, 2, 3, 4}))
    assert_near(got, wanted, precision)
