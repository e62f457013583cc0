"""Importers of the ops in schema/ops/comparison.py."""

from mnnx.converter.frontends.onnx.broadcasting import binary
from mnnx.converter.frontends.onnx.registry import direct
from mnnx.schema.ops import comparison as ops

direct(ops.GreaterOrEqual, ops.LessOrEqual, ops.Not, ops.IsNaN, ops.IsInf, ops.Where)
direct(ops.BitwiseAnd, ops.BitwiseOr, ops.BitwiseXor, ops.BitwiseNot, ops.BitShift)
binary(ops.Equal, ops.Greater, ops.Less, ops.And, ops.Or, ops.Xor)
