"""Recognises activations that compare: Relu, Clip, LeakyRelu, PRelu, Softplus and Softsign.

Relu       max(x, 0)
Clip       max(x, low), min(x, high), and one of the other
LeakyRelu  max(x, alpha * x) for alpha above 0, to 1; where(x > 0, x, alpha * x), also with >=, < or <=
PRelu      relu(x) - slope * relu(-x)
Softplus   log(1 + eˣ); where(x > threshold, x, softplus(x)), where the threshold is so high that the two are the same
Softsign   x / (1 + |x|)

Numbers are constants.
"""

from __future__ import annotations

import numpy as np

from mnnx.converter.graph import Node, Value
from mnnx.converter.passes.affine_values import argument_of
from mnnx.converter.passes.base import is_close, made_by, other_input, scalar
from mnnx.converter.passes.dims import broadcasts_to
from mnnx.converter.passes.recognition import Found, Recognition
from mnnx.schema.ops.activation import LeakyRelu, PRelu, Relu, Softplus, Softsign
from mnnx.schema.ops.arithmetic import Abs, Add, Clip, Div, Exp, Log, Max, Min, Mul, Neg, Sub
from mnnx.schema.ops.comparison import Greater, GreaterOrEqual, Less, LessOrEqual, Where

_FLOATS = (np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16))
#: Beyond, log(1 + eˣ) is x in float32: e⁻¹⁸ is less than half of what x = 18 is rounded to.
_SAME_FROM = 18.0


class RecognizeClip(Recognition):
    name = "Clip"
    ops = (Max, Min)
    formula = "max(x, number) or min(x, number)"

    def _find(self, node: Node) -> Found | None:
        x = _computed(node)
        if x is None or x.dtype not in _FLOATS:
            return None
        operand = other_input(node, x)
        bound = scalar(operand, beside=x)
        if bound is None or np.isnan(bound):
            return None
        if isinstance(node.op, Max) and bound == 0:
            return Found(x, Relu())
        limit = Value(f"{node.outputs[0].name}/bound", constant=operand.constant.reshape(()))
        low, high = (limit, None) if isinstance(node.op, Max) else (None, limit)
        inner = made_by(x, Clip, Relu)
        own = None if inner is None else _bounds(inner)
        if own is not None and self._merges(node, own, bound):
            x, low, high = inner.inputs[0], low or own[0], high or own[1]
        return Found(x, Clip(), (low, high))

    def _merges(self, node: Node, own: tuple[Value | None, Value | None], bound: float) -> bool:
        """min(max(x, low), high) is what Clip is; max(min(x, high), low) is the same where low <= high."""
        low, high = own
        return high is None if isinstance(node.op, Min) else low is None and high is not None and bound <= scalar(high)


def _computed(node: Node) -> Value | None:
    """The computed one of two operands of which the other is constant."""
    computed = [value for value in node.inputs if value is not None and value.constant is None]
    return computed[0] if len(node.inputs) == 2 and len(computed) == 1 else None


def _bounds(node: Node) -> tuple[Value | None, Value | None] | None:
    """The bounds of a Clip or Relu; None where one is computed."""
    if isinstance(node.op, Relu):
        return Value(f"{node.outputs[0].name}/bound", constant=np.zeros((), node.inputs[0].dtype)), None
    low, high = (*node.inputs[1:], None, None)[:2]
    return None if any(bound is not None and scalar(bound) is None for bound in (low, high)) else (low, high)


class RecognizeLeakyRelu(Recognition):
    name = "LeakyRelu"
    ops = (Max, Where)
    formula = "max(x, alpha * x) for alpha above 0, to 1, or where(x > 0, x, alpha * x)"

    def _find(self, node: Node) -> Found | None:
        if isinstance(node.op, Where):
            taken = _compared(node, 0.0, 0.0)
            alpha = None if taken is None else _factor(taken[1], taken[0])
            return None if alpha is None else Found(taken[0], LeakyRelu(alpha=alpha))
        for x, scaled in (node.inputs, node.inputs[::-1]) if len(node.inputs) == 2 else ():
            alpha = _factor(scaled, x)
            if alpha is not None and 0 < alpha <= 1:  # 0 * inf is NaN
                return Found(x, LeakyRelu(alpha=alpha))
        return None


