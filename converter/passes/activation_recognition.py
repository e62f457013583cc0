"""Recognises activations that exporters write out in smaller ops: HardSigmoid, HardSwish, Swish, Mish and Gelu (both forms).

HardSigmoid  clip(x + 3, 0, 6) / 6                      (or * 1/6)
HardSwish    x * clip(x + 3, 0, 6) / 6                  = x * HardSigmoid(x, 1/6, 1/2)
Swish        x * sigmoid(x), or x * sigmoid(alpha * x)
Mish         x * tanh(log(1 + eˣ))
Gelu         x / 2 * (1 + erf(x / √2)), or with tanh(√(2/π) * (x + 0.044715 x³)) for the erf, in any order of the factors
"""

from __future__ import annotations

import math

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.passes.base import Rule, RulePass, is_close, made_by, other_input, scalar, substitute
from mnnx.schema.ops.activation import Gelu, HardSigmoid, HardSwish, Mish, Sigmoid, Softplus, Swish
from mnnx.schema.ops.arithmetic import Add, Clip, Div, Erf, Mul, Pow, Tanh


def _scaled(node: Node | None, factor: float) -> Value | None:
    """x where `node` computes x * factor or x / (1/factor), else None."""
    if node is None:
        return None
    if isinstance(node.op, Mul):
        for i in (0, 1):
            if is_close(node.inputs[i], factor, beside=node.inputs[1 - i]):
                return node.inputs[1 - i]
    if isinstance(node.op, Div) and is_close(node.inputs[1], 1 / factor, beside=node.inputs[0]):
        return node.inputs[0]
    return None


def _shifted(node: Node | None, number: float) -> Value | None:
    """x where `node` computes x + number, else None."""
    if node is not None and isinstance(node.op, Add):
        for i in (0, 1):
            if is_close(node.inputs[i], number, beside=node.inputs[1 - i]):
                return node.inputs[1 - i]
    return None


def _relu6_of_plus_3(value: Value | None) -> Value | None:
    """x where `value` is clip(x + 3, 0, 6), else None."""
    clip = made_by(value, Clip)
    if clip is None or len(clip.inputs) < 3 or not (is_close(clip.inputs[1], 0) and is_close(clip.inputs[2], 6)):
        return None
    return _shifted(made_by(clip.inputs[0], Add), 3)


class RecognizeHardSigmoid(Rule):
    name = "HardSigmoid"
    ops = (Mul, Div)

    def match(self, node: Node, graph: Graph) -> str | None:
        return None if _relu6_of_plus_3(_scaled(node, 1 / 6)) is not None else "not clip(x + 3, 0, 6) / 6"

    def rewrite(self, node: Node, graph: Graph) -> None:
        x = _relu6_of_plus_3(_scaled(node, 1 / 6))
        substitute(graph, node, Node(HardSigmoid(alpha=1 / 6, beta=0.5), [x], node.outputs, node.name))


class RecognizeHardSwish(Rule):
    name = "HardSwish"
    ops = (Mul, Div)

    def match(self, node: Node, graph: Graph) -> str | None:
        return None if self._argument(node) is not None else "not x * clip(x + 3, 0, 6) / 6"

    def rewrite(self, node: Node, graph: Graph) -> None:
        substitute(graph, node, Node(HardSwish(), [self._argument(node)], node.outputs, node.name))

    def _argument(self, node: Node) -> Value | None:
        product = made_by(_scaled(node, 1 / 6), Mul)
        if product is not None:
            for value in product.inputs:
                x = other_input(product, value)
                if x is not None and _relu6_of_plus_3(value) is x:
                    return x
        if isinstance(node.op, Mul):
            for value in node.inputs:
                gate, x = made_by(value, HardSigmoid), other_input(node, value)
                if gate is not None and gate.inputs[0] is x and abs(gate.op.alpha - 1 / 6) < 1e-6 and gate.op.beta == 0.5:
                    return x
        return None


