"""MatMul and Gemm of dequantized matrices, quantized again, are QLinearMatMul, with the bias of a Gemm in int32.

Q(sa (a - za) @ sb (b - zb) + sa sb c)  =  saturate(round(((a - za) @ (b - zb) + c) sa sb / sy) + zy)
"""

from __future__ import annotations

import numpy as np

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.passes.base import Rule, substitute
from mnnx.converter.passes.quantized_values import Quantized, dequantized, quantized, quantized_result
from mnnx.schema.ops.fused_quantization import FusedQLinearMatMul
from mnnx.schema.ops.matmul import Gemm, MatMul
from mnnx.schema.ops.quantization import QLinearMatMul

_INT32 = np.dtype("int32")


def _reason_against(node: Node, graph: Graph, transposed: bool = False) -> str | None:
    a, b = (dequantized(value) for value in node.inputs[:2])
    if a is None or b is None:
        return "an operand isn't made of bytes by a DequantizeLinear with constants"
    if not a.per_tensor:
        return "the left operand has several scales"
    if not b.per_tensor:
        rank = b.integers.rank
        if rank != 2 or b.axis % rank != (0 if transposed else 1):
            return "the right operand's scales are not one per column of a matrix"
    if quantized_result(node, graph) is None:
        return "the result isn't for one QuantizeLinear to bytes alone"
    return None


def _rewrite(node: Node, graph: Graph, a: Quantized, b: Quantized, matrix: Value, bias: Value | None) -> None:
    last = node.outputs[0].users[0]
    inputs = [a.integers, *a.parameters(), matrix, *b.parameters(), *quantized(last).parameters()]
    op = QLinearMatMul()
    if bias is not None:
        op, inputs = FusedQLinearMatMul(), [*inputs, bias]
    substitute(graph, last, Node(op, inputs, last.outputs, node.name))
    graph.remove(node)


class QuantizeMatMul(Rule):
    name = "MatMul to QLinearMatMul"
    ops = (MatMul,)

    def match(self, node: Node, graph: Graph) -> str | None:
        return _reason_against(node, graph)

    def rewrite(self, node: Node, graph: Graph) -> None:
        a, b = (dequantized(value) for value in node.inputs)
        _rewrite(node, graph, a, b, b.integers, None)


class QuantizeGemm(Rule):
    """Of a constant matrix; the bias is made of constant int32s in units of both scales."""

    name = "Gemm to QLinearMatMul"
    ops = (Gemm,)

    def match(self, node: Node, graph: Graph) -> str | None:
        if node.op.transA or node.op.alpha != 1:
            return "the left operand is transposed, or alpha isn't 1"
        if (reason := _reason_against(node, graph, node.op.transB)) is not None:
            return reason
        if node.op.transB and dequantized(node.inputs[1]).integers.constant is None:
            return "a computed matrix is transposed"
        if self._has_bias(node) and self._bias(node) is None:
            return "the bias isn't a row of constant int32s in units of both scales, with beta 1"
        return None

    def rewrite(self, node: Node, graph: Graph) -> None:
        a, b = (dequantized(value) for value in node.inputs[:2])
        matrix = b.integers
        if node.op.transB:
            matrix = Value(f"{matrix.name}/transposed", constant=np.ascontiguousarray(matrix.constant.T))
        _rewrite(node, graph, a, b, matrix, self._bias(node) if self._has_bias(node) else None)

    def _has_bias(self, node: Node) -> bool:
        return len(node.inputs) > 2 and node.inputs[2] is not None

    def _bias(self, node: Node) -> Value | None:
        a, b = (dequantized(value) for value in node.inputs[:2])
        columns = b.integers.shape[0 if node.op.transB else 1] if b.integers.rank == 2 else None
        return None if node.op.beta != 1 else integer_bias(node.inputs[2], a.scale * b.scale, columns)


def integer_bias(value: Value | None, scale: np.ndarray, count: int | None) -> Value | None:
    """The `count` constant int32s that a bias is dequantized from, if its scale is `scale` and its zero point 0."""
    bias = dequantized(value, _INT32)
    if bias is None or bias.integers.constant is None or bias.integers.shape not in ((count,), (1, count)) or bias.zero.any():
        return None
    scales, wanted = bias.scale.reshape(-1), scale.reshape(-1)
    if scales.size not in (1, count) or not np.allclose(scales, wanted, rtol=1e-5, atol=0):
        return None
    return bias.integers if bias.integers.rank == 1 else Value(f"{bias.integers.name}/row", constant=bias.integers.constant.reshape(-1))
