"""Recognises RMSNormalization and GroupNormalization that exporters write out.

RMSNormalization    x / √(mean(x²) + ε) * γ over the last axis, the root also as a reciprocal or as a power of -1/2
GroupNormalization  InstanceNormalization of x reshaped to [N, groups, -1], reshaped back, * γ + β per channel
"""

from __future__ import annotations

import numpy as np

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.passes.affine_values import affine_of, argument_of
from mnnx.converter.passes.base import Rule, is_close, made_by, only_user, other_input, scalar, substitute
from mnnx.schema.ops.arithmetic import Add, Div, Mul, Pow, Reciprocal, Sqrt, Sub
from mnnx.schema.ops.normalization import GroupNormalization, InstanceNormalization, RMSNormalization
from mnnx.schema.ops.reduction import ReduceMean
from mnnx.schema.ops.shape import Reshape

_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def last_axis_mean(value: Value | None) -> Value | None:
    """x where `value` is the mean of x over its last axis with the axis kept, else None."""
    mean = made_by(value, ReduceMean)
    if mean is None or not mean.op.keepdims or len(mean.inputs) < 2 or mean.inputs[1] is None or mean.inputs[1].constant is None:
        return None
    x = mean.inputs[0]
    axes = mean.inputs[1].constant.reshape(-1).tolist()
    return x if axes == [-1] or (x.rank is not None and axes == [x.rank - 1]) else None


def is_square(value: Value, root: Value) -> bool:
    """Whether a value is the square of another."""
    power = made_by(value, Pow)
    if power is not None:
        return power.inputs[0] is root and is_close(power.inputs[1], 2, beside=root)
    product = made_by(value, Mul)
    return product is not None and product.inputs[0] is root and product.inputs[1] is root


class RecognizeRmsNorm(Rule):
    name = "RMSNormalization"
    ops = (Mul,)

    def match(self, node: Node, graph: Graph) -> str | None:
        found = self._find(node)
        if found is None:
            return "not x / sqrt(mean(x * x) + epsilon) * gamma"
        if not node.outputs[0].users and not graph.is_output(node.outputs[0]):
            return "nobody needs its result"
        centred = made_by(found[0], Sub)
        is_centred = centred is not None and last_axis_mean(centred.inputs[1]) is centred.inputs[0]
        if is_centred and any(isinstance(user.op, Add) for user in node.outputs[0].users):
            return "a LayerNormalization of what the mean is taken from"
        return None

    def rewrite(self, node: Node, graph: Graph) -> None:
        x, gamma, epsilon = self._find(node)
        substitute(graph, node, Node(RMSNormalization(axis=-1, epsilon=epsilon), [x, gamma], node.outputs, node.name))

    def _find(self, node: Node) -> tuple[Value, Value, float] | None:
        for normal, gamma in (node.inputs, node.inputs[::-1]):
            if gamma.constant is None or gamma.constant.ndim != 1 or gamma.constant.dtype not in _FLOATS:
                continue
            found = self._normalized(normal)
            if found is not None and found[0].shape is not None and found[0].shape[-1:] == gamma.constant.shape:
                return found[0], gamma, found[1]
        return None

    def _normalized(self, value: Value) -> tuple[Value, float] | None:
        """x and epsilon where `value` is x / sqrt(mean(x * x) + epsilon)."""
        if (division := made_by(value, Div)) is not None:
            return self._epsilon(division.inputs[0], made_by(division.inputs[1], Sqrt))
        product = made_by(value, Mul)
        for x, factor in (product.inputs, product.inputs[::-1]) if product is not None else ():
            if (root := self._reciprocal_root(factor, x)) is not None and (found := self._epsilon(x, root)) is not None:
                return found
        return None

    def _reciprocal_root(self, factor: Value, x: Value) -> Node | None:
        """The node whose input is under the root, of what has x's rank."""
        if (power := made_by(factor, Pow)) is not None and is_close(power.inputs[1], -0.5, beside=x):
            return power
        if (inverse := made_by(factor, Reciprocal)) is not None:
            return made_by(inverse.inputs[0], Sqrt)
        division = made_by(factor, Div)
        return made_by(division.inputs[1], Sqrt) if division is not None and is_close(division.inputs[0], 1, beside=x) else None

    def _epsilon(self, x: Value, root: Node | None) -> tuple[Value, float] | None:
        total = made_by(root.inputs[0], Add) if root is not None else None
        for mean in total.inputs if total is not None else ():
            epsilon, squares = scalar(other_input(total, mean), beside=x), last_axis_mean(mean)
            if epsilon is not None and squares is not None and is_square(squares, x):
                return x, epsilon
        return None


class RecognizeGroupNorm(Rule):
    """Starts from the sum with β."""

    name = "GroupNormalization"
    ops = (Add,)

    def match(self, node: Node, graph: Graph) -> str | None:
        found = self._find(node, graph)
        return found if isinstance(found, str) else None

    def rewrite(self, node: Node, graph: Graph) -> None:
        x, norm, scale, bias = self._find(node, graph)
        dtype, name = norm.inputs[1].dtype, node.outputs[0].name
        operands = [Value(f"{name}/{which}", constant=array.astype(dtype)) for which, array in (("scale", scale), ("bias", bias))]
        op = GroupNormalization(num_groups=norm.inputs[1].constant.size, epsilon=norm.op.epsilon)
        substitute(graph, node, Node(op, [x, *operands], node.outputs, node.name))

    def _find(self, node: Node, graph: Graph) -> tuple[Value, Node, np.ndarray, np.ndarray] | str:
        """x, the InstanceNormalization, and scale and bias per channel."""
        product = made_by(argument_of(node), Mul)
        back = made_by(argument_of(product), Reshape) if product is not None else None
        norm = made_by(back.inputs[0], InstanceNormalization) if back is not None else None
        split = made_by(norm.inputs[0], Reshape) if norm is not None else None
        if split is None or any(only_user(one.outputs[0], graph) is None for one in (product, back, norm, split)):
            return "not a reshaped InstanceNormalization, * gamma + beta, each used once"
        x = split.inputs[0]
        if x.rank is None or x.rank < 3 or x.shape != back.outputs[0].shape or None in x.shape or not isinstance(x.shape[1], int):
            return "not known to be reshaped back"
        if any(value.constant is None for value in norm.inputs[1:]):
            return "the InstanceNormalization's scale or bias is computed"
        channels, groups, target = x.shape[1], norm.inputs[1].constant.size, split.outputs[0].shape
        if target is None or target[:2] != (x.shape[0], groups) or len(target) != 3 or not groups or channels % groups:
            return "not reshaped to groups of channels"
        factor, shift = affine_of(product, x.rank), affine_of(node, x.rank)
        vectors = [one and one.per_channel(1 - x.rank, channels) for one in (factor, shift)]
        if any(one is None for one in vectors):
            return "gamma or beta is not per channel"
        gamma, beta = vectors[0][0], vectors[1][1]
        scale, bias = (np.repeat(value.constant.astype(np.float64), channels // groups) for value in norm.inputs[1:])
        return x, norm, scale * gamma, bias * gamma + beta
