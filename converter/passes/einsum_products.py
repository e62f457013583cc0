"""Einsums of one or two operands as what they come to: sums, permutations and a product.

The labels of two operands are those of the batch (in both and in the result), rows (a's and the result's), columns (b's and the result's),
and the depth (in both, and summed over). With a depth it is a MatMul of a [batch, rows, depth] and b [batch, depth, columns], without one
a Mul. All labels of rows but the last stand beside the batch, where b is broadcast; the depth's and the columns' are merged to one dim.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.inference import infer_node
from mnnx.converter.passes.base import Rule, RulePass
from mnnx.schema.model import Dim
from mnnx.schema.ops.arithmetic import Mul
from mnnx.schema.ops.base import Op, RuleError
from mnnx.schema.ops.equation import Equation
from mnnx.schema.ops.matmul import Einsum, MatMul
from mnnx.schema.ops.reduction import ReduceSum
from mnnx.schema.ops.shape import Identity, Reshape, Squeeze, Transpose, Unsqueeze

_DTYPES = frozenset(np.dtype(t) for t in ("float16", "float32", "float64"))


class _Labels:
    """An Einsum's labels, of each operand and of the result, and the dims that each stands for. Raises RuleError for a wrong equation."""

    def __init__(self, node: Node):
        shapes = [value.shape for value in node.inputs]
        fitting = [tuple(d if isinstance(d, int) else 1 for d in shape) for shape in shapes]  # 1 fits whatever an open dim stands beside
        found = Equation.parse(node.op.equation, fitting)
        self.terms, self.output = found.terms, found.output
        self.dims: dict[int, set[Dim]] = {}
        for term, shape in zip(self.terms, shapes, strict=True):
            for label, dim in zip(term, shape, strict=True):
                self.dims.setdefault(label, set()).add(dim)
        both = set(self.terms[0]).intersection(*self.terms[1:]) if len(self.terms) > 1 else set()
        #: Labels of each operand alone that are summed over.
        self.summed = [[label for label in term if label not in {*both, *self.output}] for term in self.terms]
        self.depth = [label for label in self.terms[0] if label in both and label not in self.output]
        #: Labels of each operand alone that the result has, in its order.
        self.own = [[label for label in self.output if label in term and label not in both] for term in self.terms]

    @property
    def columns(self) -> list[int]:
        """b's own labels at the end of the result, if they can be one dim; else the last one of its own."""
        own = self.own[1]
        end = next((i for i, label in enumerate(reversed(self.output)) if label not in own), len(self.output))
        return own[-end:] if end and self.are_fixed(own[-end:]) else own[-1:]

    def are_fixed(self, labels: Sequence[int]) -> bool:
        """Whether their sizes are known, and none is 0."""
        return all(isinstance(dim, int) and dim for label in labels for dim in self.dims[label])

    def size(self, labels: Sequence[int]) -> int:
        """Of one dim for these labels, whose sizes are fixed and the same wherever they stand."""
        return math.prod(dim for label in labels for dim in self.dims[label])


class _Tensor:
    """A value with the labels of its dims (None: a dim of 1), from which others are made; `nodes` gets the nodes for that."""

    def __init__(self, value: Value, labels: Sequence[int | None], name: str, nodes: list[Node]):
        self.value = value
        self.labels = list(labels)
        self._name = name
        self._nodes = nodes

    def made(self, op: Op, labels: Sequence[int | None], *further: _Tensor | Sequence[int]) -> _Tensor:
        """The op's result. further: its other inputs; ints become a constant."""
        name = f"{self._name}/{op.name}{len(self._nodes)}"
        others = [one.value if isinstance(one, _Tensor) else Value(f"{name}/ints", constant=np.array(one, np.int64)) for one in further]
        node = Node(op, [self.value, *others], [Value(name, self.value.dtype)], name)
        infer_node(node)
        self._nodes.append(node)
        return _Tensor(node.outputs[0], labels, self._name, self._nodes)

    def summed(self, away: Sequence[int]) -> _Tensor:
        axes = [place for place, label in enumerate(self.labels) if label in away]
        return self.made(ReduceSum(keepdims=False), [label for label in self.labels if label not in away], axes) if axes else self

    def ordered(self, wanted: Sequence[int | None]) -> _Tensor:
        """With its dims, and those of 1, in that order."""
        kept = [label for label in wanted if label is not None]
        perm = tuple(self.labels.index(label) for label in kept)
        turned = self if perm == tuple(range(len(perm))) else self.made(Transpose(perm=perm), kept)
        ones = [place for place, label in enumerate(wanted) if label is None]
        return turned.made(Unsqueeze(), wanted, ones) if ones else turned

    def beside(self, labels: Sequence[int]) -> list[int | None]:
        """The labels with None in the place of those that it hasn't, of which it needs none at the start."""
        found = [label if label in self.labels else None for label in labels]
        return found[next((i for i, label in enumerate(found) if label is not None), len(found)) :]

    def squeezed(self) -> _Tensor:
        """Without the dims of 1."""
        ones = [place for place, label in enumerate(self.labels) if label is None]
        return self.made(Squeeze(), [label for label in self.labels if label is not None], ones) if ones else self

    def divided(self, kept: int, sizes: Sequence[int], labels: Sequence[int | None]) -> _Tensor:
        """The dims after the first ones made to such sizes."""
        return self.made(Reshape(), labels, [*[0] * kept, *sizes])


