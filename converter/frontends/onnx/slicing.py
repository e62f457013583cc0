"""Importers of the ops in schema/ops/slicing.py."""

from mnnx.converter.frontends.onnx.node import OnnxNode
from mnnx.converter.frontends.onnx.registry import direct, importer
from mnnx.converter.graph import Value
from mnnx.schema.ops import slicing as ops
from mnnx.schema.ops.cast import CastLike

direct(ops.Trilu, ops.CenterCropPad, ops.ReverseSequence, ops.Compress)


@importer("Slice")
def slice_(node: OnnxNode, data: Value, *ranges: Value | None):
    if node.opset < 10:
        starts, ends = (node.constant(node.attribute(name, tuple[int, ...]), "int64") for name in ("starts", "ends"))
        axes = node.constant(node.attribute("axes", tuple[int, ...]), "int64") if node.has("axes") else None
        ranges = starts, ends, axes
    return node.add(ops.Slice(), data, *ranges)


@importer("Pad")
def pad(node: OnnxNode, data: Value, pads: Value | None = None, value: Value | None = None, axes: Value | None = None):
    if node.opset < 11:
        name = "paddings" if node.opset < 2 else "pads"
        pads = node.constant(node.attribute(name, tuple[int, ...]), "int64")
        if node.has("value"):
            value = node.constant(node.attribute("value", float), "float32" if data.dtype is None else data.dtype)
            value = value if data.dtype is not None else node.add(CastLike(), value, data)
    return node.add(node.op(ops.Pad), data, pads, value, axes)
