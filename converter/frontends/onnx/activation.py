"""Importers of the ops in schema/ops/activation.py."""

from mnnx.converter.frontends.onnx.broadcasting import trailing
from mnnx.converter.frontends.onnx.node import OnnxNode
from mnnx.converter.frontends.onnx.registry import direct, importer
from mnnx.converter.graph import Value
from mnnx.schema.ops import activation as ops
from mnnx.schema.ops.shape import Flatten, Reshape, Shape

direct(ops.Relu, ops.LeakyRelu, ops.Elu, ops.Celu, ops.ThresholdedRelu, ops.HardSigmoid, ops.HardSwish, ops.Sigmoid, ops.Softplus)
direct(ops.Softsign, ops.Gelu, ops.Mish, ops.Swish, ops.SwiGLU, ops.Shrink)


@importer("Selu")
def selu(node: OnnxNode, x: Value):
    if node.opset >= 6:
        return node.op(ops.Selu)
    return ops.Selu(alpha=node.attribute("alpha", float, 1.6732), gamma=node.attribute("gamma", float, 1.0507))


@importer("PRelu")
def prelu(node: OnnxNode, x: Value, slope: Value):
    if node.opset < 7 and slope.rank == 1 and slope.shape != (1,):  # one slope per channel
        if x.rank is None:
            node.fail("needs an input of known rank in opset 1 … 6; convert the model with onnx.version_converter first")
        slope = trailing(node, slope, x.rank - 2)
    return node.add(ops.PRelu(), x, slope)


@importer("Softmax", "LogSoftmax", "Hardmax")
def softmax(node: OnnxNode, x: Value):
    op_class = {"Softmax": ops.Softmax, "LogSoftmax": ops.LogSoftmax, "Hardmax": ops.Hardmax}[node.op_type]
    if node.opset >= 13:
        return node.op(op_class)
    # Opset 1 … 12: over all axes from `axis` on, as one.
    axis = node.attribute("axis", int, 1)
    if x.shape is not None:
        first = axis + x.rank if axis < 0 else axis
        if first == x.rank - 1 or (0 <= first < x.rank and all(dim == 1 for dim in x.shape[first + 1 :])):
            return op_class(axis=first)
    rows = node.add(op_class(axis=-1), node.add(Flatten(axis=axis), x))
    return node.add(Reshape(allowzero=True), rows, node.add(Shape(), x))
