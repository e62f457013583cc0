"""Rules for what exporters do with the dims of a Transpose: merge them before it and split them behind it, add one and drop it, or take one
place along one, as for queries, keys and values that a single product made."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.inference import infer_node
from mnnx.converter.passes.base import Rule, SearchRule, made_by, only_user, substitute
from mnnx.schema.model import Dim
from mnnx.schema.ops.arithmetic import Mul
from mnnx.schema.ops.indexing import Gather
from mnnx.schema.ops.matmul import MatMul
from mnnx.schema.ops.shape import Reshape, Split, Squeeze, Transpose, Unsqueeze


class SplitBeforeTranspose(SearchRule):
    """Reshape, Transpose and a Reshape that splits one dim: what is split before is transposed in one go."""

    name = "split before a Transpose"
    ops = (Reshape,)

    def find(self, node: Node, graph: Graph) -> tuple[Value, tuple[Dim, ...], tuple[int, ...]] | str:
        """The first operand, the dims that it is reshaped to, and their permutation."""
        reason = "not known to split a dim of a transposed Reshape, used once"
        moved = made_by(node.inputs[0], Transpose)
        first = made_by(moved.inputs[0], Reshape) if moved is not None and moved.op.perm else None
        if first is None or only_user(node.inputs[0], graph) is None:
            return reason
        x, whole, parted, perm = first.inputs[0], moved.outputs[0].shape, node.outputs[0].shape, moved.op.perm
        if any(shape is None or None in shape for shape in (x.shape, whole, parted)) or not len(perm) == len(whole) < len(parted):
            return reason
        place = next((i for i, (a, b) in enumerate(zip(whole, parted, strict=False)) if a != b), len(whole) - 1)
        behind = len(whole) - 1 - place
        if behind and whole[-behind:] != parted[-behind:]:
            return reason
        parts = parted[place : len(parted) - behind]
        split = perm[place]
        places = {axis: [axis + (len(parts) - 1) * (axis > split)] for axis in perm} | {split: list(range(split, split + len(parts)))}
        dims: list[Dim] = []
        for axis in range(len(perm)):
            dims += parts if axis == split else [whole[perm.index(axis)]]
        if tuple(dims) != x.shape and constant_shape(x, dims) is None:
            return reason
        return x, tuple(dims), tuple(new for axis in perm for new in places[axis])

    def rewrite_found(self, node: Node, graph: Graph, found: tuple[Value, tuple[Dim, ...], tuple[int, ...]]) -> None:
        x, dims, perm = found
        if dims != x.shape:
            x = reshaped(x, dims, node, graph)
        substitute(graph, node, Node(Transpose(perm=perm), [x], node.outputs, node.inputs[0].producer.name))


class TransposeOfOneMore(SearchRule):
    """Unsqueeze, Transpose and Squeeze of a dim that is only there in between."""

    name = "Transpose of one dim more"
    ops = (Squeeze,)

    def find(self, node: Node, graph: Graph) -> tuple[Value, tuple[int, ...]] | str:
        """The operand and its permutation."""
        reason = "not of a transposed Unsqueeze, of its dim"
        moved = made_by(node.inputs[0], Transpose)
        added = made_by(moved.inputs[0], Unsqueeze) if moved is not None and moved.op.perm else None
        if added is None or len(node.inputs) < 2:
            return reason
        rank = len(moved.op.perm)
        one, dropped = _axis(added.inputs[1], rank), _axis(node.inputs[1], rank)
        if one is None or dropped is None or moved.op.perm[dropped] != one:
            return reason
        return added.inputs[0], tuple(axis - (axis > one) for axis in moved.op.perm if axis != one)

    def rewrite_found(self, node: Node, graph: Graph, found: tuple[Value, tuple[int, ...]]) -> None:
        x, perm = found
        substitute(graph, node, Node(Transpose(perm=perm), [x], node.outputs, node.inputs[0].producer.name))


class PlaceOfSplit(Rule):
    """A dim that is split into its places, each of which is squeezed: what is taken at one place."""

    name = "place of a Split"
    ops = (Squeeze,)

    def match(self, node: Node, graph: Graph) -> str | None:
        split = made_by(node.inputs[0], Split)
        if split is None or split.inputs[0].rank is None or split.inputs[0].shape[split.op.axis] != len(split.outputs):
            return "not of a Split into places of known number"
        sizes = split.inputs[1] if len(split.inputs) > 1 else None
        if sizes is not None and (sizes.constant is None or (sizes.constant != 1).any()):
            return "its parts aren't known to be of size 1"
        alone = all(part is not None and _is_taken(part, graph) for part in split.outputs)
        axis = _axis(node.inputs[1], split.inputs[0].rank) if len(node.inputs) > 1 else None
        return None if alone and axis == split.op.axis % split.inputs[0].rank else "not all parts are squeezed"

    def rewrite(self, node: Node, graph: Graph) -> None:
        split = node.inputs[0].producer
        place = Value(f"{node.outputs[0].name}/place", constant=np.array(split.outputs.index(node.inputs[0])))
        substitute(graph, node, Node(Gather(axis=split.op.axis), [split.inputs[0], place], node.outputs, node.name))
        if not any(part.users for part in split.outputs):
            graph.remove(split)


class TakeBeforeTranspose(Rule):
    """One place along a dim of a Transpose of which nothing else is needed: taken before, what is left is transposed."""

    name = "place before a Transpose"
    ops = (Gather,)

    def match(self, node: Node, graph: Graph) -> str | None:
        moved = made_by(node.inputs[0], Transpose)
        if moved is None or not moved.op.perm or graph.is_output(node.inputs[0]):
            return "not of a Transpose"
        if not all(_takes_one_place(user) and user.inputs[0] is node.inputs[0] for user in node.inputs[0].users):
            return "all of the Transpose is needed, or what is taken is computed"
        left = self._left(node)
        user = only_user(node.outputs[0], graph)
        operand = left[-1:] == (len(left) - 1,) and user is not None and isinstance(user.op, (MatMul, Mul, Transpose))
        return None if operand or left == tuple(range(len(left))) else "what is left of it is neither in order nor for a matrix product"

    def rewrite(self, node: Node, graph: Graph) -> None:
        moved, left = node.inputs[0].producer, self._left(node)
        x, axis = moved.inputs[0], moved.op.perm[node.op.axis % len(moved.op.perm)]
        if left == tuple(range(len(left))):
            substitute(graph, node, Node(Gather(axis=axis), [x, node.inputs[1]], node.outputs, node.name))
            return
        taken = Value(f"{node.outputs[0].name}/taken", x.dtype)
        new = Node(Gather(axis=axis), [x, node.inputs[1]], [taken], node.name)
        graph.nodes.insert(graph.nodes.index(node), new)
        infer_node(new)
        substitute(graph, node, Node(Transpose(perm=left), [taken], node.outputs, moved.name))

    def _left(self, node: Node) -> tuple[int, ...]:
        """The permutation of the dims that are left."""
        perm = node.inputs[0].producer.op.perm
        axis = perm[node.op.axis % len(perm)]
        return tuple(other - (other > axis) for other in perm if other != axis)


def reshaped(x: Value, dims: Sequence[Dim], node: Node, graph: Graph) -> Value:
    """x reshaped to dims that have a `constant_shape`, by a node before `node`."""
    name = f"{node.outputs[0].name}/reshaped"
    shape = Value(f"{name}/shape", constant=np.array(constant_shape(x, dims), np.int64))
    new = Node(Reshape(), [x, shape], [Value(name, x.dtype, tuple(dims))])
    graph.nodes.insert(graph.nodes.index(node), new)
    return new.outputs[0]


def constant_shape(x: Value, dims: Sequence[Dim]) -> list[int] | None:
    """How a Reshape of x asks for dims of as many elements: sizes, and 0 for a dim of x at its place; None where that isn't enough."""
    own = x.shape or ()
    shape = [0 if place < len(own) and own[place] == dim else dim for place, dim in enumerate(dims)]
    return None if 0 in dims or not all(isinstance(dim, int) for dim in shape) else shape


def _axis(value: Value | None, rank: int) -> int | None:
    """The one axis that a constant gives."""
    if value is None or value.constant is None or value.constant.size != 1:
        return None
    return int(value.constant.reshape(-1)[0]) % rank


def _is_taken(part: Value, graph: Graph) -> bool:
    """Whether a part of a Split is squeezed and not used otherwise, or has become a Gather."""
    user = only_user(part, graph)
    return not (part.users or graph.is_output(part)) if user is None else isinstance(user.op, Squeeze)


def _takes_one_place(node: Node) -> bool:
    return isinstance(node.op, Gather) and node.inputs[1] is not None and node.inputs[1].constant is not None and node.inputs[1].rank == 0
