"""Recognises activations that exporters write out in smaller ops: HardSigmoid, HardSwish, Swish, Mish and Gelu (both forms).

HardSigmoid  clip(x + 3, 0, 6) / 6                      (or * 1/6)
HardSwish    x * clip(x + 3, 0, 6) / 6                  = x * HardSigmoid(x, 1/6, 1/2)
Swish        x * sigmoid(x), or x * sigmoid(alpha * x)
Mish         x * tanh(log(1 + eˣ))
Gelu         x / 2 * (1 + erf(x / √2)), or with tanh(√(2/π) * (x + 0.044715 x³)) for the erf, in any order of the factors, and with the
             tanh's argument in any form of that polynomial

Those that compare are in `piecewise_recognition.py`.
"""

from __future__ import annotations

import math

from mnnx.converter.graph import Node, Value
from mnnx.converter.passes.base import RulePass, is_close, made_by, other_input, scalar
from mnnx.converter.passes.piecewise_recognition import PIECEWISE
from mnnx.converter.passes.polynomials import polynomial
from mnnx.converter.passes.recognition import Found, Recognition
from mnnx.schema.ops.activation import Gelu, HardSigmoid, HardSwish, Mish, Sigmoid, Softplus, Swish
from mnnx.schema.ops.arithmetic import Add, Clip, Div, Erf, Mul, Tanh

_TANH_FACTOR = math.sqrt(2 / math.pi)


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
    x = _shifted(made_by(clip.inputs[0], Add), 3)
    return x if x is not None and x.dtype is not None and x.dtype.kind in "fV" else None  # integers are divided without a rest


class RecognizeHardSigmoid(Recognition):
    name = "HardSigmoid"
    ops = (Mul, Div)
    formula = "clip(x + 3, 0, 6) / 6"

    def _find(self, node: Node) -> Found | None:
        x = _relu6_of_plus_3(_scaled(node, 1 / 6))
        return None if x is None else Found(x, HardSigmoid(alpha=1 / 6, beta=0.5))


class RecognizeHardSwish(Recognition):
    name = "HardSwish"
    ops = (Mul, Div)
    formula = "x * clip(x + 3, 0, 6) / 6"

    def _find(self, node: Node) -> Found | None:
        product = made_by(_scaled(node, 1 / 6), Mul)
        if product is not None:
            for value in product.inputs:
                x = other_input(product, value)
                if x is not None and _relu6_of_plus_3(value) is x:
                    return Found(x, HardSwish())
        if isinstance(node.op, Mul):
            for value in node.inputs:
                gate, x = made_by(value, HardSigmoid), other_input(node, value)
                if gate is not None and gate.inputs[0] is x and abs(gate.op.alpha - 1 / 6) < 1e-6 and gate.op.beta == 0.5:
                    return Found(x, HardSwish())
        return None


class RecognizeSwish(Recognition):
    name = "Swish"
    ops = (Mul,)
    formula = "x * sigmoid(x) or x * sigmoid(alpha * x)"

    def _find(self, node: Node) -> Found | None:
        for value in node.inputs:
            gate, x = made_by(value, Sigmoid), other_input(node, value)
            if gate is None or x is value:
                continue
            if gate.inputs[0] is x:
                return Found(x, Swish())
            scaled = made_by(gate.inputs[0], Mul)
            alpha = None if scaled is None or x not in scaled.inputs else other_input(scaled, x)
            if scalar(alpha) is not None and alpha.constant.ndim <= (x.rank or 0):
                return Found(x, Swish(alpha=scalar(alpha)))
        return None


class RecognizeMish(Recognition):
    name = "Mish"
    ops = (Mul,)
    formula = "x * tanh(softplus(x))"

    def _find(self, node: Node) -> Found | None:
        for value in node.inputs:
            tanh, x = made_by(value, Tanh), other_input(node, value)
            softplus = made_by(tanh.inputs[0], Softplus) if tanh is not None else None
            if softplus is not None and softplus.inputs[0] is x:
                return Found(x, Mish())
        return None


class RecognizeGelu(Recognition):
    """Starts from the last product of x, 1/2 and 1 + erf(…)."""

    name = "Gelu"
    ops = (Mul, Div)
    formula = "x / 2 * (1 + erf(x / √2)) or x / 2 * (1 + tanh(√(2/π) * (x + 0.044715 x³)))"

    def _find(self, node: Node) -> Found | None:
        factors, number = _factors(node)
        if len(factors) != 2 or abs(number - 0.5) > 1e-6:
            return None
        for x, gate in (factors, factors[::-1]):
            inner = _shifted(made_by(gate, Add), 1)
            if (erf := made_by(inner, Erf)) is not None and _scaled(made_by(erf.inputs[0], Mul, Div), math.sqrt(0.5)) is x:
                return Found(x, Gelu())
            if (tanh := made_by(inner, Tanh)) is not None and _is_cubic(tanh.inputs[0], x):
                return Found(x, Gelu(approximate="tanh"))
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
        constant = scalar(value, beside=other_input(node, value))
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
    found, wanted = polynomial(value, x, 3), (0.0, _TANH_FACTOR, 0.0, 0.044715 * _TANH_FACTOR)
    return found is not None and all(abs(a - b) <= error for a, b, error in zip(found, wanted, (0, 1e-4, 0, 1e-5), strict=True))


class ActivationRecognition(RulePass):
    """Makes Relu, LeakyRelu, PRelu, Clip, Softplus, Softsign, HardSigmoid, HardSwish, Swish, Mish and Gelu of smaller ops."""

    name = "activation-recognition"
    level = 2
    rules = (*PIECEWISE, RecognizeHardSigmoid(), RecognizeHardSwish(), RecognizeSwish(), RecognizeMish(), RecognizeGelu())
