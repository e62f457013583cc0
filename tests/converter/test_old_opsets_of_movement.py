"""Ops on shapes, indices and images as old opsets wrote them give what those opsets say."""

import numpy as np
import pytest

import mnnx
from tests.one_node import run

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
IMAGE = np.arange(1, 13, dtype=np.float32).reshape(1, 1, 3, 4)
PADDED = np.pad(X, ((0, 0), (1, 2), (0, 1)), constant_values=2.5)
ROWS = np.array([[2, 0, 1]], np.int64)
DOUBLED = IMAGE.repeat(2, 2).repeat(2, 3)
SCATTERED = np.stack([np.full(3, 9, np.float32), X[0, 1, :3], X[0, 2, :3]])


def scales(*values):
    return np.array(values, np.float32)


def doubled_linearly(line):
    """Asymmetric coordinates: x / 2, clamped at the end."""
    return np.interp(np.arange(2 * len(line)) / 2, np.arange(len(line)), line)


LINEAR = np.apply_along_axis(doubled_linearly, 3, np.apply_along_axis(doubled_linearly, 2, IMAGE)).astype(np.float32)

# opset, op, inputs, attributes, expected outputs, positions of initializers
CASES = [
    (1, "Reshape", (X,), {"shape": [0, -1]}, [X.reshape(2, 12)], ()),
    (1, "Squeeze", (X[:, :1],), {"axes": [1]}, [X[:, 0]], ()),
    (11, "Squeeze", (X[:1, :1],), {}, [X[0, 0]], ()),
    (11, "Unsqueeze", (X,), {"axes": [0, -1]}, [X[None, ..., None]], ()),
    (1, "Concat", (X, X), {}, [np.concatenate([X, X], 1)], ()),
    (1, "Tile", (X, scales(3), scales(1)), {}, [np.tile(X, (1, 3, 1))], (1, 2)),
    (6, "Tile", (X, np.array([1, 2, 1])), {}, [np.tile(X, (1, 2, 1))], ()),
    (2, "Split", (X,), {"axis": 2, "split": [1, 3]}, [X[..., :1], X[..., 1:]], ()),
    (11, "Split", (X,), {"axis": -2}, [X[:, :1], X[:, 1:2], X[:, 2:]], ()),
    (13, "Split", (X, np.array([0, 2])), {}, [X[:0], X], ()),
    (1, "Slice", (X,), {"starts": [1, -3], "ends": [9, -1], "axes": [1, 2]}, [X[:, 1:, 1:3]], ()),
    (9, "Slice", (X,), {"starts": [1], "ends": [2]}, [X[1:]], ()),
    (1, "Pad", (X,), {"paddings": [0, 1, 0, 0, 2, 1], "value": 2.5}, [PADDED], ()),
    (2, "Pad", (X,), {"pads": [0, 1, 0, 0, 2, 1], "value": 2.5}, [PADDED], ()),
    (2, "Pad", (X,), {"pads": [0, 1, 1, 0, 1, 2], "mode": "reflect"}, [np.pad(X, ((0, 0), (1, 1), (1, 2)), "reflect")], ()),
    (11, "Pad", (X, np.array([0, 1, 0, 0, 2, 1]), np.array(2.5, np.float32)), {}, [PADDED], ()),
    (1, "TopK", (X,), {"axis": 2, "k": 2}, [X[..., :1:-1], np.broadcast_to([3, 2], (2, 3, 2))], ()),
    (10, "TopK", (X, np.array([2])), {"axis": -1}, [X[..., :1:-1], np.broadcast_to([3, 2], (2, 3, 2))], ()),
    (1, "Gather", (X, ROWS), {"axis": 1}, [X[:, ROWS]], ()),
    (9, "Scatter", (X[0, :, :3].copy(), np.zeros((1, 3), np.int64), np.full((1, 3), 9, np.float32)), {}, [SCATTERED], ()),
    (1, "Upsample", (IMAGE,), {"height_scale": 2.0, "width_scale": 2.0, "mode": "nearest"}, [DOUBLED], ()),
    (7, "Upsample", (IMAGE,), {"scales": [1.0, 1.0, 2.0, 2.0]}, [DOUBLED], ()),
    (9, "Upsample", (IMAGE, scales(1, 1, 2, 2)), {"mode": "linear"}, [LINEAR], ()),
    (10, "Resize", (IMAGE, scales(1, 1, 2, 2)), {"mode": "linear"}, [LINEAR], ()),
    (10, "Resize", (IMAGE, scales(1, 1, 2, 2)), {}, [DOUBLED], (1,)),
    (10, "Resize", (IMAGE, scales(1, 1, 2, 0.75)), {}, [IMAGE[..., [0, 2, 3]].repeat(2, 2)], (1,)),
    (11, "Resize", (IMAGE, scales(), scales(), np.array([1, 1, 6, 8])), {}, [DOUBLED], ()),
    (
        16,
        "GridSample",
        (IMAGE, np.array([[[[-0.75, 0.0], [0.5, 0.0]]]], np.float32)),
        {"mode": "bilinear"},
        [np.array([[[[5.0, 7.5]]]], np.float32)],
        (),
    ),
    (
        10,
        "RoiAlign",
        (IMAGE, scales(0, 0, 2, 2).reshape(1, 4), np.array([0])),
        {"sampling_ratio": 1},
        [np.array([[[[6.0]]]], np.float32)],
        (),
    ),
    (
        17,
        "DFT",
        (X[0, :, :, None].copy(),),
        {"axis": 0},
        [np.stack([np.fft.fft(X[0], axis=0).real, np.fft.fft(X[0], axis=0).imag], -1)],
        (),
    ),
]


