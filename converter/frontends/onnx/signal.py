"""Importers of the ops in schema/ops/signal.py."""

from mnnx.converter.frontends.onnx.node import OnnxNode
from mnnx.converter.frontends.onnx.registry import direct, importer
from mnnx.converter.graph import Value
from mnnx.schema.ops import signal as ops

direct(ops.STFT)


@importer("DFT")
def dft(node: OnnxNode, x: Value, dft_length: Value | None = None, axis: Value | None = None):
    if node.opset < 20:
        axis = node.constant(node.attribute("axis", int, 1), "int64")
    return node.add(node.op(ops.DFT), x, dft_length, axis)