class EinsumToProduct(Rule):
    """See above."""

    name = "Einsum to a product"
    ops = (Einsum,)

    def match(self, node: Node, graph: Graph) -> str | None:
        if len(node.inputs) > 2:
            return "more than two operands"
        if any(value.rank is None for value in node.inputs):
            return "the rank of an operand isn't known"
        if any(value.dtype not in _DTYPES for value in node.inputs):
            return "not in float16, float32 or float64"
        try:
            labels = _Labels(node)
        except RuleError as error:
            return str(error)
        if any(len(set(term)) < len(term) for term in labels.terms):
            return "a diagonal"
        if len(node.inputs) == 1 or not labels.depth:
            return None
        if any(len(labels.dims[label]) > 1 or None in labels.dims[label] for label in labels.depth):
            return "it isn't known whether the dims that are summed over are alike"
        if len(labels.depth) > 1 and not labels.are_fixed([*labels.depth, *labels.columns]):
            return "open or empty dims would have to be merged"
        return None

    def rewrite(self, node: Node, graph: Graph) -> None:
        labels, nodes = _Labels(node), []
        given = [_Tensor(value, labels.terms[i], node.name, nodes).summed(labels.summed[i]) for i, value in enumerate(node.inputs)]
        if len(given) == 1:
            result = given[0].ordered(labels.output)
        elif labels.depth:
            result = _product(labels, *given)
        else:
            a, b = (one.ordered(one.beside(labels.output)) for one in given)
            result = a.made(Mul(), labels.output, b)
        result = result if nodes else result.made(Identity(), labels.output)
        nodes.append(Node(nodes[-1].op, nodes[-1].inputs, node.outputs, node.name))
        nodes.pop(-2).detach()
        place = graph.nodes.index(node)
        graph.nodes[place : place + 1] = nodes
        node.detach()


def _product(labels: _Labels, a: _Tensor, b: _Tensor) -> _Tensor:
    output, depth, columns = labels.output, labels.depth, labels.columns
    row = next((label for label in reversed(output) if label in labels.own[0]), None)
    lead = [label for label in output if label not in (*columns, row)]
    left_lead, right_lead = [*a.beside(lead), row], b.beside(lead)
    left, right = a.ordered([*left_lead, *depth]), b.ordered([*right_lead, *depth, *(columns or [None])])
    if len(depth) > 1:
        left = left.divided(len(left_lead), [labels.size(depth)], [])
        right = right.divided(len(right_lead), [labels.size(depth), labels.size(columns)], [])
    elif len(columns) > 1:
        right = right.divided(len(right_lead) + 1, [labels.size(columns)], [])
    result = left.made(MatMul(), [*lead, row, *(columns or [None])], right)
    if len(columns) > 1:
        result = result.divided(len(lead) + 1, [labels.size([label]) for label in columns], [*lead, row, *columns])
    return result.squeezed().ordered(output)


class EinsumProducts(RulePass):
    """Makes products, sums and permutations of Einsums."""

    name = "einsum-products"
    level = 2
    rules = (EinsumToProduct(),)
