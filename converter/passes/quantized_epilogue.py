"""What follows a QLinearMatMul goes into it: DequantizeLinear, Add, an activation and QuantizeLinear, in this order.

It becomes an `mnnx::FusedQLinearMatMul`. Tables of bytes go into the Concat behind them, which becomes an `mnnx::ByteTableConcat`.
"""

from __future__ import annotations

import numpy as np

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.passes.base import Rule, RulePass, SearchRule, made_by, only_user, scalar, substitute
from mnnx.converter.passes.epilogue_fusion import ACTIVATIONS, activation_of, vector
from mnnx.converter.passes.quantized_values import dequantized, quantized
from mnnx.schema.ops.arithmetic import Add, Div, Mul
from mnnx.schema.ops.fused_quantization import ByteTable, ByteTableConcat, FusedQLinearMatMul
from mnnx.schema.ops.quantization import BYTES, DequantizeLinear, QLinearMatMul, QuantizeLinear
from mnnx.schema.ops.shape import Concat

_FLOAT32 = np.dtype("float32")
#: Where inputs of a FusedQLinearMatMul stand.
_Y_SCALE, _Y_ZERO, _ADDEND, _OUT = 6, 7, 9, 10


def _product(value: Value | None) -> Node | None:
    """The product that makes a value, where its result is still to be added to or quantized."""
    product = made_by(value, FusedQLinearMatMul)
    return product if product is not None and product.op.dequantizes and len(product.inputs) <= _OUT else None


def _extend(graph: Graph, node: Node, product: Node, op: FusedQLinearMatMul, *inputs: Value | None) -> None:
    """Puts the product, with more inputs, in the place of `node`."""
    substitute(graph, node, Node(op, [*product.inputs, *inputs], node.outputs, product.name))
    graph.remove(product)


class FuseDequantize(Rule):
    name = "DequantizeLinear into QLinearMatMul"
    ops = (DequantizeLinear,)

    def match(self, node: Node, graph: Graph) -> str | None:
        found = dequantized(node.outputs[0])
        product = None if found is None else made_by(found.integers, QLinearMatMul, FusedQLinearMatMul)
        if product is None or len(product.inputs) > _ADDEND or getattr(product.op, "dequantizes", False):
            return "not the DequantizeLinear of a QLinearMatMul"
        scale, zero = product.inputs[_Y_SCALE].constant, product.inputs[_Y_ZERO].constant
        if scale is None or zero is None or scale.dtype != _FLOAT32 or zero.dtype not in BYTES:
            return "the scale and zero point of the product are not a constant float32 and a constant byte"
        if not found.per_tensor or scale.item() != found.scale.item() or zero.item() != found.zero.item():
            return "it has other constants than the product"
        if (product.inputs[3].rank or 0) < 2:
            return "the right operand isn't known to be a matrix"
        return None if only_user(found.integers, graph) is node else "the product is used elsewhere"

    def rewrite(self, node: Node, graph: Graph) -> None:
        product = node.inputs[0].producer
        _extend(graph, node, product, FusedQLinearMatMul(dequantizes=True))


class FuseAddend(SearchRule):
    name = "addend into QLinearMatMul"
    ops = (Add,)

    def find(self, node: Node, graph: Graph) -> tuple[Node, Value] | str:
        """The product and the addend."""
        for result, addend in (node.inputs, node.inputs[::-1]):
            product = _product(result)
            if product is None or product.op.activation or len(product.inputs) > _ADDEND or only_user(result, graph) is not node:
                continue
            row = None if addend.constant is None or not addend.constant.ndim else addend.constant
            if row is None or row.dtype != _FLOAT32 or row.ndim > (result.rank or 0):
                continue
            if row.size == row.shape[-1] == product.inputs[3].shape[-1]:
                return product, addend
        return "not a QLinearMatMul plus a vector"

    def rewrite_found(self, node: Node, graph: Graph, found: tuple[Node, Value]) -> None:
        product, addend = found
        bias = [] if len(product.inputs) == _ADDEND else [None]
        _extend(graph, node, product, product.op, *bias, vector(addend))


