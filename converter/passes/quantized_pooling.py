"""Means of bytes: Q(mean(D(x))) is one op, whose sums are integers."""

from __future__ import annotations

import numpy as np

from mnnx.converter.graph import Graph, Node
from mnnx.converter.passes.base import Rule, made_by, only_user, substitute
from mnnx.converter.passes.quantized_values import dequantized, quantized
from mnnx.schema.ops.pooling import AveragePool, GlobalAveragePool
from mnnx.schema.ops.quantization import QuantizeLinear
from mnnx.schema.ops.quantized_pooling import QuantizedAveragePool, QuantizedGlobalAveragePool


class QuantizePooling(Rule):
    """Starts from the QuantizeLinear."""

    name = "means of bytes"
    ops = (QuantizeLinear,)

    def match(self, node: Node, graph: Graph) -> str | None:
        last = quantized(node)
        if last is None:
            return "not a QuantizeLinear to bytes with one constant scale"
        pool = made_by(node.inputs[0], AveragePool, GlobalAveragePool)
        if pool is None:
            return "not of an AveragePool or GlobalAveragePool"
        if only_user(node.inputs[0], graph) is not node:
            return "the means are used elsewhere"
        x = dequantized(pool.inputs[0])
        if x is None or not x.per_tensor or x.integers.constant is not None:
            return "not of computed bytes with one constant scale"
        scales = x.scale.item(), last.scale.item()
        return None if np.isfinite(scales).all() and scales[1] > 0 else "a scale isn't finite, or that of the result isn't positive"

    def rewrite(self, node: Node, graph: Graph) -> None:
        pool, last = node.inputs[0].producer, quantized(node)
        x = dequantized(pool.inputs[0])
        op = (QuantizedAveragePool if isinstance(pool.op, AveragePool) else QuantizedGlobalAveragePool)(
            x_scale=x.scale.item(),
            x_zero=x.zero.item(),
            y_scale=last.scale.item(),
            y_zero=last.zero.item(),
            output_dtype=last.zero.dtype,
            **{key: getattr(pool.op, key) for key in type(pool.op).fields},
        )
        substitute(graph, node, Node(op, [x.integers], node.outputs, pool.name))
        graph.remove(pool)
