"""Sums and products of bytes: Q(D(a) + D(b)) and Q(D(a) * D(b)) are one op each."""

from __future__ import annotations

import numpy as np

from mnnx.converter.graph import Graph, Node
from mnnx.converter.passes.base import Rule, made_by, only_user, substitute
from mnnx.converter.passes.quantized_values import Quantized, dequantized, quantized
from mnnx.schema.ops.arithmetic import Add, Mul
from mnnx.schema.ops.quantization import QuantizeLinear
from mnnx.schema.ops.quantized_arithmetic import QuantizedAdd, QuantizedMul


class QuantizeArithmetic(Rule):
    """Starts from the QuantizeLinear."""

    name = "Add and Mul of bytes"
    ops = (QuantizeLinear,)

    def match(self, node: Node, graph: Graph) -> str | None:
        last = quantized(node)
        if last is None:
            return "not a QuantizeLinear to bytes with one constant scale"
        function = made_by(node.inputs[0], Add, Mul)
        if function is None:
            return "not of an Add or Mul"
        if only_user(node.inputs[0], graph) is not node:
            return "its sum or product is used elsewhere"
        found = [dequantized(value) for value in function.inputs]
        if any(one is None or not one.per_tensor for one in found) or all(one.integers.constant is not None for one in found):
            return "not both operands are bytes with one constant scale, one of them computed"
        scales = [one.scale.item() for one in (*found, last)]
        return None if np.isfinite(scales).all() and scales[-1] > 0 else "a scale isn't finite, or that of the result isn't positive"

    def rewrite(self, node: Node, graph: Graph) -> None:
        function, last = node.inputs[0].producer, quantized(node)
        operands = [dequantized(value) for value in function.inputs]
        op = (QuantizedAdd if isinstance(function.op, Add) else QuantizedMul)(
            output_dtype=last.zero.dtype,
            **{f"{name}_{key}": number for name, one in zip("aby", (*operands, last), strict=True) for key, number in _numbers(one)},
        )
        substitute(graph, node, Node(op, [one.integers for one in operands], node.outputs, function.name))
        graph.remove(function)


def _numbers(one: Quantized) -> tuple[tuple[str, float], tuple[str, int]]:
    return ("scale", one.scale.item()), ("zero", one.zero.item())
