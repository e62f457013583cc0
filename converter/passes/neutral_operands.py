"""Operands that change nothing: x * 1, x / 1, x + 0, x - 0, x ** 1; and what undoes itself: -(-x), not not x, two Casts for one.

Such a node becomes an Identity, which identity elimination takes out.
"""

from __future__ import annotations

import numpy as np

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.passes.base import Rule, RulePass, SearchRule, made_by, substitute_by
from mnnx.converter.passes.dims import broadcasts_to
from mnnx.schema.ops.arithmetic import Add, Div, Mul, Neg, Pow, Sub
from mnnx.schema.ops.cast import Cast
from mnnx.schema.ops.comparison import Not


class NeutralOperand(SearchRule):
    """A constant operand of zeros or ones that doesn't broadcast the other one."""

    name = "neutral operand"
    ops = (Add, Sub, Mul, Div, Pow)

    def find(self, node: Node, graph: Graph) -> Value | str:
        """The other operand."""
        number = 0 if isinstance(node.op, (Add, Sub)) else 1
        for x, operand in (node.inputs, node.inputs[::-1]) if isinstance(node.op, (Add, Mul)) else [node.inputs]:
            if operand.constant is None or operand.constant.dtype.kind not in "fiu" or operand.constant.dtype != x.dtype:
                continue
            if operand.constant.size and (operand.constant == number).all() and broadcasts_to(operand.constant.shape, x):
                return x
        return "no operand is known to change nothing"

    def rewrite_found(self, node: Node, graph: Graph, found: Value) -> None:
        substitute_by(graph, node, found)


class Undone(Rule):
    """What gives back its argument when it is done twice."""

    name = "done twice"
    ops = (Neg, Not)

    def match(self, node: Node, graph: Graph) -> str | None:
        return None if made_by(node.inputs[0], type(node.op)) is not None else f"not of another {node.op.name}"

    def rewrite(self, node: Node, graph: Graph) -> None:
        substitute_by(graph, node, node.inputs[0].producer.inputs[0])


class CastOfCast(Rule):
    """Cast to a dtype that holds every value, then to another: the second is enough."""

    name = "Cast of Cast"
    ops = (Cast,)

    def match(self, node: Node, graph: Graph) -> str | None:
        first = made_by(node.inputs[0], Cast)
        if first is None:
            return "not of another Cast"
        start, between, end = first.inputs[0].dtype, first.op.to, node.op.to
        if start is None or any(dtype.isbuiltin != 1 or dtype.kind not in "biuf" for dtype in (start, between, end)):
            return "not between common numbers"
        if not np.can_cast(start, between, "safe") or (start.kind in "iu" and between.kind == "f" and start.itemsize == 8):
            return f"{between} doesn't hold every {start}"
        return "a float becomes an integer" if between.kind == "f" and end.kind in "iu" and start != end else None

    def rewrite(self, node: Node, graph: Graph) -> None:
        node.set_input(0, node.inputs[0].producer.inputs[0])


class NeutralOperands(RulePass):
    """Removes operands that change nothing (x * 1, x + 0, …), what undoes itself, and a Cast before another that loses nothing."""

    name = "neutral-operands"
    level = 1
    rules = (NeutralOperand(), Undone(), CastOfCast())
