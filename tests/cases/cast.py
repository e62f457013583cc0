"""Rows of the ops in schema/ops/cast.py."""

import ml_dtypes
import numpy as np

from mnnx.schema.ops import cast as ops
from tests.cases import booleans, case, f16, f32, f64, integers

PLAIN = ["float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]
SMALL_FLOATS = [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz]
SMALL_INTEGERS = [ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2]

for to in PLAIN:
    case(ops.Cast(to=to), f32(3, 5, low=0, high=99))
    case(ops.Cast(to=to), integers("int64", 7, high=99))
    case(ops.Cast(to=to), booleans(2, 3))
    case(ops.Cast(to=to), f16(4, low=0, high=9))
for dtype in ("int8", "uint8", "int16", "uint16", "uint32"):
    case(ops.Cast(to=dtype), integers("int32", 9, low=-(2**31), high=2**31 - 1))  # the high bits are dropped
case(ops.Cast(to="int32"), f32(9, low=-9, high=9))
case(ops.Cast(to="bool"), np.array([0.0, -0.0, 0.1, np.nan, np.inf], np.float32))
case(ops.Cast(to="float16"), np.array([65504, 65519, 65520, 1e30, -1e30, np.nan, 6e-8, 1e-9], np.float32))
case(ops.Cast(to="float32"), f64(6))
case(ops.Cast(to="float32"), f32(0, 3))
case(ops.Cast(to="float32"), f32())
case(ops.Cast(to=ml_dtypes.bfloat16), f32(3, 5))
case(ops.Cast(to="float32"), f32(3, 5).astype(ml_dtypes.bfloat16))

_WIDE = np.array([0, -0.0, 0.3, 1, -2.7, 448, 449, 470, 60000, 1e6, -1e6, np.nan, np.inf, -np.inf], np.float32)
for to in SMALL_FLOATS:
    case(ops.Cast(to=to), _WIDE)
    case(ops.Cast(to=to, saturate=False), _WIDE)
    case(ops.Cast(to="float32"), f32(5).astype(to))
    case(ops.Cast(to=to), _WIDE.astype(np.float16))
case(ops.Cast(to=ml_dtypes.float4_e2m1fn), f32(9, low=-8, high=8))
for mode in ("up", "down", "nearest"):
    case(ops.Cast(to=ml_dtypes.float8_e8m0fnu, round_mode=mode), np.array([1, 1.2, 1.5, 1.8, 3, 1e-20, 1e20], np.float32))
for to in SMALL_INTEGERS:
    case(ops.Cast(to=to), integers("int8", 4, high=2))
    case(ops.Cast(to=to), integers("int32", high=2))
    case(ops.Cast(to=to), f32(low=0, high=2))
    case(ops.Cast(to="float32"), integers("int8", 4, high=2).astype(to))

case(ops.Cast(to="float32"), np.array(["1.5", "-2e3", "INF", "-inf", "NaN", " 7 "], object), reference=lambda x: x.astype(np.float32))
case(ops.Cast(to="int64"), np.array(["15", "-2", str(2**62 + 1)], object), reference=lambda x: x.astype(np.int64))
case(ops.Cast(to=object), integers("int32", 2, 3, low=-9), reference=lambda x: x.astype(str).astype(object))
case(ops.Cast(to=object), np.array([0.1, -2.5, 1e20, 3], np.float32), reference=lambda x: x.astype(str).astype(object))

case(ops.CastLike(), f32(3, 4), integers("int32", 2), reference=lambda x, like: x.astype("int32"))
case(ops.CastLike(), integers("int64", 3), f16(1), reference=lambda x, like: x.astype("float16"))

case(ops.BitCast(to="int32"), f32(3, 4))
case(ops.BitCast(to="float64"), integers("int64", 3))
case(ops.BitCast(to="int8"), integers("uint8", 5, high=255))
