"""Recognises attention that exporters write out: softmax(q kᵀ scale + mask) v, with the Transposes around it.

It becomes `mnnx::FusedAttention`, which reads its operands where they lie before the Transposes and stores no scores.
"""

from __future__ import annotations

import numpy as np

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.passes.base import Rule, RulePass, made_by, only_user, scalar, substitute
from mnnx.schema.ops.activation import Softmax
from mnnx.schema.ops.arithmetic import Add, Div, Mul
from mnnx.schema.ops.attention import FusedAttention
from mnnx.schema.ops.matmul import MatMul
from mnnx.schema.ops.shape import Transpose
from mnnx.schema.records import Row

Perm = tuple[int, ...]


class _Found(Row):
    """One attention: its operands, its op, and the node whose results it gives."""

    operands: tuple[Value | None, ...]
    op: FusedAttention
    last: Node


class FuseAttention(Rule):
    """MatMul → factor → mask → Softmax → MatMul, where nobody else looks at what is in between."""

    name = "attention"
    ops = (MatMul,)

    def match(self, node: Node, graph: Graph) -> str | None:
        found = self._find(node, graph)
        return found if isinstance(found, str) else None

    def rewrite(self, node: Node, graph: Graph) -> None:
        found = self._find(node, graph)
        substitute(graph, found.last, Node(found.op, found.operands, found.last.outputs, node.name))
        if found.last is not node:
            graph.remove(node)

    def _find(self, node: Node, graph: Graph) -> _Found | str:
        softmax = made_by(node.inputs[0], Softmax)
        if softmax is None:
            return "not a Softmax times a matrix"
        scores = softmax.inputs[0]
        if softmax.op.axis != -1 and (scores.rank is None or softmax.op.axis != scores.rank - 1):
            return "the Softmax isn't over the last axis"
        if only_user(node.inputs[0], graph) is None:
            return "the weights are used elsewhere"
        found = self._scores(scores, graph)
        if isinstance(found, str):
            return found
        product, scale, mask = found
        q, q_perm, q_factor = _operand(product.inputs[0], graph, swapped=False)
        k, k_perm, k_factor = _operand(product.inputs[1], graph, swapped=True)
        v, v_perm = _unmoved(node.inputs[1], swapped=False)
        operands = (q, k, v, mask)
        if any(value is not None and value.dtype != np.float32 for value in operands):
            return "not known to be of float32"
        if any(value.rank is None or value.rank < 2 for value in (q, k, v)):
            return "not known to be of matrices"
        if mask is not None and mask.shape is not None and mask.shape[-1:] in ((), (1,)):
            return "what is added is the same for all keys"
        op = FusedAttention(scale=scale * q_factor * k_factor, q_perm=q_perm, k_perm=k_perm, v_perm=v_perm)
        user = only_user(node.outputs[0], graph)
        if user is not None and isinstance(user.op, Transpose) and _keeps_rows(user.op.perm):
            return _Found(operands, op.replace(y_perm=user.op.perm), user)
        return _Found(operands, op, node)

    def _scores(self, scores: Value, graph: Graph) -> tuple[Node, float, Value | None] | str:
        """The product that makes the scores, what it is multiplied by, and what is added to that."""
        if only_user(scores, graph) is None:
            return "the scores are used elsewhere"
        total = made_by(scores, Add)
        for part, mask in (total.inputs, total.inputs[::-1]) if total is not None else ((scores, None),):
            unscaled, factor = _unscaled(part, graph)
            product = made_by(unscaled, MatMul)
            if product is not None and only_user(unscaled, graph) is not None:
                return product, factor, mask
        return "the scores are no matrix product that is used once"


def _operand(value: Value, graph: Graph, swapped: bool) -> tuple[Value, Perm, float]:
    """An operand of the scores without its factors and Transpose: what is left, the perm, the factor."""
    value, outer = _unscaled(value, graph)
    value, perm = _unmoved(value, swapped)
    value, inner = _unscaled(value, graph)
    return value, perm, outer * inner


def _unscaled(value: Value, graph: Graph) -> tuple[Value, float]:
    """What a value is a multiple of, and the factor, where it is the product of something and a number and is used once."""
    node = made_by(value, Mul, Div)
    if node is None or only_user(value, graph) is None:
        return value, 1.0
    for factor, number in [node.inputs] if isinstance(node.op, Div) else (node.inputs, node.inputs[::-1]):
        by = scalar(number)
        if by and number.constant.ndim <= max(1, factor.rank or 0):
            return factor, by if isinstance(node.op, Mul) else 1 / by
    return value, 1.0


def _unmoved(value: Value, swapped: bool) -> tuple[Value, Perm]:
    """What a Transpose made a value of, and its perm, where rows stay dense: their dim is the last one, or where `swapped`, the last but
    one, too."""
    node = made_by(value, Transpose)
    if node is None or not node.op.perm or not (_keeps_rows(node.op.perm) or (swapped and node.op.perm[-2] == len(node.op.perm) - 1)):
        return value, ()
    return node.inputs[0], node.op.perm


def _keeps_rows(perm: Perm | None) -> bool:
    return bool(perm) and perm[-1] == len(perm) - 1


class AttentionRecognition(RulePass):
    """Makes one op, which stores no scores, of attention in small ops: softmax(q kᵀ scale + mask) v, with the Transposes around it."""

    name = "attention-recognition"
    level = 2
    rules = (FuseAttention(),)
