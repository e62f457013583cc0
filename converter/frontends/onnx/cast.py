"""Importers of the ops in schema/ops/cast.py."""

import onnx

from mnnx.converter.frontends.onnx.node import OnnxNode
from mnnx.converter.frontends.onnx.registry import direct, importer
from mnnx.converter.graph import Value
from mnnx.schema.ops import cast as ops

direct(ops.BitCast)


@importer("Cast")
def cast(node: OnnxNode, x: Value):
    if node.opset >= 6:
        return node.op(ops.Cast)
    name = node.attribute("to", str).upper()
    if name not in onnx.TensorProto.DataType.keys():  # noqa: SIM118 (an enum wrapper, which has no `in`)
        node.fail(f"the data type {name!r} is unknown")
    return ops.Cast(to=node.dtype(onnx.TensorProto.DataType.Value(name)))


@importer("CastLike")
def cast_like(node: OnnxNode, x: Value, like: Value):
    if like.dtype is None:
        return node.op(ops.CastLike)
    return node.add(node.op(ops.Cast, to=like.dtype), x)
