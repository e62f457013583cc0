"""Importers of the experimental ops of early ONNX, which older converters (CoreML, Keras) wrote and models of that time still hold."""

import numpy as np

from mnnx.converter.frontends.onnx.arithmetic import scalar_like
from mnnx.converter.frontends.onnx.node import OnnxNode
from mnnx.converter.frontends.onnx.registry import importer
from mnnx.converter.graph import Value
from mnnx.schema.ops.activation import Softplus
from mnnx.schema.ops.arithmetic import Add, Mul, Tanh
from mnnx.schema.ops.slicing import Slice


def _scaled(node: OnnxNode, x: Value, factor: float) -> Value:
    return x if factor == 1 else node.add(Mul(), x, scalar_like(node, factor, x))


@importer("Affine")
def affine(node: OnnxNode, x: Value):
    """alpha * x + beta."""
    scaled = _scaled(node, x, node.attribute("alpha", float, 1.0))
    return node.add(Add(), scaled, scalar_like(node, node.attribute("beta", float, 0.0), x))


@importer("ScaledTanh", "ParametricSoftplus")
def scaled_activation(node: OnnxNode, x: Value):
    """alpha * f(beta * x)."""
    function = Tanh() if node.op_type == "ScaledTanh" else Softplus()
    inner = node.add(function, _scaled(node, x, node.attribute("beta", float, 1.0)))
    return _scaled(node, inner, node.attribute("alpha", float, 1.0))


@importer("ImageScaler")
def image_scaler(node: OnnxNode, x: Value):
    """scale * x + one bias per channel; x is [N, C, H, W]."""
    bias = node.constant(np.reshape(node.attribute("bias", tuple[float, ...]), (-1, 1, 1)), "float32" if x.dtype is None else x.dtype)
    return node.add(Add(), _scaled(node, x, node.attribute("scale", float, 1.0)), bias)


@importer("Crop")
def crop(node: OnnxNode, x: Value):
    """x, [N, C, H, W], without `border` (left, top, right, bottom), or `scale` (height, width) of it from (left, top) on."""
    border = node.attribute("border", tuple[int, ...])
    size = node.attribute("scale", tuple[int, ...], ())
    if len(border) != 4 or len(size) not in (0, 2):
        node.fail(f"needs four borders, and two sizes or none; found {list(border)} and {list(size)}")
    left, top, right, bottom = border
    ends = (top + size[0], left + size[1]) if size else (-bottom or 2**31 - 1, -right or 2**31 - 1)
    bounds = [node.constant(values, "int64") for values in ((top, left), ends, (2, 3))]
    return node.add(Slice(), x, *bounds)


@importer("Scale")
def scale(node: OnnxNode, x: Value):
    """scale * x."""
    return _scaled(node, x, node.attribute("scale", float, 1.0))


@importer("DynamicSlice")
def dynamic_slice(node: OnnxNode, x: Value, starts: Value, ends: Value, axes: Value | None = None):
    """What Slice became in opset 10, without steps."""
    return Slice()
