"""Puts the residual sum before a LayerNormalization or RMSNormalization into it, where no product has taken the sum in.

It runs behind epilogue-fusion: a product that ends in the sum stores it once, and the normalization reads it. Behind anything else the
sum would be stored, and read again; here a row of it is normalized while it is in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.passes.base import RulePass, SearchRule, made_by, only_user, substitute
from mnnx.schema.ops.arithmetic import Add
from mnnx.schema.ops.elementwise import FLOATS
from mnnx.schema.ops.normalization import LayerNormalization, RMSNormalization
from mnnx.schema.ops.skip_normalization import SkipLayerNormalization, SkipSimplifiedLayerNormalization, repeats


class _Sum(NamedTuple):
    """x + skip + shift; `inner` is the Add of two of them, where there are three."""

    add: Node
    x: Value
    skip: Value
    shift: Value | None = None
    inner: Node | None = None

    @property
    def fits(self) -> bool:
        """Whether skip is known to have x's rows, or some that repeat, and x the dims of the sum."""
        x, skip = self.x.shape, self.skip.shape
        known = x is not None and skip is not None and None not in x and None not in skip
        return known and x == self.add.outputs[0].shape and self.skip.constant is None and repeats(skip, x)


class FuseSkip(SearchRule):
    """Add → LayerNormalization or RMSNormalization: one op, which also gives the sum where others use it."""

    name = "sum into normalization"
    ops = (LayerNormalization, RMSNormalization)

    def find(self, node: Node, graph: Graph) -> _Sum | str:
        total = node.inputs[0]
        add, rank = made_by(total, Add), total.rank
        if add is None or rank is None:
            return "not of a sum of known rank"
        if node.op.axis not in (-1, rank - 1) or node.op.stash_type != "float32":
            return "not over the last dim, or not in float32"
        if any(value is not None and not _is_vector(value, total) for value in node.inputs[1:]):
            return "its scale or bias is no constant vector"
        if total.dtype not in FLOATS or node.inputs[1].dtype != total.dtype:
            return "not known to be of floats of one dtype"
        return next((found for found in _sums(add, graph) if found.fits), "not a sum of tensors that are known to have the same rows")

    def rewrite_found(self, node: Node, graph: Graph, found: _Sum) -> None:
        kind = SkipLayerNormalization if isinstance(node.op, LayerNormalization) else SkipSimplifiedLayerNormalization
        centred = kind is SkipLayerNormalization
        y, *statistics = node.outputs
        statistics = [*statistics, None, None][:2] if centred else [None, *statistics, None][:2]
        total = found.add.outputs[0]
        used = len(total.users) > 1 or graph.is_output(total)
        vectors = ([*node.inputs[1:], None][:2] if centred else [node.inputs[1]]) + [found.shift]
        outputs = [y, *statistics, total if used else None]
        graph.remove(node)
        new = Node(kind(epsilon=node.op.epsilon), [found.x, found.skip, *vectors], outputs, node.name)
        substitute(graph, found.add, new)
        if found.inner is not None:
            graph.remove(found.inner)


def _is_vector(value: Value, x: Value) -> bool:
    """Whether a value is a constant of one element per element of a row of x."""
    return value.constant is not None and value.shape == (x.shape[-1],)


def _sums(add: Node, graph: Graph) -> Iterator[_Sum]:
    """What a sum may be of: three terms where one of them is a vector, two."""
    total = add.outputs[0]
    for inner_sum, last in (add.inputs, add.inputs[::-1]):
        inner = made_by(inner_sum, Add)
        if inner is None or only_user(inner_sum, graph) is not add:
            continue
        for first, second in (inner.inputs, inner.inputs[::-1]):
            for x, skip, shift in ((first, second, last), (first, last, second)):
                if _is_vector(shift, total):
                    yield _Sum(add, x, skip, shift, inner)
    for x, skip in (add.inputs, add.inputs[::-1]):
        yield _Sum(add, x, skip)


class SkipNormFusion(RulePass):
    """Puts the residual sum before a LayerNormalization or RMSNormalization into it, where no product has taken it in."""

    name = "skip-norm-fusion"
    level = 2
    rules = (FuseSkip(),)
