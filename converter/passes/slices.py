"""Slices that are the parts of a tensor along an axis: one Split."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.passes.base import SearchRule
from mnnx.schema.ops.shape import Split
from mnnx.schema.ops.slicing import Slice


class Part(NamedTuple):
    """What a Slice takes along its axis, and the size of the dim."""

    start: int
    end: int
    axis: int
    dim: int


class SplitOfSlices(SearchRule):
    """Starts from the first of the Slices."""

    name = "Slices of all parts"
    ops = (Slice,)

    def rewrite_found(self, node: Node, graph: Graph, found: list[Node]) -> None:
        slices = found
        parts = [part_of(one) for one in slices]
        sizes = np.array([part.end - part.start for part in parts], np.int64)
        op = Split(axis=parts[0].axis, num_outputs=len(parts))
        place = min(graph.nodes.index(one) for one in slices)
        inputs = [node.inputs[0], Value(f"{node.outputs[0].name}/sizes", constant=sizes)]
        graph.nodes.insert(place, Node(op, inputs, [one.outputs[0] for one in slices], node.name))
        for one in slices:
            one.detach()
            graph.nodes.remove(one)

    def find(self, node: Node, graph: Graph) -> list[Node] | str:
        """The Slices, in the order of what they take."""
        own = part_of(node)
        if own is None:
            return "not of one part along one axis of known size, with constants"
        pairs = [(user, part_of(user)) for user in dict.fromkeys(node.inputs[0].users) if isinstance(user.op, Slice)]
        parts = sorted((part.start, part.end, i) for i, (_, part) in enumerate(pairs) if part is not None and part.axis == own.axis)
        borders = [0, *(end for _, end, _ in parts)]
        if len(parts) < 2 or [start for start, _, _ in parts] != borders[:-1] or borders[-1] != own.dim:
            return "the Slices of its tensor along its axis are not the parts of all of it"
        return [pairs[i][0] for _, _, i in parts]


def part_of(node: Node) -> Part | None:
    """The part that a Slice takes, where it is one along one axis of known size, in steps of 1."""
    x, *rest = node.inputs
    if x.rank is None or any(value is not None and (value.constant is None or value.constant.size != 1) for value in rest):
        return None
    starts, ends, axes, steps = (None if value is None else int(value.constant.item()) for value in (*rest, None, None)[:4])
    axis = (axes or 0) % x.rank
    dim = x.shape[axis]
    if not isinstance(dim, int) or steps not in (None, 1):
        return None
    start, end = (min(max(place + dim if place < 0 else place, 0), dim) for place in (starts, ends))
    return Part(start, end, axis, dim) if start < end else None
