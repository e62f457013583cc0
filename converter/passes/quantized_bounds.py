"""Relu and Clip before a QuantizeLinear whose bytes have the same bounds: Q(clip(x, low, high)) = clip(Q(x), Q(low), Q(high)) = Q(x)."""

from __future__ import annotations

import numpy as np

from mnnx.converter.graph import Graph, Node
from mnnx.converter.passes.affine_values import bounds_of
from mnnx.converter.passes.base import Rule, made_by, only_user
from mnnx.converter.passes.quantized_values import Quantized, quantized
from mnnx.schema.ops.activation import Relu
from mnnx.schema.ops.arithmetic import Clip
from mnnx.schema.ops.quantization import QuantizeLinear


class BoundsOfBytes(Rule):
    """Starts from the QuantizeLinear."""

    name = "bounds of bytes"
    ops = (QuantizeLinear,)

    def match(self, node: Node, graph: Graph) -> str | None:
        last = quantized(node)
        if last is None:
            return "not a QuantizeLinear to bytes with one constant scale"
        function = made_by(node.inputs[0], Relu, Clip)
        bounds = None if function is None else bounds_of(function)
        if bounds is None:
            return "not of a Relu or Clip with constants"
        if only_user(node.inputs[0], graph) is not node:
            return "what is bounded is used elsewhere"
        kind = np.iinfo(last.zero.dtype)
        return None if (_byte(bounds[0], last), _byte(bounds[1], last)) == (kind.min, kind.max) else "its bounds are tighter than a byte's"

    def rewrite(self, node: Node, graph: Graph) -> None:
        function = node.inputs[0].producer
        node.set_input(0, function.inputs[0])
        graph.remove(function)


def _byte(number: float, last: Quantized) -> float:
    """What a number is quantized to."""
    kind = np.iinfo(last.zero.dtype)
    scale = last.scale.item()
    if not np.isfinite(scale) or scale <= 0:
        return np.nan
    with np.errstate(over="ignore"):
        return float(np.clip(np.rint(np.float32(number) / np.float32(scale)) + last.zero.item(), kind.min, kind.max))
