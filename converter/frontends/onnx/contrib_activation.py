"""Importers of activation functions of the domain com.microsoft, which ONNX Runtime's optimizer writes into models."""

from mnnx.converter.frontends.onnx.node import OnnxNode
from mnnx.converter.frontends.onnx.registry import importer
from mnnx.converter.graph import Value
from mnnx.schema.ops.activation import Gelu, Swish
from mnnx.schema.ops.arithmetic import Add

DOMAIN = "com.microsoft"


@importer("Gelu", "BiasGelu", "FastGelu", domain=DOMAIN)
def gelu(node: OnnxNode, x: Value, bias: Value | None = None):
    biased = x if bias is None else node.add(Add(), x, bias)
    return node.add(Gelu(approximate="tanh" if node.op_type == "FastGelu" else "none"), biased)


@importer("QuickGelu", domain=DOMAIN)
def quick_gelu(node: OnnxNode, x: Value):
    return Swish(alpha=node.attribute("alpha", float, 1.702))
