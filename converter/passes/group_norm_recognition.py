"""Recognises GroupNormalization that exporters write out.

It is InstanceNormalization of x reshaped to [N, groups, -1], reshaped back, * γ + β per channel. Where a group is a channel it stays an
InstanceNormalization, of x itself, with another scale and bias.
"""

from __future__ import annotations

import numpy as np

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.passes.affine_values import affine_of, argument_of
from mnnx.converter.passes.base import SearchRule, made_by, only_user, substitute
from mnnx.schema.ops.arithmetic import Add, Mul
from mnnx.schema.ops.normalization import GroupNormalization, InstanceNormalization
from mnnx.schema.ops.shape import Reshape


class RecognizeGroupNorm(SearchRule):
    """Starts from the sum with β."""

    name = "GroupNormalization"
    ops = (Add,)

    def rewrite_found(self, node: Node, graph: Graph, found: tuple[Value, Node, np.ndarray, np.ndarray]) -> None:
        x, norm, scale, bias = found
        dtype, name = norm.inputs[1].dtype, node.outputs[0].name
        operands = [Value(f"{name}/{which}", constant=array.astype(dtype)) for which, array in (("scale", scale), ("bias", bias))]
        groups = norm.inputs[1].constant.size
        op = norm.op if groups == scale.size else GroupNormalization(num_groups=groups, epsilon=norm.op.epsilon)
        substitute(graph, node, Node(op, [x, *operands], node.outputs, node.name))

    def find(self, node: Node, graph: Graph) -> tuple[Value, Node, np.ndarray, np.ndarray] | str:
        """x, the InstanceNormalization, and scale and bias per channel."""
        product = made_by(argument_of(node), Mul)
        result = argument_of(product) if product is not None else None
        back = made_by(result, Reshape)
        norm = made_by(back.inputs[0] if back is not None else result, InstanceNormalization)
        parts = [product, back, norm, split := made_by(norm.inputs[0], Reshape) if norm is not None else None]
        if norm is None or any(only_user(one.outputs[0], graph) is None for one in parts if one is not None):
            return "not an InstanceNormalization, reshaped, * gamma + beta, each used once"
        x = norm.inputs[0] if split is None else split.inputs[0]
        if x.rank is None or x.rank < 3 or x.shape != result.shape or None in x.shape or not isinstance(x.shape[1], int):
            return "not known to be reshaped back"
        if any(value.constant is None for value in norm.inputs[1:]):
            return "the InstanceNormalization's scale or bias is computed"
        channels, groups, target = x.shape[1], norm.inputs[1].constant.size, norm.inputs[0].shape
        if split is None and groups == channels:
            target = (x.shape[0], channels, None)
        if target is None or target[:2] != (x.shape[0], groups) or len(target) != 3 or not groups or channels % groups:
            return "not reshaped to groups of channels"
        factor, shift = affine_of(product, x.rank), affine_of(node, x.rank)
        vectors = [one and one.per_channel(1 - x.rank, channels) for one in (factor, shift)]
        if any(one is None for one in vectors):
            return "gamma or beta is not per channel"
        gamma, beta = vectors[0][0], vectors[1][1]
        scale, bias = (np.repeat(value.constant.astype(np.float64), channels // groups) for value in norm.inputs[1:])
        return x, norm, scale * gamma, bias * gamma + beta
