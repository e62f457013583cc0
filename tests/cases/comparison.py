"""Rows of the ops in schema/ops/comparison.py."""

import ml_dtypes
import numpy as np

from mnnx.schema.ops import comparison as ops
from tests.cases import booleans, case, f16, f32, f64, integers

SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -2.5, 1e30], np.float32)

for op in (ops.Equal(), ops.Greater(), ops.GreaterOrEqual(), ops.Less(), ops.LessOrEqual()):
    case(op, np.round(f32(3, 4, 5)), np.round(f32(3, 4, 5)))
    case(op, np.round(f32(2, 1, 7)), np.round(f32(3, 1)))
    case(op, SPECIAL, SPECIAL[::-1].copy())
    case(op, SPECIAL, SPECIAL)
    case(op, f64(3), f64(1))
    case(op, np.round(f16(9)), np.round(f16(9)))
    case(op, integers("int64", 9, high=4), integers("int64", 9, high=4))
    case(op, integers("uint8", 3, 3), integers("uint8", 3))
    case(op, f32(0), f32(1))
case(ops.Equal(), booleans(7), booleans(7))
case(ops.Equal(), np.array(["a", "b"], object), np.array(["a", "ba"], object))

for op in (ops.And(), ops.Or(), ops.Xor()):
    case(op, booleans(3, 4), booleans(3, 4))
    case(op, booleans(3, 1, 5), booleans(4, 1))
    case(op, booleans(), booleans())
case(ops.Not(), booleans(3, 4))
case(ops.Not(), booleans(0))

for op in (ops.BitwiseAnd(), ops.BitwiseOr(), ops.BitwiseXor()):
    case(op, integers("int32", 3, 4, low=-99, high=99), integers("int32", 4))
    case(op, integers("uint8", 9, high=255), integers("uint8", 9, high=255))
    case(op, integers("int64", 2, 2, low=-9), integers("int64", 1))
case(ops.BitwiseNot(), integers("int16", 7, low=-99, high=99))
case(ops.BitwiseNot(), integers("uint32", 7))


def _shifted(left: bool):
    def reference(x, y):
        bits = 8 * x.dtype.itemsize
        exact = [int(a) << int(b) if left else int(a) >> int(b) for a, b in zip(x, y, strict=True)]
        wrapped = [v % 2**bits for v in exact]
        return np.array(wrapped, np.uint64).astype(x.dtype)

    return reference


for direction in ("LEFT", "RIGHT"):
    op, reference = ops.BitShift(direction=direction), _shifted(direction == "LEFT")
    case(op, integers("uint8", 6, high=255), np.array([0, 1, 3, 7, 8, 200], np.uint8), reference=reference)
    case(op, integers("uint64", 5), integers("uint64", 5), reference=reference)
    case(op, integers("int32", 5, low=-99, high=99), np.array([0, 1, 31, 32, 40], np.int32), reference=reference)

case(ops.IsNaN(), SPECIAL)
case(ops.IsNaN(), np.array([np.nan, 1, np.inf], np.float16))
case(ops.IsInf(), SPECIAL)
case(ops.IsInf(detect_negative=False), SPECIAL)
case(ops.IsInf(detect_positive=False), SPECIAL.astype(np.float64))
case(ops.IsInf(detect_negative=False, detect_positive=False), SPECIAL)

case(ops.Where(), booleans(3, 4), f32(3, 4), f32(3, 4))
case(ops.Where(), booleans(4, 1), f32(3), f32(2, 1, 1))
case(ops.Where(), np.array(True), integers("int64", 3), integers("int64", 3))
case(ops.Where(), booleans(5), booleans(5), booleans(1))
case(ops.Where(), booleans(2, 3), f16(2, 3), f16(3))
case(ops.Where(), booleans(3), f64(3), f64(3))
case(ops.Where(), booleans(2), np.array(["a", "b"], object), np.array(["c"], object))
case(ops.Where(), booleans(3), f32(3).astype(ml_dtypes.bfloat16), f32(3).astype(ml_dtypes.bfloat16), reference=np.where)
case(ops.Where(), booleans(0, 3), f32(1), f32(3))
