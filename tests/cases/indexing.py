"""Rows of the ops in schema/ops/indexing.py."""

import numpy as np

from mnnx.schema.ops import indexing as ops
from tests.cases import booleans, case, f16, f32, f64, i64, integers

for axis in (0, 1, -1):
    case(ops.Gather(axis=axis), f32(4, 5, 6), i64(3, 0, -1))
    case(ops.Gather(axis=axis), f16(4, 5, 6), integers("int32", 2, 3, low=-4, high=4))
case(ops.Gather(), f32(4, 3), np.array(2))
case(ops.Gather(), integers("int64", 4), np.array(-1))
case(ops.Gather(), f32(4, 3), i64())
_WORDS = np.array(["a", "bb", "ä"], object)
case(ops.Gather(), _WORDS, np.array(-1), reference=lambda x, _: np.array("ä", object))
case(ops.Gather(), _WORDS, i64(2, 0), reference=lambda x, _: np.array(["ä", "a"], object))
case(ops.Gather(axis=1), booleans(2, 7), i64(6, 5, 4, 0, 0))
case(ops.Gather(), f32(50, 33), integers("int64", 4, 9, high=50))

for axis in (0, 1, -1):
    case(ops.GatherElements(axis=axis), f32(3, 3), integers("int64", 3, 3, low=-3, high=3))
case(ops.GatherElements(axis=1), f32(3, 4, 5), integers("int64", 3, 2, 5, high=4))
case(ops.GatherElements(), f16(3, 0), integers("int32", 2, 0))
case(ops.GatherElements(), integers("uint8", 6), i64(5, -6, 2, 2))

case(ops.GatherND(), f32(2, 3, 4), np.array([[0, 1], [-1, 2]]))
case(ops.GatherND(), f32(2, 3, 4), np.array([[[1]], [[0]]]))
case(ops.GatherND(), f16(2, 3), np.array([[0, 0], [1, -1]]))
case(ops.GatherND(batch_dims=1), f32(2, 3, 4), np.array([[1], [0]]))
case(ops.GatherND(batch_dims=2), f32(2, 3, 4), integers("int64", 2, 3, 1, high=4))
case(ops.GatherND(), f32(2, 3), i64(1, 2))
case(ops.GatherND(), integers("int32", 4), integers("int64", 0, 1))
case(ops.GatherND(), _WORDS, i64(1), reference=lambda x, _: np.array("bb", object))

for reduction in ("none", "add", "mul", "max", "min"):
    repeated = np.array([[1, 1], [0, -1]]) if reduction != "none" else np.array([[1, 2], [0, -1]])
    case(ops.ScatterElements(axis=1, reduction=reduction), f32(3, 5), repeated, f32(2, 2))
    case(ops.ScatterElements(axis=0, reduction=reduction), integers("int32", 4, 2), i64(3, 0).reshape(1, 2), integers("int32", 1, 2))
    tuples = np.array([[0, 1], [2, 2], [0, 1]]) if reduction != "none" else np.array([[0, 1], [2, 2], [0, 0]])
    case(ops.ScatterND(reduction=reduction), f32(3, 4, 2), tuples, f32(3, 2))
    case(ops.ScatterND(reduction=reduction), f64(5), np.array([[4], [1]]), f64(2))
case(ops.ScatterElements(), f16(3, 3), integers("int64", 0, 3), f16(0, 3))
case(ops.ScatterND(), booleans(4, 3), np.array([[[2]], [[0]]]), booleans(2, 1, 3))
case(ops.ScatterND(), f32(2, 3), integers("int64", 0, 2), f32(0))

case(ops.TensorScatter(), f32(2, 3, 8, 4), f32(2, 3, 2, 4), i64(0, 6))
case(ops.TensorScatter(axis=1), f16(2, 5, 3), f16(2, 5, 3))
case(ops.TensorScatter(mode="circular"), f32(2, 5, 3), f32(2, 4, 3), i64(3, 9))
case(ops.TensorScatter(axis=1), f32(1, 4), f32(1, 1), i64(3))

