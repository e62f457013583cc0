"""Divides by a constant through its reciprocal: x / c = x * (1 / c). The last bit may differ, so only level 3 does it."""

from __future__ import annotations

import numpy as np

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.passes.base import Rule, RulePass, substitute
from mnnx.schema.ops.arithmetic import Div, Mul

_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


class MultiplyByReciprocal(Rule):
    name = "Div to Mul"
    ops = (Div,)

    def match(self, node: Node, graph: Graph) -> str | None:
        if node.inputs[1].constant is None:
            return "the divisor is computed"
        divisor = node.inputs[1].constant
        if divisor.dtype not in _FLOATS:
            return "not in float32 or float64"
        with np.errstate(all="ignore"):
            return None if np.isfinite(1 / divisor).all() and (divisor != 0).all() else "a reciprocal isn't finite"

    def rewrite(self, node: Node, graph: Graph) -> None:
        divisor = node.inputs[1]
        reciprocal = Value(f"{divisor.name}/reciprocal", constant=(1 / divisor.constant).astype(divisor.constant.dtype))
        substitute(graph, node, Node(Mul(), [node.inputs[0], reciprocal], node.outputs, node.name))


class Reciprocals(RulePass):
    """Makes a product of a division by a constant."""

    name = "reciprocals"
    level = 3
    rules = (MultiplyByReciprocal(),)
