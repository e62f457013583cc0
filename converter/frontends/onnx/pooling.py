"""Poolings; opset 1 wrote the p of LpPool and GlobalLpPool as a float."""

from mnnx.converter.frontends.onnx.convolution import auto_pad
from mnnx.converter.frontends.onnx.node import OnnxNode
from mnnx.converter.frontends.onnx.registry import direct, importer
from mnnx.converter.graph import Value
from mnnx.schema.ops.pooling import AveragePool, GlobalAveragePool, GlobalLpPool, GlobalMaxPool, LpPool, MaxPool, MaxUnpool

direct(GlobalAveragePool, GlobalMaxPool, MaxUnpool)


@importer("MaxPool")
def max_pool(node: OnnxNode, x: Value) -> MaxPool:
    return node.op(MaxPool, auto_pad=auto_pad(node))


@importer("AveragePool")
def average_pool(node: OnnxNode, x: Value) -> AveragePool:
    return node.op(AveragePool, auto_pad=auto_pad(node))


@importer("LpPool")
def lp_pool(node: OnnxNode, x: Value) -> LpPool:
    return node.op(LpPool, auto_pad=auto_pad(node), p=_p(node))


@importer("GlobalLpPool")
def global_lp_pool(node: OnnxNode, x: Value) -> GlobalLpPool:
    return node.op(GlobalLpPool, p=_p(node))


def _p(node: OnnxNode) -> int:
    if node.opset >= 2:
        return node.attribute("p", int, 2)
    p = node.attribute("p", float, 2.0)
    if not p.is_integer():
        node.fail(f"p is {p}; only whole numbers are supported, as in opset 2 and later")
    return int(p)
