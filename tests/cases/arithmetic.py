"""Rows of the ops in schema/ops/arithmetic.py."""

import math

import numpy as np

from mnnx.schema.ops import arithmetic as ops
from tests.cases import case, f16, f32, f64, integers

SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -2.5, 1e30], np.float32)

for op in (ops.Add(), ops.Sub(), ops.Mul(), ops.Div()):
    case(op, f32(3, 4, 5), f32(3, 4, 5))
    case(op, f32(2, 1, 7), f32(3, 1))
    case(op, f32(1), f32(4, 4, 1))
    case(op, f32(), f32())
    case(op, f32(0, 3), f32(3))
    case(op, f64(5), f64(5))
    case(op, f16(3, 3), f16(3))
    case(op, integers("int32", 3, 5, low=-100, high=100), integers("int32", 5, low=1, high=9))
    case(op, integers("uint8", 9), integers("uint8", 9, low=1))
    case(op, integers("int64", 2, 3), integers("int64", 1, 3, low=1))


def _truncated(a, b):
    exact = [int(x) // int(y) if x * y >= 0 else -(-int(x) // int(y)) for x, y in zip(a, b, strict=True)]
    return np.array(exact, a.dtype)


case(ops.Div(), np.array([-7, 7, -8, 0], np.int32), np.array([2, -2, 3, -5], np.int32), reference=_truncated)
case(ops.Div(), np.array([7, -7], np.int64), np.array([0, 0], np.int64), reference=lambda a, b: np.zeros(2, np.int64))
case(ops.Div(), SPECIAL, SPECIAL[::-1].copy())

for fmod in (False, True):
    case(ops.Mod(fmod=fmod), integers("int32", 4, 5, low=-20, high=20), integers("int32", 5, low=1))
    case(ops.Mod(fmod=fmod), np.array([7, -7, 7, -7], np.int8), np.array([3, 3, -3, -3], np.int8))
    case(ops.Mod(fmod=fmod), integers("uint16", 6), integers("uint16", 6, low=1))
    case(ops.Mod(fmod=fmod), f32(3, 4, low=-9, high=9), f32(4, low=1, high=3))
case(ops.Mod(), np.array([5, -5], np.int32), np.array([0, 0], np.int32), reference=lambda a, b: np.zeros(2, np.int32))

case(ops.Pow(), f32(3, 4, low=0, high=3), f32(4))
case(ops.Pow(), f32(2, 3), np.array(2, np.float32))
case(ops.Pow(), f32(7, low=-3, high=3), np.array(3, np.int64))
case(ops.Pow(), f32(2, 3, low=0.1), f64(3))
case(ops.Pow(), f16(5), integers("int32", 5, high=4))
case(ops.Pow(), integers("int32", 6, low=-4, high=5), integers("int32", 6, high=5))
case(ops.Pow(), integers("int64", 4), np.array([0.5, 2, 1, 0], np.float32))
case(
    ops.Pow(),
    np.array([1, -1, -1, 2, -5], np.int32),
    np.array([-3, -3, -2, -1, -1], np.int32),
    reference=lambda a, b: np.array([1, -1, 1, 0, 0], np.int32),
)


def _mean(*values):  # ONNX's reference doesn't broadcast here
    return sum(values) / values[0].dtype.type(len(values))


for op in (ops.Max(), ops.Min(), ops.Sum(), ops.Mean()):
    reference = _mean if isinstance(op, ops.Mean) else None
    case(op, f32(3, 5), reference=reference)
    case(op, f32(3, 5), f32(5), reference=reference)
    case(op, f32(2, 3, 1), f32(3, 4), f32(1), reference=reference)
    case(op, *(f32(4) for _ in range(8)), reference=reference)
    case(op, f64(3), f64(3), reference=reference)
    case(op, f16(3), f16(2, 3), reference=reference)
for op in (ops.Max(), ops.Min()):
    case(op, SPECIAL, SPECIAL[::-1].copy())
    case(op, integers("uint64", 5), integers("uint64", 5))
    case(op, integers("int8", 5, low=-9), integers("int8", 1, low=-9))

case(ops.Clip(), f32(3, 4, 5), np.array(-1, np.float32), np.array(0.5, np.float32))
case(ops.Clip(), f32(7), None, np.array(0.5, np.float32))
case(ops.Clip(), f32(2, 3), np.array(0, np.float32))
case(ops.Clip(), f32(4))
case(ops.Clip(), f32(5), np.array(1, np.float32), np.array(-1, np.float32))
case(ops.Clip(), SPECIAL, np.array(-1, np.float32), np.array(6, np.float32))
case(ops.Clip(), integers("int8", 9, low=-9), np.array(-3, np.int8), np.array(3, np.int8))
case(ops.Clip(), f16(6), np.array(0, np.float16), np.array(1, np.float16))

for op_class in (ops.Neg, ops.Abs, ops.Sign):
    case(op_class(), f32(3, 4))
    case(op_class(), SPECIAL)
    case(op_class(), f16(5))
    case(op_class(), integers("int32", 7, low=-5, high=5))
    case(op_class(), integers("int8", 2, 2, low=-5, high=5))
case(ops.Abs(), integers("uint8", 4))
case(ops.Abs(), np.array([-128, 127], np.int8))

for op_class in (ops.Sqrt, ops.Reciprocal, ops.Exp, ops.Log, ops.Ceil, ops.Floor, ops.Round, ops.Tanh, ops.Atan, ops.Asinh):
    case(op_class(), f32(3, 17, low=0.1, high=4))
    case(op_class(), f32(2, 3))
    case(op_class(), SPECIAL)
    case(op_class(), f64(5, low=0.1))
    case(op_class(), f16(9, low=0.1))
    case(op_class(), f32(0, 2))
    case(op_class(), f32())
case(ops.Round(), np.array([0.5, 1.5, 2.5, -0.5, -1.5, 0.49999997, 8388609.0], np.float32))
case(ops.Exp(), f32(64, low=-100, high=100), rtol=1e-5)
case(ops.Tanh(), f32(64, low=-12, high=12), rtol=1e-5)
for x in (f32(64, low=-5, high=5), f32(3, 17), SPECIAL, f64(5), f16(9), f32(0, 2), f32(), integers("int32", 5, low=-3)):
    case(
        ops.Erf(), x, reference=lambda x: np.vectorize(math.erf, otypes=[float])(x).astype(x.dtype), rtol=1e-5 if x.dtype == "f4" else None
    )
case(ops.Log(), np.geomspace(1e-38, 1e38, 50).astype(np.float32), rtol=1e-5)

for op_class in (ops.Sin, ops.Cos, ops.Tan, ops.Sinh, ops.Cosh):
    case(op_class(), f32(4, 9, low=-7, high=7), atol=1e-5)
    case(op_class(), f64(5))
    case(op_class(), f16(5))
for op_class in (ops.Asin, ops.Acos, ops.Atanh):
    case(op_class(), f32(3, 7, low=-0.99, high=0.99))
    case(op_class(), f64(5, low=-0.9, high=0.9))
case(ops.Acosh(), f32(3, 7, low=1, high=9))