def _factor(value: Value, x: Value) -> float | None:
    """The number that x is multiplied with to give a value."""
    product = made_by(value, Mul)
    return scalar(other_input(product, x), beside=x) if product is not None and x in product.inputs and x.dtype in _FLOATS else None


def _compared(node: Node, lowest: float, highest: float) -> tuple[Value, Value] | None:
    """x and the value elsewhere, where a node gives x for an x above a number of that range."""
    condition, yes, no = node.inputs
    comparison = made_by(condition, Greater, GreaterOrEqual, Less, LessOrEqual)
    if comparison is None:
        return None
    upwards = isinstance(comparison.op, (Greater, GreaterOrEqual))
    for x, other in ((yes, no), (no, yes)):
        if x not in comparison.inputs:
            continue
        number = scalar(other_input(comparison, x), beside=x)
        if number is None or not lowest <= number <= highest:
            return None
        # Whether the condition holds above the number, and x is taken there.
        return (x, other) if (upwards == (comparison.inputs[0] is x)) == (x is yes) else None
    return None


class RecognizePRelu(Recognition):
    """Starts from the sum, or the difference."""

    name = "PRelu"
    ops = (Add, Sub)
    formula = "relu(x) - slope * relu(-x)"

    def _find(self, node: Node) -> Found | None:
        for positive, negative in (node.inputs, node.inputs[::-1])[: 2 if isinstance(node.op, Add) else 1]:
            relu, product = made_by(positive, Relu), made_by(negative, Mul)
            other = made_by(argument_of(product), Relu) if product is not None else None
            negation = made_by(other.inputs[0], Neg) if relu is not None and other is not None else None
            if negation is None or negation.inputs[0] is not relu.inputs[0]:
                continue
            x = relu.inputs[0]
            slope = other_input(product, argument_of(product)).constant
            if x.dtype in _FLOATS and slope.dtype == x.dtype and broadcasts_to(slope.shape, x):
                slope = -slope if isinstance(node.op, Add) else slope
                return Found(x, PRelu(), (Value(f"{node.outputs[0].name}/slope", constant=slope),))
        return None


class RecognizeSoftplus(Recognition):
    name = "Softplus"
    ops = (Log, Where)
    formula = "log(1 + exp(x)) or where(x > threshold, x, softplus(x))"

    def _find(self, node: Node) -> Found | None:
        if isinstance(node.op, Where):
            taken = _compared(node, _SAME_FROM, np.inf)
            softplus = made_by(taken[1], Softplus) if taken is not None else None
            x = None if softplus is None or softplus.inputs[0] is not taken[0] else taken[0]
        else:
            total = made_by(node.inputs[0], Add)
            power = made_by(argument_of(total), Exp) if total is not None else None
            one = power is not None and is_close(other_input(total, power.outputs[0]), 1, 0, beside=power.inputs[0])
            x = power.inputs[0] if one else None
        return None if x is None or x.dtype != np.float32 else Found(x, Softplus())


class RecognizeSoftsign(Recognition):
    name = "Softsign"
    ops = (Div,)
    formula = "x / (1 + |x|)"

    def _find(self, node: Node) -> Found | None:
        x, total = node.inputs[0], made_by(node.inputs[1], Add)
        size = made_by(argument_of(total), Abs) if total is not None else None
        if size is None or size.inputs[0] is not x or not is_close(other_input(total, size.outputs[0]), 1, 0, beside=x):
            return None
        return Found(x, Softsign()) if x.dtype in _FLOATS else None


PIECEWISE = (RecognizeClip(), RecognizeLeakyRelu(), RecognizePRelu(), RecognizeSoftplus(), RecognizeSoftsign())
