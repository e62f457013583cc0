"""Recognises attention that exporters write out: softmax(q kᵀ scale + mask) v, with the Transposes around it.

It becomes `mnnx::FusedAttention`, which reads its operands where they lie before the Transposes and stores no scores. What is added to the
scores may be several tensors, or a choice between them and a number that is as good as -inf; weights that are NaN, of queries that see no
key, may be made 0. Heads of k and v that are repeated for several heads of q are read in their place, by Attention, too, and so are
operands of Attention that lie behind Transposes (attention_transposes.py).
"""

from __future__ import annotations

import numpy as np

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.inference import infer_node
from mnnx.converter.passes.attention_transposes import PackHeads, ReadTransposed
from mnnx.converter.passes.base import RulePass, SearchRule, made_by, only_user, scalar, substitute
from mnnx.converter.passes.packed_attention import PackParts
from mnnx.converter.passes.repeated_heads import Perm, Repeated, keeps_rows, repeated_heads, unmoved
from mnnx.schema.ops.activation import Softmax
from mnnx.schema.ops.arithmetic import Add, Div, Mul
from mnnx.schema.ops.attention import Attention, FusedAttention
from mnnx.schema.ops.comparison import IsNaN, Where
from mnnx.schema.ops.matmul import MatMul
from mnnx.schema.ops.shape import Transpose
from mnnx.schema.records import Row

#: A score of this much is as good as -inf: scores beside it don't change it, and e to it is 0.
_LOWEST = -1e30
_MOST_MASKS = 4


class _Mask(Row):
    """What is added to scores: `added`, or where the boolean `chosen` isn't `kept` that number."""

    added: Value | None = None
    chosen: Value | None = None
    kept: bool = True
    number: float = 0.0


class _Scores(Row):
    """A product, what it is multiplied by, and what is added to that."""

    product: Node
    scale: float
    masks: tuple[_Mask, ...]


class _Found(Row):
    """One attention: its operands but the mask, what is added to the scores, its op, and the node whose results it gives."""

    operands: tuple[Value, Value, Value]
    masks: tuple[_Mask, ...]
    op: FusedAttention
    last: Node


class FuseAttention(SearchRule):
    """MatMul → factor → mask → Softmax → MatMul, where nobody else looks at what is in between."""

    name = "attention"
    ops = (MatMul,)

    def rewrite_found(self, node: Node, graph: Graph, found: _Found) -> None:
        operands = [*found.operands]
        if found.masks:
            operands.append(_sum(found.masks, node, graph))
        substitute(graph, found.last, Node(found.op, operands, found.last.outputs, node.name))
        if found.last is not node:
            graph.remove(node)

    def find(self, node: Node, graph: Graph) -> _Found | str:
        weights = node.inputs[0]
        plain = _without_nans(weights, graph)
        softmax = made_by(weights if plain is None else plain, Softmax)
        if softmax is None:
            return "not a Softmax times a matrix"
        scores = softmax.inputs[0]
        if softmax.op.axis != -1 and (scores.rank is None or softmax.op.axis != scores.rank - 1):
            return "the Softmax isn't over the last axis"
        if only_user(weights, graph) is None:
            return "the weights are used elsewhere"
        if only_user(scores, graph) is None:
            return "the scores are used elsewhere"
        found = _scores(scores, graph)
        if found is None:
            return "the scores are no matrix product that is used once"
        q, q_perm, q_factor = _operand(found.product.inputs[0], graph, swapped=False)
        k, k_perm, k_factor = _operand(found.product.inputs[1], graph, swapped=True)
        v, v_perm = unmoved(node.inputs[1], swapped=False)
        (k, k_perm, v, v_perm), groups = _as_they_lie(q, k, k_perm, v, v_perm)
        added = [mask.added for mask in found.masks if mask.added is not None]
        if any(value.dtype != np.float32 for value in (q, k, v, *added)):
            return "not known to be of float32"
        if any(value.rank is None or value.rank < 2 for value in (q, k, v)):
            return "not known to be of matrices"
        if found.masks and not any(_tells_keys_apart(mask.chosen or mask.added) for mask in found.masks):
            return "what is added is the same for all keys"
        op = FusedAttention(
            scale=found.scale * q_factor * k_factor,
            q_perm=q_perm,
            k_perm=k_perm,
            v_perm=v_perm,
            kv_groups=groups,
            zero_blind=plain is not None,
        )
        user = only_user(node.outputs[0], graph)
        if user is not None and isinstance(user.op, Transpose) and keeps_rows(user.op.perm):
            return _Found((q, k, v), found.masks, op.replace(y_perm=user.op.perm), user)
        return _Found((q, k, v), found.masks, op, node)


def _without_nans(weights: Value, graph: Graph) -> Value | None:
    """w where the weights are 0 in the place of NaN, and w otherwise, as PyTorch exports scaled_dot_product_attention."""
    choice = made_by(weights, Where)
    test = made_by(choice.inputs[0], IsNaN) if choice is not None else None
    if test is None or scalar(choice.inputs[1], beside=choice.inputs[2]) != 0.0:
        return None
    plain = choice.inputs[2]
    unseen = len(plain.users) == 2 and not graph.is_output(plain) and only_user(choice.inputs[0], graph) is not None
    return plain if unseen and test.inputs[0] is plain else None


