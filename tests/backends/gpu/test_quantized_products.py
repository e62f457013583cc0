"""Products of bytes on GPUs, in sizes that fit no tile, against sums in int64."""

from __future__ import annotations

import numpy as np
import pytest

from mnnx.schema.ops import Op
from mnnx.schema.ops.fused_quantization import FusedQLinearMatMul
from mnnx.schema.ops.quantization import MatMulInteger, QLinearMatMul
from tests.backends.gpu.test_products import run
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
