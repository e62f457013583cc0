"""A Conv of a dequantized image and dequantized weights, quantized again, is QLinearConv; its bias is int32s in units of both scales.

Q(conv(sx (x - zx), sw (w - zw)) + sx sw c)  =  saturate(round((conv(x - zx, w - zw) + c) sx sw / sy) + zy)
"""

from __future__ import annotations

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.passes.base import Rule, substitute
from mnnx.converter.passes.quantized_matmul import integer_bias
from mnnx.converter.passes.quantized_values import dequantized, quantized, quantized_result
from mnnx.schema.ops.convolution import Conv
from mnnx.schema.ops.quantization import QLinearConv

#: Output channels of a group of several input channels from which on a product in integers is faster than one in floats.
_LEAST_ROWS = 8


class QuantizeConv(Rule):
    name = "Conv to QLinearConv"
    ops = (Conv,)

    def match(self, node: Node, graph: Graph) -> str | None:
        if type(node.op) is not Conv:
            return "other ops have been fused into it"
        x, w = (dequantized(value) for value in node.inputs[:2])
        if x is None or w is None or w.integers.constant is None:
            return "the image or the weights aren't made of bytes by a DequantizeLinear with constants"
        if not x.per_tensor or not (w.per_tensor or w.axis % w.integers.rank == 0):
            return "the image has several scales, or the weights others than one per output channel"
        if node.op.group > 1 and w.integers.shape[1] > 1 and w.integers.shape[0] < _LEAST_ROWS * node.op.group:
            return "its groups have too few channels for a product of bytes to gain anything"
        if quantized_result(node, graph) is None:
            return "the result isn't for one QuantizeLinear to bytes alone"
        if self._has_bias(node) and self._bias(node) is None:
            return "the bias isn't a vector of constant int32s in units of both scales"
        return None

    def rewrite(self, node: Node, graph: Graph) -> None:
        x, w = (dequantized(value) for value in node.inputs[:2])
        last = node.outputs[0].users[0]
        inputs = [x.integers, *x.parameters(), w.integers, *w.parameters(), *quantized(last).parameters()]
        if self._has_bias(node):
            inputs.append(self._bias(node))
        op = QLinearConv(**{key: getattr(node.op, key) for key in QLinearConv.fields})
        substitute(graph, last, Node(op, inputs, last.outputs, node.name))
        graph.remove(node)

    def _has_bias(self, node: Node) -> bool:
        return len(node.inputs) > 2 and node.inputs[2] is not None

    def _bias(self, node: Node) -> Value | None:
        x, w = (dequantized(value) for value in node.inputs[:2])
        return integer_bias(node.inputs[2], x.scale * w.scale, w.integers.shape[0])
