"""Rows of the ops in schema/ops/reduction.py."""

import numpy as np

from mnnx.schema.ops import reduction as ops
from tests.cases import booleans, case, f16, f32, f64, i64, integers

REDUCTIONS = (
    ops.ReduceSum,
    ops.ReduceMean,
    ops.ReduceProd,
    ops.ReduceMax,
    ops.ReduceMin,
    ops.ReduceL1,
    ops.ReduceL2,
    ops.ReduceSumSquare,
    ops.ReduceLogSum,
    ops.ReduceLogSumExp,
)

for op_class in REDUCTIONS:
    case(op_class(), f32(3, 4, 5, low=0.1))
    case(op_class(keepdims=False), f32(3, 4, 5, low=0.1))
    case(op_class(), f32(3, 4, 5, low=0.1), i64(1))
    case(op_class(keepdims=False), f32(2, 3, 4, 5, low=0.1), i64(-1, 0))
    case(op_class(keepdims=False), f32(2, 3, 7, 9, low=0.1), i64(2, 3))
    case(op_class(), f32(2, 3, low=0.1), i64())
    case(op_class(noop_with_empty_axes=True), f32(2, 3, low=0.1), i64())
    case(op_class(noop_with_empty_axes=True), f32(2, 3, low=0.1))
    case(op_class(), f32(1, low=0.1))
    case(op_class(), f64(3, 70, low=0.1), i64(1))
    case(op_class(), f16(3, 7, low=0.1), i64(0))
    case(op_class(), f32(0, 3, low=0.1), i64(1))
for op_class in (ops.ReduceSum, ops.ReduceMax, ops.ReduceMin, ops.ReduceMean, ops.ReduceL2):
    case(op_class(), f32(low=0.1), reference=lambda x, axes=None: x)
case(ops.ReduceSumSquare(), integers("int32", 3, 4), i64(1), reference=lambda x, axes: np.sum(x * x, 1, keepdims=True, dtype=x.dtype))
for op_class in (ops.ReduceSum, ops.ReduceProd, ops.ReduceMax, ops.ReduceMin, ops.ReduceL1):
    case(op_class(), integers("int32", 3, 4, low=-4, high=5), i64(1))
    case(op_class(keepdims=False), integers("int64", 3, 4), i64(0))
for op_class in (ops.ReduceSum, ops.ReduceProd, ops.ReduceMax, ops.ReduceMin, ops.ReduceL2):
    case(op_class(), f32(2, 0, 3), i64(1))
for op_class in (ops.ReduceMax, ops.ReduceMin):
    case(op_class(), integers("uint8", 3, 4), i64(1))
    case(op_class(), integers("int8", 3, 4, low=-9), i64(0))
    case(op_class(), booleans(4, 3), i64(1))
    case(op_class(), np.array([[np.nan, 1], [2, 3]], np.float32), i64(1))
case(ops.ReduceLogSumExp(), f32(3, 4, low=80, high=120), i64(1))

for op_class in (ops.ArgMax, ops.ArgMin):
    case(op_class(), f32(3, 4, 5))
    case(op_class(axis=1, keepdims=False), f32(3, 4, 5))
    case(op_class(axis=-1), f32(2, 1000))
    case(op_class(axis=-1), integers("int32", 4, 9, high=3))
    case(op_class(axis=-1, select_last_index=True), integers("int32", 4, 9, high=3))
    case(op_class(axis=0, select_last_index=True, keepdims=False), integers("uint8", 9, 2, high=3))
    case(op_class(axis=1), f16(3, 4))
    case(op_class(axis=1), f32(0, 4))

for op_class in (ops.CumSum, ops.CumProd):
    for exclusive in (False, True):
        for reverse in (False, True):
            op = op_class(exclusive=exclusive, reverse=reverse)
            case(op, f32(3, 5), np.array(1, np.int64))
            case(op, f32(2, 3, 4), np.array(-2, np.int32))
    case(op_class(), f64(7), np.array(0, np.int64))
    case(op_class(), integers("int32", 2, 5, low=1, high=4), np.array(0, np.int32))
    case(op_class(exclusive=True), f32(3, 1), np.array(1, np.int64))
    case(op_class(), f32(0, 2), np.array(0, np.int64))
