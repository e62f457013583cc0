"""Recognises LayerNormalization that exporters write out: (x - mean) / √(mean((x - mean)²) + ε) * γ + β over the last axis."""

from __future__ import annotations

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.passes.base import Rule, RulePass, is_close, made_by, only_user, other_input, scalar, substitute
from mnnx.schema.ops.arithmetic import Add, Div, Mul, Pow, Sqrt, Sub
from mnnx.schema.ops.normalization import LayerNormalization
from mnnx.schema.ops.reduction import ReduceMean


def _last_axis_mean(value: Value | None) -> Value | None:
    """x where `value` is the mean of x over its last axis with the axis kept, else None."""
    mean = made_by(value, ReduceMean)
    if mean is None or not mean.op.keepdims or len(mean.inputs) < 2 or mean.inputs[1] is None or mean.inputs[1].constant is None:
        return None
    x = mean.inputs[0]
    axes = mean.inputs[1].constant.reshape(-1).tolist()
    return x if axes == [-1] or (x.rank is not None and axes == [x.rank - 1]) else None


def _is_square(value: Value, root: Value) -> bool:
    power = made_by(value, Pow)
    if power is not None:
        return power.inputs[0] is root and is_close(power.inputs[1], 2)
    product = made_by(value, Mul)
    return product is not None and product.inputs[0] is root and product.inputs[1] is root


class RecognizeLayerNorm(Rule):
    name = "LayerNormalization"
    ops = (Add,)

    def match(self, node: Node, graph: Graph) -> str | None:
        found = self._find(node, graph)
        return found if isinstance(found, str) else None

    def rewrite(self, node: Node, graph: Graph) -> None:
        x, gamma, beta, epsilon = self._find(node, graph)
        op = LayerNormalization(axis=-1, epsilon=epsilon)
        substitute(graph, node, Node(op, [x, gamma, beta], node.outputs, node.name))

    def _find(self, node: Node, graph: Graph) -> tuple[Value, Value, Value, float] | str:
        for scaled, beta in (node.inputs, node.inputs[::-1]):
            product = made_by(scaled, Mul)
            if product is None or beta.constant is None or beta.constant.ndim != 1 or only_user(scaled, graph) is not node:
                continue
            for normal, gamma in (product.inputs, product.inputs[::-1]):
                found = self._normalized(normal)
                if found is None or gamma.constant is None or gamma.constant.shape != beta.constant.shape:
                    continue
                x, epsilon = found
                if x.shape is not None and x.shape[-1] == beta.constant.shape[0]:
                    return x, gamma, beta, epsilon
        return "not (x - mean) / sqrt(variance + epsilon) * gamma + beta"

    def _normalized(self, value: Value) -> tuple[Value, float] | None:
        division = made_by(value, Div)
        if division is None:
            return None
        centred, deviation = division.inputs
        difference, root = made_by(centred, Sub), made_by(deviation, Sqrt)
        if difference is None or root is None or _last_axis_mean(difference.inputs[1]) is not difference.inputs[0]:
            return None
        total = made_by(root.inputs[0], Add)
        if total is None:
            return None
        for variance in total.inputs:
            epsilon = scalar(other_input(total, variance))
            squares = _last_axis_mean(variance)
            if epsilon is None or squares is None:
                continue
            if _is_square(squares, centred) or self._is_square_of_same(squares, difference):
                return difference.inputs[0], epsilon
        return None

    def _is_square_of_same(self, squares: Value, difference: Node) -> bool:
        """The square of another x - mean of the same x (exporters write it twice)."""
        power = made_by(squares, Pow)
        again = made_by(power.inputs[0], Sub) if power is not None and is_close(power.inputs[1], 2) else None
        return again is not None and again.inputs[0] is difference.inputs[0] and _last_axis_mean(again.inputs[1]) is again.inputs[0]


class LayerNormRecognition(RulePass):
    """Makes LayerNormalization of the smaller ops in which exporters write it."""

    name = "layer-norm-recognition"
    level = 2
    rules = (RecognizeLayerNorm(),)
