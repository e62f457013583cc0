"""Importers of the ops in schema/ops/detection.py."""

from mnnx.converter.frontends.onnx.node import OnnxNode
from mnnx.converter.frontends.onnx.registry import direct, importer
from mnnx.converter.graph import Value
from mnnx.schema.ops import detection as ops

direct(ops.MaxRoiPool, ops.NonMaxSuppression)


@importer("RoiAlign")
def roi_align(node: OnnxNode, *_inputs: Value):
    default = "half_pixel" if node.opset >= 16 else "output_half_pixel"
    return node.op(ops.RoiAlign, coordinate_transformation_mode=node.attribute("coordinate_transformation_mode", str, default))
