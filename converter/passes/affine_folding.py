"""Folds what scales and shifts by constants into the weights of the product before or behind it: BatchNormalization, Mul, Div, Add and Sub.

(w x + b) * s + t  =  (w s) x + (b s + t)        w (x s + t) + b  =  (w s) x + (b + w t)

Between the two may be ops that such a function can be carried past: a positive factor past Relu and MaxPool, any past AveragePool, …
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.passes.affine_products import PRODUCTS, Product, obstacle
from mnnx.converter.passes.affine_values import AFFINE, CARRIERS, Affine, Carried, affine_of, argument_of, carried
from mnnx.converter.passes.base import RulePass, SearchRule, made_by, only_user, substitute
from mnnx.converter.passes.dims import rank_of
from mnnx.schema.ops.arithmetic import Add
from mnnx.schema.ops.convolution import Conv, ConvTranspose
from mnnx.schema.ops.matmul import Gemm, MatMul
from mnnx.schema.records import Row


class _Path(Row):
    """From an affine node to a product: the ops between, each with what takes its place, and the function that reaches the product."""

    product: Product
    between: list[tuple[Node, Carried]]
    affine: Affine


class FoldIntoPrevious(SearchRule):
    """product → ops between → affine op: the product has other weights, and the ops between stay."""

    name = "scale and shift into the product before"
    ops = AFFINE

    def rewrite_found(self, node: Node, graph: Graph, found: _Path) -> None:
        product, result = found.product, node.outputs[0]
        value = _renamed(product.node.outputs[0], result) if found.between else result
        made = product.after(found.affine, value)
        for old, moved in reversed(found.between):
            value = result if old is found.between[0][0] else _renamed(old.outputs[0], result)
            made.append(Node(moved.op, [made[-1].outputs[0], *moved.operands], [value], old.name))
        place = graph.nodes.index(node)
        graph.nodes[place : place + 1] = made
        node.detach()
        for old in (product.node, *(old for old, _ in found.between)):
            graph.remove(old)

    def find(self, node: Node, graph: Graph) -> _Path | str:
        value = argument_of(node)
        if value is None:
            return "not of one computed value and constants"
        chain: list[Node] = []
        while (made := value.producer) is not None and type(made.op) not in PRODUCTS:
            before = argument_of(made) if isinstance(made.op, CARRIERS) else None
            if before is None or only_user(value, graph) is None:
                break
            chain.append(made)
            value = before
        if made is None or type(made.op) not in PRODUCTS:
            return "not after a product"
        if only_user(value, graph) is None:
            return "the product's result is used elsewhere"
        if (why := obstacle(made, made.inputs[0])) is not None:
            return why
        rank = rank_of(argument_of(node))
        affine = None if rank is None else affine_of(node, rank)
        if affine is None:
            return "not a finite factor and shift by constants that keep the shape"
        between: list[tuple[Node, Carried]] = []
        for one in chain:
            rank = rank_of(argument_of(one))
            moved = "the rank isn't known" if rank is None else carried(one, affine, rank, forward=False)
            if isinstance(moved, str):
                return moved
            between.append((one, moved))
            affine = moved.affine
        product = Product(made, rank)
        return product.refuses_after(affine) or _Path(product, between, affine)


def _renamed(value: Value, result: Value) -> Value:
    """A value in the place of another, which is no longer the same."""
    return Value(f"{value.name}/{result.name}", value.dtype, value.shape)


class FoldIntoNext(SearchRule):
    """affine op → ops between → product, as often as its result is used: the products have other weights, and the ops between stay."""

    name = "scale and shift into the product behind"
    ops = AFFINE

    def rewrite_found(self, node: Node, graph: Graph, found: list[_Path]) -> None:
        x = argument_of(node)
        for branch in found:
            value = x
            for old, moved in branch.between:
                result = _renamed(old.outputs[0], node.outputs[0])
                graph.nodes[graph.nodes.index(old)] = Node(moved.op, [value, *moved.operands], [result], old.name)
                value = result
            made = branch.product.before(branch.affine, value)
            place = graph.nodes.index(branch.product.node)
            graph.nodes[place : place + 1] = made
            branch.product.node.detach()
            for old, _ in branch.between:
                old.detach()
        graph.remove(node)

    def find(self, node: Node, graph: Graph) -> list[_Path] | str:
        x, result = argument_of(node), node.outputs[0]
        if x is None:
            return "not of one computed value and constants"
        if graph.is_output(result) or not result.users:
            return "its result is an output"
        if isinstance(node.op, Add) and made_by(x, MatMul) is not None and only_user(x, graph) is node:
            return "it is the bias of the product before"
        branches = []
        for user in dict.fromkeys(result.users):
            branch = self._branch(node, user, graph)
            if isinstance(branch, str):
                return branch
            branches.append(branch)
        return branches

    def _branch(self, node: Node, user: Node, graph: Graph) -> _Path | str:
        value, chain = node.outputs[0], []
        while isinstance(user.op, CARRIERS) and argument_of(user) is value:
            chain.append(user)
            value = user.outputs[0]
            user = only_user(value, graph)
            if user is None:
                return "what is between it and a product is used elsewhere"
        if (why := obstacle(user, value)) is not None:
            return why
        rank = _rank_before(node, user, chain)
        affine = None if rank is None else affine_of(node, rank)
        if affine is None:
            return "not a finite factor and shift by constants that keep the shape"
        between: list[tuple[Node, Carried]] = []
        for one in chain:
            rank = rank_of(one.outputs[0]) or _product_rank(user)
            moved = "the rank isn't known" if rank is None else carried(one, affine, rank, forward=True)
            if isinstance(moved, str):
                return moved
            between.append((one, moved))
            affine = moved.affine
        product = Product(user, rank)
        return product.refuses_before(affine) or _Path(product, between, affine)


def _rank_before(node: Node, product: Node, chain: Sequence[Node]) -> int | None:
    """The rank of an affine node's operand. The product's is taken for it where `affine_of` makes sure that the node keeps it."""
    rank = rank_of(argument_of(node))
    return rank if rank is not None or chain else _product_rank(product)


def _product_rank(node: Node) -> int | None:
    """The rank of a product's input, where the op says it."""
    if isinstance(node.op, (Conv, ConvTranspose)):
        return node.inputs[1].rank
    return 2 if isinstance(node.op, Gemm) else None


