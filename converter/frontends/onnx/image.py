"""Importers of the ops in schema/ops/image.py."""

from mnnx.converter.frontends.onnx.node import OnnxNode
from mnnx.converter.frontends.onnx.registry import direct, importer
from mnnx.converter.graph import Value
from mnnx.schema.ops import image as ops

direct(ops.AffineGrid, ops.ImageDecoder)


@importer("GridSample")
def grid_sample(node: OnnxNode, x: Value, grid: Value):
    mode = node.attribute("mode", str, "linear")
    return node.op(ops.GridSample, mode={"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode))  # their names in opset 16
