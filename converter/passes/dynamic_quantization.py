"""Products of dynamically quantized tensors, as onnxruntime's quantize_dynamic writes them, become one op.

    xq, x_scale, x_zero = DynamicQuantizeLinear(x)
    y = activation(Cast(MatMulInteger(xq, w, x_zero, w_zero)) * (x_scale * w_scale) + bias)

is a `mnnx::FusedMatMulInteger`, and where nobody else wants x in bytes, a `mnnx::FusedDynamicQuantizeMatMul`, which quantizes x, too.
"""

from __future__ import annotations

import numpy as np

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.passes.base import Rule, RulePass, SearchRule, made_by, only_user, substitute
from mnnx.converter.passes.epilogue_fusion import ACTIVATIONS, activation_of, vector
from mnnx.schema.ops.arithmetic import Add, Mul
from mnnx.schema.ops.cast import Cast
from mnnx.schema.ops.dynamic_quantization import FusedDynamicQuantizeMatMul, FusedMatMulInteger
from mnnx.schema.ops.quantization import DynamicQuantizeLinear, MatMulInteger

_FLOAT32 = np.dtype("float32")
_FUSED = (FusedMatMulInteger, FusedDynamicQuantizeMatMul)
#: How many inputs each takes before the bias.
_BIAS = {FusedMatMulInteger: 6, FusedDynamicQuantizeMatMul: 4}


def _is_number(value: Value) -> bool:
    return value.dtype == _FLOAT32 and value.shape in ((), (1,))


def _factors(value: Value, columns: int | str | None) -> tuple[Value, Value | None] | None:
    """A number, and constants of one element or one per column, of which `value` is the product."""

    def is_per_column(other: Value) -> bool:
        return other.constant is not None and other.dtype == _FLOAT32 and other.shape in ((), (1,), (columns,))

    product = made_by(value, Mul)
    for number, constant in (product.inputs, product.inputs[::-1]) if product is not None else ():
        if _is_number(number) and is_per_column(constant):
            return number, constant
    if _is_number(value):
        return value, None
    return (Value(f"{value.name}/one", constant=np.float32(1).reshape(())), value) if is_per_column(value) else None


class ScaleSums(SearchRule):
    name = "scales into MatMulInteger"
    ops = (Mul,)

    def find(self, node: Node, graph: Graph) -> tuple[Node, Value, tuple[Value, Value | None]] | str:
        for real, scales in (node.inputs, node.inputs[::-1]):
            cast = made_by(real, Cast)
            product = made_by(cast.inputs[0], MatMulInteger) if cast is not None and cast.op.to == _FLOAT32 else None
            if product is None or isinstance(product.op, FusedMatMulInteger):
                continue
            if only_user(real, graph) is not node or only_user(cast.inputs[0], graph) is not cast:
                return "the sums are used elsewhere"
            b = product.inputs[1]
            if b.rank is None or b.rank < 2:
                return "the right operand isn't known to be a matrix"
            factors = _factors(scales, b.shape[-1])
            return (product, scales, factors) if factors is not None else "not times a number and constants, one or one per column"
        return "not the int32 sums of a MatMulInteger in float32, times scales"

    def rewrite_found(self, node: Node, graph: Graph, found: tuple[Node, Value, tuple[Value, Value | None]]) -> None:
        product, scales, (number, constants) = found
        cast = product.outputs[0].users[0]
        inputs = [*product.inputs, None, None][:4]
        substitute(graph, node, Node(FusedMatMulInteger(), [*inputs, number, constants], node.outputs, product.name))
        graph.remove(cast)
        graph.remove(product)
        if scales is not number and scales.producer is not None and not scales.users and not graph.is_output(scales):
            graph.remove(scales.producer)  # so that the scale of the left operand has one user less


def _replace(graph: Graph, node: Node, product: Node, op: FusedMatMulInteger | FusedDynamicQuantizeMatMul, *more: Value) -> None:
    """Puts the product, with more inputs, in the place of `node`, which follows it."""
    substitute(graph, node, Node(op, [*product.inputs, *more], node.outputs, product.name))
    graph.remove(product)


class FuseBias(SearchRule):
    name = "bias into a dynamically quantized product"
    ops = (Add,)

    def find(self, node: Node, graph: Graph) -> tuple[Node, Value] | str:
        for result, bias in (node.inputs, node.inputs[::-1]):
            product, row = made_by(result, *_FUSED), bias.constant
            if product is None or product.op.activation or len(product.inputs) > _BIAS[type(product.op)]:
                continue
            if only_user(result, graph) is not node:
                return "the product is used elsewhere"
            if row is None or row.dtype != _FLOAT32 or not row.ndim or row.ndim > (result.rank or 0):
                continue
            if row.size == row.shape[-1] == product.inputs[1].shape[-1]:
                return product, bias
        return "not the floats of a dynamically quantized product plus a constant row"

    def rewrite_found(self, node: Node, graph: Graph, found: tuple[Node, Value]) -> None:
        product, bias = found
        _replace(graph, node, product, product.op, vector(bias))


class FuseActivation(Rule):
    name = "activation into a dynamically quantized product"
    ops = ACTIVATIONS

    def match(self, node: Node, graph: Graph) -> str | None:
        if activation_of(node) is None:
            return "its parameters are computed"
        product = made_by(node.inputs[0], *_FUSED)
        if product is None or product.op.activation:
            return "not of the floats of a dynamically quantized product"
        return None if only_user(node.inputs[0], graph) is node else "the product is used elsewhere"

    def rewrite(self, node: Node, graph: Graph) -> None:
        product = node.inputs[0].producer
        activation, parameters = activation_of(node)
        _replace(graph, node, product, product.op.replace(activation=activation, activation_parameters=parameters))


class QuantizeInside(Rule):
    name = "DynamicQuantizeLinear into MatMulInteger"
    ops = (FusedMatMulInteger,)

    def match(self, node: Node, graph: Graph) -> str | None:
        a, _, a_zero, _, a_scale = node.inputs[:5]
        quantization = made_by(a, DynamicQuantizeLinear)
        if quantization is None:
            return "its left operand isn't made by a DynamicQuantizeLinear"
        if quantization.inputs[0].dtype != _FLOAT32:
            return "not of float32s"
        made = quantization.outputs
        if a_zero is None or [a, a_scale, a_zero] != made:
            return "it has another scale or zero point than the DynamicQuantizeLinear gives"
        used_once = all(only_user(value, graph) is node for value in made)
        return None if used_once else "what the DynamicQuantizeLinear gives is used elsewhere"

    def rewrite(self, node: Node, graph: Graph) -> None:
        quantization = node.inputs[0].producer
        _, b, _, b_zero, _, *rest = node.inputs
        attributes = {key: getattr(node.op, key) for key in node.op.fields}
        op = FusedDynamicQuantizeMatMul(**attributes)
        substitute(graph, node, Node(op, [*quantization.inputs, b, b_zero, *rest], node.outputs, node.name))
        graph.remove(quantization)


class DynamicQuantization(RulePass):
    """Puts scales, bias and activation into the MatMulInteger of dynamically quantized tensors, and the quantization of one used once."""

    name = "dynamic-quantization"
    level = 2
    rules = (ScaleSums(), FuseBias(), FuseActivation(), QuantizeInside())