@pytest.mark.parametrize(
    ("opset", "op_type", "inputs", "attributes", "expected", "constants"), CASES, ids=[f"{c[1]}-{c[0]}-{i}" for i, c in enumerate(CASES)]
)
def test_old_forms_give_what_their_opset_says(tmp_path, opset, op_type, inputs, attributes, expected, constants):
    results = run(tmp_path, opset, op_type, *inputs, constants=constants, outputs=len(expected), **attributes)
    for result, right in zip(results, expected, strict=True):
        assert result.shape == right.shape
        np.testing.assert_allclose(result, right, rtol=1e-5, atol=1e-5)


OUT_OF_RANGE = [
    ("Gather", (X, np.array([3])), {"axis": 1}),
    ("Gather", (X, np.array([-4])), {"axis": 1}),
    ("GatherElements", (X, np.full((2, 3, 4), 2)), {}),
    ("GatherND", (X, np.array([[0, 3]])), {}),
    ("ScatterElements", (X, np.full((1, 1, 1), -3), X[:1, :1, :1]), {}),
    ("ScatterND", (X, np.array([[2]]), X[:1]), {}),
    ("TensorScatter", (X, X[:, :2], np.array([0, 2])), {}),
    ("ReverseSequence", (X, np.array([1, 3, 2])), {}),
    ("RoiAlign", (IMAGE, scales(0, 0, 2, 2).reshape(1, 4), np.array([1])), {}),
    ("MaxRoiPool", (IMAGE, scales(1, 0, 0, 2, 2).reshape(1, 5)), {"pooled_shape": [1, 1]}),
    ("TopK", (X, np.array([5])), {}),
    ("Reshape", (X, np.array([5, -1])), {}),
    ("Expand", (X, np.array([5])), {}),
    ("Split", (X, np.array([1, 2])), {}),
    ("OneHot", (np.array([1]), np.array(-1), scales(0, 1)), {}),
    ("Pad", (X, np.array([0, 0, 0, 0, 0, -5])), {}),
    ("Resize", (IMAGE, None, scales(1, 1, -1, 1)), {}),
]


@pytest.mark.parametrize("constant", [False, True], ids=["computed", "constant"])
@pytest.mark.parametrize(("op_type", "inputs", "attributes"), OUT_OF_RANGE, ids=[f"{r[0]}-{i}" for i, r in enumerate(OUT_OF_RANGE)])
def test_value_out_of_range_is_an_error_that_names_the_op(tmp_path, op_type, inputs, attributes, constant):
    constants = tuple(i for i, x in enumerate(inputs) if i > 0 and x is not None) if constant else ()
    with pytest.raises(mnnx.MnnxError, match=op_type):
        run(tmp_path, 25, op_type, *inputs, constants=constants, **attributes)
