"""Rows of the ops in schema/ops/shape.py."""

import ml_dtypes
import numpy as np

from mnnx.schema.ops import shape as ops
from tests.cases import booleans, case, f16, f32, f64, i64, integers

case(ops.Shape(), f32(2, 3, 5))
case(ops.Shape(start=1), f32(2, 3, 5))
case(ops.Shape(start=-2, end=-1), f32(2, 3, 5))
case(ops.Shape(start=2, end=1), f32(2, 3, 5))
case(ops.Shape(), f32())
case(ops.Size(), f32(2, 3, 5))
case(ops.Size(), f32(0, 3))
case(ops.Size(), f16())

for data in (f32(2, 3, 5), f16(0, 3), booleans(4), f64(), integers("int8", 3, 1), np.array([["a", ""]], object)):
    case(ops.Identity(), data)

case(ops.Reshape(), f32(2, 3, 4), i64(4, 6))
case(ops.Reshape(), f32(2, 3, 4), i64(0, -1))
case(ops.Reshape(), f32(2, 3, 4), i64(-1))
case(ops.Reshape(), f32(1), i64())
case(ops.Reshape(), f16(2, 0, 4), i64(0, 0, 7, -1), reference=lambda data, shape: np.zeros((2, 0, 7, 0), data.dtype))
case(ops.Reshape(allowzero=True), f32(0, 3), i64(3, 0, 4))
case(ops.Reshape(), integers("int16", 2, 3, 4), i64(3, 1, 8))

for axis in (0, 1, 3, -1, -3):
    case(ops.Flatten(axis=axis), f32(2, 3, 5))
case(ops.Flatten(axis=0), f32())
case(ops.Flatten(), f16(0, 3, 2), reference=lambda x: x.reshape(0, 6))

case(ops.Squeeze(), f32(1, 3, 1, 5))
case(ops.Squeeze(), f32(1, 3, 1, 5), i64(0))
case(ops.Squeeze(), f32(1, 3, 1, 5), i64(-2, 0))
case(ops.Squeeze(), f16(1, 1))
case(ops.Unsqueeze(), f32(3, 5), i64(0))
case(ops.Unsqueeze(), f32(3, 5), i64(-1, 1))
case(ops.Unsqueeze(), f32(), i64(0))
case(ops.Unsqueeze(), booleans(0, 2), i64(1))

case(ops.Expand(), f32(3, 1), i64(2, 1, 6))
case(ops.Expand(), f32(3, 5), i64(1))
case(ops.Expand(), f32(), i64(2, 3))
case(ops.Expand(), f16(1, 4), i64(0, 4))
case(ops.Expand(), integers("int64", 2, 1, 3), i64(2, 4, 1))
case(ops.Tile(), f32(2, 3), i64(2, 3))
case(ops.Tile(), f32(2, 3, 5), i64(1, 1, 4))
case(ops.Tile(), f16(7), i64(0))
case(ops.Tile(), booleans(2, 1, 2), i64(3, 2, 1))

case(ops.Transpose(), f32(2, 3, 5))
for perm in ((0, 2, 1), (2, 0, 1), (1, 0, 2)):
    for data in (f32(2, 17, 33), f16(3, 4, 5), integers("uint8", 5, 7, 9), f64(2, 0, 3)):
        case(ops.Transpose(perm=perm), data)
case(ops.Transpose(perm=(0, 2, 3, 1)), f32(2, 19, 5, 6))
case(ops.Transpose(perm=(0, 3, 1, 2)), f32(2, 5, 6, 19))
case(ops.Transpose(perm=(3, 1, 4, 0, 2)), f32(2, 3, 4, 5, 6))
case(ops.Transpose(), f32())
case(ops.Transpose(perm=(1, 0)), f32(3, 4).astype(ml_dtypes.bfloat16))
case(ops.Transpose(perm=(1, 0)), integers("int32", 100, 65))

case(ops.Concat(axis=0), f32(2, 3), f32(1, 3), f32(4, 3))
case(ops.Concat(axis=1), f32(2, 3, 5), f32(2, 1, 5))
case(ops.Concat(axis=-1), f16(2, 3), f16(2, 0), f16(2, 5))
case(ops.Concat(axis=0), f32(7))
case(ops.Concat(axis=1), f32(1, 17, 4, 4), f32(1, 16, 4, 4), f32(1, 3, 4, 4))
case(ops.Concat(axis=-2), booleans(2, 3), booleans(1, 3))
case(ops.Concat(axis=0), integers("int64", 1), integers("int64", 2))

case(ops.Split(num_outputs=2), f32(4, 3), outputs=2)
case(ops.Split(num_outputs=3, axis=1), f32(2, 7), outputs=3)
case(ops.Split(num_outputs=4), f32(3, 2), outputs=4, reference=lambda x: (x[:1], x[1:2], x[2:], x[3:]))
case(ops.Split(num_outputs=3, axis=-1), f32(2, 3, 6), i64(1, 3, 2), outputs=3, reference=lambda x, split: tuple(np.split(x, [1, 4], -1)))
case(ops.Split(num_outputs=2), f16(3, 2), i64(0, 3), outputs=2, reference=lambda x, split: (x[:0], x))
case(ops.Split(num_outputs=1), integers("uint8", 3), reference=lambda x: x)

for mode in ("DCR", "CRD"):
    case(ops.DepthToSpace(blocksize=2, mode=mode), f32(2, 12, 3, 5))
    case(ops.DepthToSpace(blocksize=3, mode=mode), f16(1, 9, 2, 2))
    case(ops.SpaceToDepth(blocksize=2, mode=mode), f32(2, 3, 4, 6))
    case(ops.SpaceToDepth(blocksize=3, mode=mode), integers("int8", 1, 2, 3, 9))
