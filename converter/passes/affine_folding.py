"""Folds what scales and shifts the channels of a convolution into its weights: BatchNormalization, Mul, Div, Add and Sub by constants.

(w * x + b) * s + t  =  (w * s) * x + (b * s + t), per output channel. Arithmetic is done in float64 and rounded once.
"""

from __future__ import annotations

import numpy as np

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.passes.base import Rule, RulePass, made_by, only_user, substitute
from mnnx.schema.ops.arithmetic import Add, Div, Mul, Sub
from mnnx.schema.ops.convolution import Conv, ConvTranspose
from mnnx.schema.ops.normalization import BatchNormalization


class FoldAffine(Rule):
    """Conv or ConvTranspose → affine op with constants: one Conv with other weights."""

    name = "channel scale and shift into Conv"
    ops = (BatchNormalization, Mul, Div, Add, Sub)

    def match(self, node: Node, graph: Graph) -> str | None:
        convolution = self._convolution(node)
        if convolution is None:
            return "not after a convolution"
        if len(convolution.inputs) < 2 or convolution.inputs[1].constant is None:
            return "the weights are not constant"
        if len(convolution.inputs) > 2 and convolution.inputs[2] is not None and convolution.inputs[2].constant is None:
            return "the bias is not constant"
        if only_user(convolution.outputs[0], graph) is not node:
            return "the convolution's result is used elsewhere"
        return "not per channel" if self._affine(node, convolution) is None else None

    def rewrite(self, node: Node, graph: Graph) -> None:
        convolution = self._convolution(node)
        scale, shift = self._affine(node, convolution)
        x, w, *rest = convolution.inputs
        weights = w.constant.astype(np.float64)
        bias = rest[0].constant.astype(np.float64) if rest and rest[0] is not None else np.zeros(len(scale))
        shape = (1,) * (weights.ndim - 2)
        if isinstance(convolution.op, ConvTranspose):  # weights are C × M/group × kernel
            groups = convolution.op.group
            grouped = weights.reshape(groups, -1, *weights.shape[1:]) * scale.reshape(groups, 1, -1, *shape)
            weights = grouped.reshape(weights.shape)
        else:
            weights = weights * scale.reshape(-1, 1, *shape)
        dtype = w.constant.dtype
        new_w = Value(f"{w.name}/scaled", constant=weights.astype(dtype))
        new_b = Value(f"{node.outputs[0].name}/bias", constant=(bias * scale + shift).astype(dtype))
        substitute(graph, node, Node(convolution.op, [x, new_w, new_b], node.outputs, convolution.name))
        graph.remove(convolution)

    def _convolution(self, node: Node) -> Node | None:
        for value in node.inputs[: 1 if isinstance(node.op, (BatchNormalization, Div, Sub)) else 2]:
            if (convolution := made_by(value, Conv, ConvTranspose)) is not None and type(convolution.op) in (Conv, ConvTranspose):
                return convolution
        return None

    def _affine(self, node: Node, convolution: Node) -> tuple[np.ndarray, np.ndarray] | None:
        """(scale, shift) per output channel in float64, or None."""
        w = convolution.inputs[1].constant
        channels = w.shape[1] * convolution.op.group if isinstance(convolution.op, ConvTranspose) else w.shape[0]
        if isinstance(node.op, BatchNormalization):
            if node.op.training_mode or len([o for o in node.outputs if o is not None]) > 1:
                return None
            if any(v.constant is None or v.constant.shape != (channels,) for v in node.inputs[1:5]):
                return None
            gamma, beta, mean, variance = (v.constant.astype(np.float64) for v in node.inputs[1:5])
            scale = gamma / np.sqrt(variance + node.op.epsilon)
            return scale, beta - mean * scale
        result = convolution.outputs[0]
        operand = node.inputs[1] if node.inputs[0] is result else node.inputs[0]
        vector = _per_channel(operand, channels, w.ndim)
        if vector is None or operand.constant.dtype != w.dtype:
            return None
        one, zero = np.ones(channels), np.zeros(channels)
        match node.op:
            case Mul():
                return vector, zero
            case Div():
                return (one / vector, zero) if np.all(vector != 0) else None
            case Add():
                return one, vector
            case Sub():
                return one, -vector
        return None


def _per_channel(operand: Value | None, channels: int, rank: int) -> np.ndarray | None:
    """A constant that broadcasts over everything but dim 1 of a tensor of `rank`, as a float64 vector of `channels`."""
    if operand is None or operand.constant is None or operand.constant.ndim > rank:
        return None
    array = operand.constant
    padded = array.reshape((1,) * (rank - array.ndim) + array.shape)
    if padded.size not in (1, channels) or padded.shape[1] != padded.size:
        return None
    return np.broadcast_to(padded.reshape(-1).astype(np.float64), channels).copy()


class AffineFolding(RulePass):
    """Puts BatchNormalization, Mul, Div, Add and Sub by constants into the weights of the convolution before them."""

    name = "affine-folding"
    level = 2
    rules = (FoldAffine(),)