VALUES = np.array([-1.0, 2.0], np.float32)
case(ops.OneHot(), i64(0, 2, -1, 7), np.array(4), VALUES)
case(
    ops.OneHot(axis=0),
    np.array([[0, 1], [2, 5]]),
    np.array([3]),
    VALUES,
    reference=lambda i, depth, values: np.where(i == np.arange(3)[:, None, None], values[1], values[0]),
)
case(ops.OneHot(axis=1), integers("int32", 2, 3, high=4), np.array(4.0, np.float32), np.array([0, 1], np.int64))
case(
    ops.OneHot(axis=-2),
    integers("uint8", 2, 3, high=4),
    np.array(4),
    np.array([False, True]),
    reference=lambda i, depth, values: i[:, None] == np.arange(4)[:, None],
)
case(ops.OneHot(), np.array([1.0, 0.0], np.float32), np.array(2), VALUES)

for axis in (0, 1, -1):
    for largest in (True, False):
        case(ops.TopK(axis=axis, largest=largest), f32(4, 5, 6), i64(3), outputs=2)
for axis, k in ((1, 300), (1, 7), (2, 1)):  # long rows
    case(ops.TopK(axis=axis), f32(2, 1000, 3), i64(k), outputs=2)
    case(ops.TopK(axis=axis, largest=False), f32(2, 1000, 3), i64(k), outputs=2)
for largest in (True, False):
    few = np.random.default_rng(5).choice(np.array([1, -2, 0, -0.0, np.inf, -np.inf, 3e-42], np.float32), (3, 700))
    case(ops.TopK(largest=largest), few, i64(650), outputs=2)  # many alike
    case(ops.TopK(largest=largest), integers("int32", 2, 500, low=-3, high=3), i64(77), outputs=2)
    case(ops.TopK(axis=0, largest=largest), np.array([[2**31 - 1], [-(2**31)], [-1], [0]], np.int32), i64(4), outputs=2)
    case(ops.TopK(largest=largest), f16(2, 600), i64(20), outputs=2)
case(ops.TopK(), np.array([[1, 3, 3, 2, 1, 3]], np.int64), i64(4), outputs=2)
case(ops.TopK(largest=False), np.array([[1, 3, 3, 2, 1, 3]], np.float32), i64(5), outputs=2)
case(ops.TopK(), integers("uint8", 3, 9, high=255), i64(1), outputs=2)
case(ops.TopK(), f16(2, 7), i64(7), outputs=2)
case(
    ops.TopK(),
    np.array([1, np.nan, -np.inf, 2, np.nan], np.float32),
    i64(4),
    outputs=2,
    reference=lambda x, k: (x[[1, 4, 3, 0]], np.array([1, 4, 3, 0])),
)
case(
    ops.TopK(largest=False),
    np.array([np.nan, 1, -np.nan, np.inf, 2], np.float32),
    i64(4),
    outputs=2,
    reference=lambda x, k: (x[[1, 4, 3, 0]], np.array([1, 4, 3, 0])),
)
case(ops.TopK(), f32(2, 3), i64(0), outputs=2, reference=lambda x, k: (x[:, :0], np.zeros((2, 0), np.int64)))

case(ops.NonZero(), integers("int32", 3, 4, high=2))
case(ops.NonZero(), np.array(5.0, np.float32))
case(ops.NonZero(), booleans(2, 0))
case(ops.Unique(), np.array([2, 1, 1, 3, 4, 3], np.float32), outputs=4)
case(ops.Unique(sorted=False), np.array([2, 1, 1, 3, 4, 3], np.int64), outputs=4)
case(ops.Unique(axis=0), np.array([[1, 0, 0], [1, 0, 0], [2, 3, 4]], np.float32), outputs=4)
case(ops.Unique(axis=-1), integers("int8", 2, 6, high=2), outputs=4)
case(
    ops.Unique(sorted=False),
    np.array(["b", "a", "b"], object),
    outputs=4,
    reference=lambda x: (np.array(["b", "a"], object), i64(0, 1), i64(0, 1, 0), i64(2, 1)),
)
