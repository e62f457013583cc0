"""Element-wise ops, reductions and Softmax as opset 1 … 12 wrote them give what those opsets say."""

import numpy as np
import pytest

import mnnx
from tests.one_node import run

X = np.arange(-12, 12, dtype=np.float32).reshape(2, 3, 4) / 4
IMAGE = np.arange(40, dtype=np.float32).reshape(1, 2, 4, 5)
B = np.array([1, 2, 3], np.float32)


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    exponentials = np.exp(x - x.max(axis=axis, keepdims=True))
    return exponentials / exponentials.sum(axis=axis, keepdims=True)


def flat_softmax(axis: int) -> np.ndarray:
    rows = X.reshape(int(np.prod(X.shape[:axis])), -1)
    return softmax(rows, 1).reshape(X.shape)


ROWS = [
    (6, "Add", (X, B), {"broadcast": 1, "axis": 1}, X + B[:, None]),
    (6, "Mul", (X, X[0, 0]), {"broadcast": 1}, X * X[0, 0]),
    (1, "Sub", (X, X[:, :, 0].copy()), {"broadcast": 1, "axis": 0, "consumed_inputs": [0, 0]}, X - X[:, :, :1]),
    (6, "Greater", (X, B), {"broadcast": 1, "axis": -2}, B[:, None] < X),
    (6, "Clip", (X,), {"min": -1.0, "max": 2.0}, X.clip(-1, 2)),
    (6, "Clip", (X,), {"max": 2.0}, X.clip(None, 2)),
    (1, "Cast", (X,), {"to": "INT32"}, X.astype(np.int32)),
    (6, "PRelu", (X, B), {}, np.where(X >= 0, X, X * B[:, None])),
    (6, "Dropout", (X,), {"ratio": 0.3, "is_test": 1}, X),
    (6, "Selu", (X,), {"alpha": 2.0, "gamma": 3.0}, np.where(X > 0, 3 * X, 6 * np.expm1(X))),
    (11, "Softmax", (X,), {"axis": 0}, flat_softmax(0)),
    (11, "Softmax", (X,), {}, flat_softmax(1)),
    (11, "Softmax", (X,), {"axis": -1}, flat_softmax(2)),
    (11, "LogSoftmax", (X,), {"axis": 1}, np.log(flat_softmax(1))),
    (1, "ReduceSum", (X,), {"axes": [1], "keepdims": 0}, X.sum(1)),
    (11, "ReduceMax", (X,), {"axes": [-1, 0]}, X.max((0, 2), keepdims=True)),
    (8, "Mean", tuple(X + i for i in range(20)), {}, X + 9.5),
    (8, "Max", tuple(X + i for i in range(20)), {}, X + 19),
    (8, "Min", (X,), {}, X),
    (1, "Affine", (X,), {"alpha": 2.0, "beta": 0.5}, 2 * X + np.float32(0.5)),
    (1, "ScaledTanh", (X,), {"alpha": 2.0, "beta": 0.5}, 2 * np.tanh(X / 2)),
    (1, "ParametricSoftplus", (X,), {"alpha": 2.0, "beta": 0.5}, 2 * np.log1p(np.exp(X / 2))),
    (7, "Scale", (X,), {"scale": 1.5}, X * np.float32(1.5)),
    (7, "DynamicSlice", (X, np.array([0, -2]), np.array([9, -1]), np.array([2, 1])), {}, X[:, 1:2]),
    (7, "DynamicSlice", (X, np.array([1], np.int32), np.array([-1], np.int32)), {}, X[1:-1]),
    (7, "ImageScaler", (IMAGE,), {"scale": 0.5, "bias": [1.0, 2.0]}, IMAGE / 2 + np.array([1, 2], np.float32)[:, None, None]),
    (7, "Crop", (IMAGE,), {"border": [1, 0, 0, 1]}, IMAGE[:, :, :-1, 1:]),
    (7, "Crop", (IMAGE,), {"border": [1, 1, 0, 0], "scale": [2, 3]}, IMAGE[:, :, 1:3, 1:4]),
]


@pytest.mark.parametrize(
    ("opset", "op_type", "inputs", "attributes", "expected"), ROWS, ids=[f"{r[1]}-{r[0]}-{i}" for i, r in enumerate(ROWS)]
)
def test_old_forms_give_what_their_opset_says(tmp_path, opset, op_type, inputs, attributes, expected):
    (result,) = run(tmp_path, opset, op_type, *inputs, **attributes)
    assert result.dtype == expected.dtype
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_unknown_data_type_is_named(tmp_path):
    with pytest.raises(mnnx.ConversionError, match="'FOO' is unknown"):
        run(tmp_path, 1, "Cast", X, to="FOO")


def test_cast_to_the_undefined_type_is_refused(tmp_path):
    with pytest.raises(mnnx.ConversionError, match="to must be dtype"):
        run(tmp_path, 13, "Cast", X, to=0)
