"""Importers of Resize and of Upsample, its name before opset 10."""

import numpy as np

from mnnx.converter.frontends.onnx.node import OnnxNode
from mnnx.converter.frontends.onnx.registry import importer
from mnnx.converter.graph import Value
from mnnx.schema.ops.resize import Resize


@importer("Resize")
def resize(node: OnnxNode, x: Value, *others: Value | None):
    if node.opset < 11:
        return _asymmetric(node, x, others[0] if others else None)
    return node.op(Resize)


@importer("Upsample")
def upsample(node: OnnxNode, x: Value, scales: Value | None = None):
    if node.opset < 7:
        factors = [1.0, 1.0, node.attribute("height_scale", float), node.attribute("width_scale", float)]
        scales = node.constant(factors, "float32")
    elif scales is None:
        scales = node.constant(node.attribute("scales", tuple[float, ...]), "float32")
    return _asymmetric(node, x, scales)


def _asymmetric(node: OnnxNode, x: Value, scales: Value | None) -> Value:
    """What Resize and Upsample were before opset 11."""
    if scales is None:
        node.fail("needs the input scales")
    mode = node.attribute("mode", str, "nearest")
    mode = "linear" if mode == "bilinear" else mode
    op = node.op(Resize, mode=mode, coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    if mode != "nearest" or scales.constant is None or (scales.constant >= 1).all():
        return node.add(op, x, None, scales)
    # Downscaling took the next pixel, upscaling the last one (ONNX Runtime's reading of what the specification left open).
    up, down = np.maximum(scales.constant, 1), np.minimum(scales.constant, 1)
    if (up > 1).any():
        x = node.add(op, x, None, node.constant(up))
    return node.add(op.replace(nearest_mode="ceil"), x, None, node.constant(down))
