"""Folds a Pad with zeros into the convolution behind it."""

from __future__ import annotations

from mnnx.converter.graph import Graph, Node
from mnnx.converter.passes.base import RulePass, SearchRule, is_close, made_by, only_user, substitute
from mnnx.schema.ops.convolution import Conv
from mnnx.schema.ops.slicing import Pad


class FoldPad(SearchRule):
    name = "zero padding into Conv"
    ops = (Conv,)

    def find(self, node: Node, graph: Graph) -> tuple[int, ...] | str:
        pads = self._pads(node, graph)
        return "not a Conv after a constant zero Pad of its spatial dims" if pads is None else pads

    def rewrite_found(self, node: Node, graph: Graph, found: tuple[int, ...]) -> None:
        padding = node.inputs[0].producer
        op = node.op.replace(pads=found, auto_pad="NOTSET")
        substitute(graph, node, Node(op, [padding.inputs[0], *node.inputs[1:]], node.outputs, node.name))
        graph.remove(padding)

    def _pads(self, node: Node, graph: Graph) -> tuple[int, ...] | None:
        """The Conv's pads with those of the Pad added, or None."""
        if node.op.auto_pad not in ("NOTSET", "VALID"):
            return None
        padding = made_by(node.inputs[0], Pad)
        rank = node.inputs[0].rank
        if padding is None or rank is None or padding.op.mode != "constant" or only_user(padding.outputs[0], graph) is not node:
            return None
        pads, value, axes = [*padding.inputs[1:], None, None][:3]
        if pads.constant is None or (value is not None and not is_close(value, 0, 0.0)) or (axes is not None and axes.constant is None):
            return None
        amounts = pads.constant.reshape(-1).tolist()
        chosen = [int(a) % rank for a in axes.constant.reshape(-1)] if axes is not None else list(range(rank))
        if len(amounts) != 2 * len(chosen) or min(amounts, default=0) < 0:
            return None
        before, after = [0] * rank, [0] * rank
        for position, axis in enumerate(chosen):
            before[axis], after[axis] = amounts[position], amounts[position + len(chosen)]
        if before[0] or before[1] or after[0] or after[1]:
            return None
        own = node.op.pads or (0,) * (2 * (rank - 2))
        return tuple(o + p for o, p in zip(own, [*before[2:], *after[2:]], strict=True))


class PadFolding(RulePass):
    """Puts a Pad with zeros into the Conv behind it."""

    name = "pad-folding"
    level = 2
    rules = (FoldPad(),)