class RecognizeSwish(Rule):
    name = "Swish"
    ops = (Mul,)

    def match(self, node: Node, graph: Graph) -> str | None:
        return None if self._find(node) is not None else "not x * sigmoid(x) or x * sigmoid(alpha * x)"

    def rewrite(self, node: Node, graph: Graph) -> None:
        x, alpha = self._find(node)
        substitute(graph, node, Node(Swish(alpha=alpha), [x], node.outputs, node.name))

    def _find(self, node: Node) -> tuple[Value, float] | None:
        for value in node.inputs:
            gate, x = made_by(value, Sigmoid), other_input(node, value)
            if gate is None or x is value:
                continue
            if gate.inputs[0] is x:
                return x, 1.0
            scaled = made_by(gate.inputs[0], Mul)
            alpha = None if scaled is None or x not in scaled.inputs else other_input(scaled, x)
            if scalar(alpha, beside=x) is not None:
                return x, scalar(alpha)
        return None


class RecognizeMish(Rule):
    name = "Mish"
    ops = (Mul,)

    def match(self, node: Node, graph: Graph) -> str | None:
        return None if self._argument(node) is not None else "not x * tanh(softplus(x))"

    def rewrite(self, node: Node, graph: Graph) -> None:
        substitute(graph, node, Node(Mish(), [self._argument(node)], node.outputs, node.name))

    def _argument(self, node: Node) -> Value | None:
        for value in node.inputs:
            tanh, x = made_by(value, Tanh), other_input(node, value)
            softplus = made_by(tanh.inputs[0], Softplus) if tanh is not None else None
            if softplus is not None and softplus.inputs[0] is x:
                return x
        return None


class RecognizeGelu(Rule):
    """Starts from the last product of x, 1/2 and 1 + erf(…)."""

    name = "Gelu"
    ops = (Mul, Div)

    def match(self, node: Node, graph: Graph) -> str | None:
        return None if self._find(node) is not None else "not x / 2 * (1 + erf(x / √2))"

    def rewrite(self, node: Node, graph: Graph) -> None:
        x, approximate = self._find(node)
        substitute(graph, node, Node(Gelu(approximate=approximate), [x], node.outputs, node.name))

    def _find(self, node: Node) -> tuple[Value, str] | None:
        factors, number = _factors(node)
        if len(factors) != 2 or abs(number - 0.5) > 1e-6:
            return None
        for x, gate in (factors, factors[::-1]):
            inner = _shifted(made_by(gate, Add), 1)
            if (erf := made_by(inner, Erf)) is not None and _scaled(made_by(erf.inputs[0], Mul, Div), math.sqrt(0.5)) is x:
                return x, "none"
            if (tanh := made_by(inner, Tanh)) is not None and _is_cubic(tanh.inputs[0], x):
                return x, "tanh"
        return None


def _factors(node: Node) -> tuple[list[Value], float]:
    """The operands of a tree of products, and the product of its constants; inner products must have no other users."""
    factors: list[Value] = []
    number = 1.0
    if isinstance(node.op, Div):
        divisor = scalar(node.inputs[1], beside=node.inputs[0])
        if not divisor:
            return [], 0.0
        operands, number = [node.inputs[0]], 1 / divisor
    else:
        operands = list(node.inputs)
    for value in operands:
        constant = scalar(value, beside=None if isinstance(node.op, Div) else other_input(node, value))
        inner = made_by(value, Mul, Div)
        if constant is not None:
            number *= constant
        elif inner is not None and len(value.users) == 1 and len(factors) < 4:
            more, factor = _factors(inner)
            factors += more
            number *= factor
        else:
            factors.append(value)
    return factors, number


def _is_cubic(value: Value, x: Value) -> bool:
    """Whether `value` is √(2/π) * (x + 0.044715 x³)."""
    total = made_by(_scaled(made_by(value, Mul), math.sqrt(2 / math.pi)), Add)
    if total is None:
        return False
    for term in total.inputs:
        if other_input(total, term) is x:
            product = made_by(term, Mul)
            factors, number = _factors(product) if product is not None else ([], 0.0)
            power = made_by(factors[0], Pow) if len(factors) == 1 else None
            is_third_power = power is not None and power.inputs[0] is x and is_close(power.inputs[1], 3, beside=x)
            is_cube = factors.count(x) == len(factors) == 3 or is_third_power
            if is_cube and abs(number - 0.044715) < 1e-5:
                return True
    return False


class ActivationRecognition(RulePass):
    """Makes HardSigmoid, HardSwish, Swish, Mish and Gelu of the smaller ops in which exporters write them."""

    name = "activation-recognition"
    level = 2
    rules = (RecognizeHardSigmoid(), RecognizeHardSwish(), RecognizeSwish(), RecognizeMish(), RecognizeGelu())