class FuseActivation(Rule):
    name = "activation into QLinearMatMul"
    ops = ACTIVATIONS

    def match(self, node: Node, graph: Graph) -> str | None:
        if activation_of(node) is None:
            return "its parameters are computed"
        product = _product(node.inputs[0])
        if product is None or product.op.activation:
            return "not after a QLinearMatMul"
        return None if only_user(node.inputs[0], graph) is node else "the product is used elsewhere"

    def rewrite(self, node: Node, graph: Graph) -> None:
        product = node.inputs[0].producer
        activation, parameters = activation_of(node)
        _extend(graph, node, product, product.op.replace(activation=activation, activation_parameters=parameters))


class ScaleQuantized(SearchRule):
    """x * c quantized with a scale is x quantized with scale / c: where x is a product's result, that saves a pass."""

    name = "factor into QuantizeLinear"
    ops = (QuantizeLinear,)

    def find(self, node: Node, graph: Graph) -> tuple[Value, float] | str:
        """The product's result and the factor."""
        reason = "not a QuantizeLinear of a QLinearMatMul times a positive number"
        scaling = made_by(node.inputs[0], Mul, Div) if quantized(node) is not None else None
        if scaling is None or only_user(node.inputs[0], graph) is not node:
            return reason
        for result, number in [scaling.inputs] if isinstance(scaling.op, Div) else (scaling.inputs, scaling.inputs[::-1]):
            factor = scalar(number, beside=result)
            if _product(result) is None or factor is None:
                continue
            if 1e-6 < factor < 1e6:
                return result, factor if isinstance(scaling.op, Mul) else 1 / factor
        return reason

    def rewrite_found(self, node: Node, graph: Graph, found: tuple[Value, float]) -> None:
        result, factor = found
        spent = node.inputs[0].producer
        scale = node.inputs[1].constant / np.float32(factor)
        node.set_input(0, result)
        node.set_input(1, Value(f"{node.inputs[1].name}/{spent.name}", constant=scale))
        graph.remove(spent)


class FuseQuantize(Rule):
    name = "QuantizeLinear into QLinearMatMul"
    ops = (QuantizeLinear,)

    def match(self, node: Node, graph: Graph) -> str | None:
        if quantized(node) is None:
            return "not a QuantizeLinear to bytes with one constant scale"
        if _product(node.inputs[0]) is None:
            return "not of the dequantized result of a QLinearMatMul"
        return None if only_user(node.inputs[0], graph) is node else "the product is used elsewhere"

    def rewrite(self, node: Node, graph: Graph) -> None:
        product = node.inputs[0].producer
        absent = [None] * (_OUT - len(product.inputs))
        _extend(graph, node, product, product.op, *absent, *quantized(node).parameters())


class TablesIntoConcat(Rule):
    """Parts that only the Concat takes come with their tables; parts without one stay as they are."""

    name = "tables into Concat"
    ops = (Concat,)

    def match(self, node: Node, graph: Graph) -> str | None:
        if not any(self._takes(value, node, graph) for value in node.inputs):
            return "no part is made by a table of bytes for it alone"
        return None if all(value.dtype in BYTES for value in node.inputs) else "not all parts are known to be bytes"

    def rewrite(self, node: Node, graph: Graph) -> None:
        inputs, spent = [], []
        for value in node.inputs:
            if self._takes(value, node, graph):
                spent.append(value.producer)
                inputs += value.producer.inputs
            else:
                inputs += (value, None)
        substitute(graph, node, Node(ByteTableConcat(axis=node.op.axis), inputs, node.outputs, node.name))
        for maker in spent:
            graph.remove(maker)

    def _takes(self, value: Value, node: Node, graph: Graph) -> bool:
        return made_by(value, ByteTable) is not None and only_user(value, graph) is node


class QuantizedEpilogue(RulePass):
    """Puts DequantizeLinear, Add of a vector, activation and QuantizeLinear into the QLinearMatMul before them, tables into Concats."""

    name = "quantized-epilogue"
    level = 2
    rules = (FuseDequantize(), FuseAddend(), FuseActivation(), ScaleQuantized(), FuseQuantize(), TablesIntoConcat())
