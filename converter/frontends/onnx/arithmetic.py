"""Importers of the ops in schema/ops/arithmetic.py."""

from mnnx.converter.frontends.onnx.broadcasting import binary, chained
from mnnx.converter.frontends.onnx.node import OnnxNode
from mnnx.converter.frontends.onnx.registry import direct, importer
from mnnx.converter.graph import Value
from mnnx.schema.ops import arithmetic as ops
from mnnx.schema.ops.cast import CastLike
from mnnx.schema.ops.shape import Identity

direct(ops.Mod, ops.Neg, ops.Abs, ops.Sign, ops.Erf, ops.Sqrt, ops.Reciprocal, ops.Exp, ops.Log, ops.Ceil, ops.Floor, ops.Round)
direct(ops.Sin, ops.Cos, ops.Tan, ops.Asin, ops.Acos, ops.Atan, ops.Sinh, ops.Cosh, ops.Tanh, ops.Asinh, ops.Acosh, ops.Atanh)
binary(ops.Add, ops.Sub, ops.Mul, ops.Div, ops.Pow)


@importer("Max", "Min", "Sum")
def variadic(node: OnnxNode, *values: Value):
    op = {"Max": ops.Max, "Min": ops.Min, "Sum": ops.Sum}[node.op_type]()
    return Identity() if len(values) == 1 else chained(node, op, values)


@importer("Mean")
def mean(node: OnnxNode, *values: Value):
    if len(values) <= ops.MAX_VARIADIC:
        return Identity() if len(values) == 1 else ops.Mean()
    count = scalar_like(node, len(values), values[0])
    return node.add(ops.Div(), chained(node, ops.Sum(), values), count)


@importer("Clip")
def clip(node: OnnxNode, x: Value, low: Value | None = None, high: Value | None = None):
    if node.opset < 11:
        low, high = (scalar_like(node, node.attribute(key, float), x) if node.has(key) else None for key in ("min", "max"))
    return Identity() if low is high is None else node.add(ops.Clip(), x, low, high)


def scalar_like(node: OnnxNode, number: float, like: Value) -> Value:
    """A scalar constant of the dtype of `like`."""
    if like.dtype is not None:
        return node.constant(number, like.dtype)
    return node.add(CastLike(), node.constant(number, "float32"), like)