def _scores(value: Value, graph: Graph, masks: tuple[_Mask, ...] = ()) -> _Scores | None:
    """What scores are made of, where each part is used once."""
    if only_user(value, graph) is None or len(masks) > _MOST_MASKS:
        return None
    unscaled, factor = _unscaled(value, graph)
    product = made_by(unscaled, MatMul)
    if product is not None and only_user(unscaled, graph) is not None:
        return _Scores(product, factor, masks)
    if (total := made_by(value, Add)) is not None:
        parts = [(part, _Mask(added)) for part, added in (total.inputs, total.inputs[::-1])]
    elif (choice := made_by(value, Where)) is not None:
        condition, *results = choice.inputs
        numbers = [scalar(result) for result in results]
        parts = [
            (results[i], _Mask(None, condition, kept=i == 0, number=numbers[1 - i]))
            for i in (0, 1)
            if numbers[1 - i] is not None and numbers[1 - i] <= _LOWEST and condition.rank is not None
        ]
    else:
        return None
    return next((found for part, mask in parts if (found := _scores(part, graph, (mask, *masks))) is not None), None)


def _tells_keys_apart(mask: Value) -> bool:
    return mask.shape is None or mask.shape[-1:] not in ((), (1,))


def _sum(masks: tuple[_Mask, ...], node: Node, graph: Graph) -> Value:
    """What is added to the scores, made before `node`. A number that is chosen takes the place of what was added before: where each of two
    is the lowest one, their sum would be -inf, and the weights of a query that sees no key NaN."""
    total: Value | None = None
    name = node.outputs[0].name
    for place, mask in enumerate(masks):
        if mask.chosen is not None:
            zero, number = (Value(f"{name}/mask_{place}/{n}", constant=np.array(n, np.float32)) for n in (0, mask.number))
            branches = [zero if total is None else total, number]
            inputs = [mask.chosen, *(branches if mask.kept else branches[::-1])]
            total = _added(Node(Where(), inputs, [Value(f"{name}/mask_{place}")]), node, graph)
        elif total is None:
            total = mask.added
        else:
            total = _added(Node(Add(), [total, mask.added], [Value(f"{name}/sum_{place}")]), node, graph)
    return total


def _added(new: Node, before: Node, graph: Graph) -> Value:
    graph.nodes.insert(graph.nodes.index(before), new)
    infer_node(new)
    return new.outputs[0]


def _as_they_lie(q: Value, k: Value, k_perm: Perm, v: Value, v_perm: Perm) -> tuple[tuple[Value, Perm, Value, Perm], int]:
    """k and v with their perms, without repetition of their heads where both are repeated for those of q; and how often they are."""
    keys, values = repeated_heads(k, k_perm, swapped=True), repeated_heads(v, v_perm, swapped=False)
    if not isinstance(keys, Repeated) or not isinstance(values, Repeated) or keys.times != values.times or q.rank != k.rank:
        return (k, k_perm, v, v_perm), 1
    return (keys.value, keys.perm, values.value, values.perm), keys.times


class UnrepeatHeads(SearchRule):
    """Attention reads each head of k and v for as many heads of q as there are more of them."""

    name = "repeated heads"
    ops = (Attention,)

    def find(self, node: Node, graph: Graph) -> tuple[Repeated, Repeated] | str:
        """The keys and values."""
        if node.inputs[0].rank != 4 or any(value is not None for value in (*node.inputs[4:], *node.outputs[1:])):
            return "q isn't known to be of rank 4, or there are past or present keys"
        keys, values = (repeated_heads(value, (), swapped=False, through_transposes=False) for value in node.inputs[1:3])
        if keys is None or values is None or keys.times != values.times:
            return "k and v aren't known to be of repeated heads"
        return keys, values

    def rewrite_found(self, node: Node, graph: Graph, found: tuple[Repeated, Repeated]) -> None:
        keys, values = found
        heads = keys.value.shape[1]
        op = node.op.replace(kv_num_heads=heads) if node.op.kv_num_heads else node.op
        substitute(graph, node, Node(op, [node.inputs[0], keys.value, values.value, *node.inputs[3:]], node.outputs, node.name))


def _operand(value: Value, graph: Graph, swapped: bool) -> tuple[Value, Perm, float]:
    """An operand of the scores without its factors and Transpose: what is left, the perm, the factor."""
    value, outer = _unscaled(value, graph)
    value, perm = unmoved(value, swapped)
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


class AttentionRecognition(RulePass):
    """Makes one op, which stores no scores, of attention in small ops: softmax(q kᵀ scale + mask) v, with the Transposes around it."""

    name = "attention-recognition"
    level = 2
    rules = (FuseAttention(), UnrepeatHeads(), PackHeads(), PackParts(), ReadTransposed())