class MergeShifts(SearchRule):
    """(x + c) + d  =  x + (c + d)."""

    name = "sum of a sum"
    ops = (Add,)

    def find(self, node: Node, graph: Graph) -> tuple[Node, np.ndarray] | str:
        """The inner sum, and that of the constants."""
        return self._sum(node, graph) or "not a constant plus one that is added to something used once"

    def rewrite_found(self, node: Node, graph: Graph, found: tuple[Node, np.ndarray]) -> None:
        inner, shift = found
        constant = Value(f"{node.outputs[0].name}/sum", constant=shift)
        substitute(graph, node, Node(Add(), [argument_of(inner), constant], node.outputs, node.name))
        graph.remove(inner)

    def _sum(self, node: Node, graph: Graph) -> tuple[Node, np.ndarray] | None:
        value = argument_of(node)
        inner = made_by(value, Add)
        if inner is None or argument_of(inner) is None or only_user(value, graph) is None:
            return None
        one, other = (next(v.constant for v in either.inputs if v.constant is not None) for either in (inner, node))
        if one.dtype.kind != "f" or 0 in (one.size, other.size):
            return None
        if not _broadcast(one, other):
            return None
        with np.errstate(all="ignore"):
            shift = (one.astype(np.float64) + other.astype(np.float64)).astype(one.dtype)
        return (inner, shift) if np.isfinite(shift).all() else None


def _broadcast(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether the sum of two constants is no larger than the larger one, which adding them in turn would broadcast to, too."""
    try:
        shape = np.broadcast_shapes(one.shape, other.shape)
    except ValueError:
        return False
    return shape in (one.shape, other.shape)


class AffineFolding(RulePass):
    """Puts BatchNormalization, Mul, Div, Add and Sub by constants into the weights of the product before or behind them."""

    name = "affine-folding"
    level = 2
    rules = (FoldIntoPrevious(), FoldIntoNext(), MergeShifts())
