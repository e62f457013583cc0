"""Rows of the ops in schema/ops/generation.py; random ones are tested apart."""

import ml_dtypes
import numpy as np

from mnnx.schema.ops import generation as ops
from tests.cases import case, f32, i64, integers

case(ops.ConstantOfShape(), i64(2, 3))
case(ops.ConstantOfShape(value=np.array([7], np.int64)), i64(4))
case(ops.ConstantOfShape(value=np.array([True])), i64(2, 0))
case(ops.ConstantOfShape(value=np.array([1.5], np.float16)), i64())


def scalars(dtype: str, *values: float) -> list[np.ndarray]:
    return [np.array(value, dtype) for value in values]


case(ops.Range(), *scalars("int64", 0, 10, 3))
case(ops.Range(), *scalars("int32", 10, 4, -2))
case(ops.Range(), *scalars("int64", 5, 5, 1))
case(ops.Range(), *scalars("int64", 0, -5, 1))
case(ops.Range(), *scalars("float32", 0, 1, 0.25))
case(ops.Range(), *scalars("float64", 1, -1, -0.3))
case(ops.Range(), *scalars("int16", 0, 7, 2))
case(ops.Range(), *scalars("float16", 0, 5, 1))

case(ops.EyeLike(), f32(3, 4))
case(ops.EyeLike(k=1, dtype="int32"), f32(3, 3))
case(ops.EyeLike(k=-2), integers("int64", 4, 5))
case(ops.EyeLike(k=9), f32(2, 3))
case(ops.EyeLike(k=-(2**60)), f32(2, 3), reference=np.zeros_like)
case(ops.EyeLike(dtype=ml_dtypes.bfloat16), f32(2, 3), reference=lambda x: np.eye(2, 3).astype(ml_dtypes.bfloat16))

for op_class in (ops.HannWindow, ops.HammingWindow, ops.BlackmanWindow):
    case(op_class(), np.array(10, np.int32))
    case(op_class(periodic=False), np.array(9, np.int64))
    case(op_class(output_datatype="float64"), np.array(1, np.int64))
    case(op_class(output_datatype="int32"), np.array(8, np.int64))

case(ops.MelWeightMatrix(), *scalars("int64", 8, 64, 16000), *scalars("float32", 0, 8000))
case(ops.MelWeightMatrix(), *scalars("int32", 20, 512, 22050), *scalars("float32", 125, 7600))

case(ops.Dropout(), f32(3, 4), outputs=2)
case(ops.Dropout(), f32(3, 4), np.array(0.3, np.float32), np.array(False), outputs=2)
case(ops.Dropout(), f32(3, 4), np.array(0, np.float32), np.array(True), outputs=2)
