"""Importers of the ops in schema/ops/indexing.py."""

from mnnx.converter.frontends.onnx.node import OnnxNode
from mnnx.converter.frontends.onnx.registry import direct, importer
from mnnx.converter.graph import Value
from mnnx.schema.ops import indexing as ops

direct(ops.Gather, ops.GatherElements, ops.GatherND, ops.ScatterElements, ops.ScatterND)
direct(ops.TensorScatter, ops.OneHot, ops.NonZero, ops.Unique)


@importer("Scatter")
def scatter(node: OnnxNode, *_inputs: Value):
    return node.op(ops.ScatterElements)  # its name in opset 9 and 10


@importer("TopK")
def top_k(node: OnnxNode, x: Value, k: Value | None = None):
    if k is None:  # opset 1 … 9
        k = node.constant([node.attribute("k", int)], "int64")
    return node.add(node.op(ops.TopK), x, k, outputs=2)
