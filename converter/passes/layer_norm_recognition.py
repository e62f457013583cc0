"""Recognises LayerNormalization that exporters write out: (x - mean) / √(mean((x - mean)²) + ε) * γ + β over the last axis."""

from __future__ import annotations

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.passes.base import Rule, RulePass, is_close, made_by, only_user, other_input, scalar, substitute
from mnnx.converter.passes.norm_recognition import RecognizeGroupNorm, RecognizeRmsNorm, is_square, last_axis_mean
from mnnx.schema.ops.arithmetic import Add, Div, Mul, Pow, Sqrt, Sub
from mnnx.schema.ops.normalization import LayerNormalization


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
        if difference is None or root is None or last_axis_mean(difference.inputs[1]) is not difference.inputs[0]:
            return None
        total = made_by(root.inputs[0], Add)
        if total is None:
            return None
        for variance in total.inputs:
            epsilon = scalar(other_input(total, variance), beside=difference.inputs[0])
            squares = last_axis_mean(variance)
            if epsilon is None or squares is None:
                continue
            if is_square(squares, centred) or self._is_square_of_same(squares, difference):
                return difference.inputs[0], epsilon
        return None

    def _is_square_of_same(self, squares: Value, difference: Node) -> bool:
        """The square of another x - mean of the same x (exporters write it twice)."""
        power = made_by(squares, Pow)
        again = made_by(power.inputs[0], Sub) if power is not None and is_close(power.inputs[1], 2, beside=difference.inputs[0]) else None
        return again is not None and again.inputs[0] is difference.inputs[0] and last_axis_mean(again.inputs[1]) is again.inputs[0]


class LayerNormRecognition(RulePass):
    """Makes LayerNormalization, RMSNormalization and GroupNormalization of the smaller ops in which exporters write them."""

    name = "layer-norm-recognition"
    level = 2
    rules = (RecognizeLayerNorm(), RecognizeRmsNorm(), RecognizeGroupNorm())
