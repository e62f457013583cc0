"""Reads polynomials that graphs write out in sums, products and powers."""

from __future__ import annotations

import numpy as np

from mnnx.converter.graph import Value
from mnnx.converter.passes.base import made_by, scalar
from mnnx.schema.ops.arithmetic import Add, Div, Mul, Neg, Pow, Sub

_DEEPEST = 8  # nodes on a way to x; a cubic takes no more


def polynomial(value: Value, x: Value, degree: int, depth: int = _DEEPEST) -> np.ndarray | None:
    """The degree + 1 coefficients of `value` as a polynomial of x, lowest first; None where it is none of that degree."""
    if value is x:
        return _padded(np.array([0.0, 1.0]), degree)
    if (number := scalar(value, beside=x)) is not None:
        return _padded(np.array([number]), degree)
    node = made_by(value, Add, Sub, Mul, Div, Pow, Neg)
    if node is None or not depth:
        return None
    one, *others = (polynomial(operand, x, degree, depth - 1) for operand in node.inputs)
    other = others[0] if others else None
    if one is None or (other is None and not isinstance(node.op, Neg)):
        return None
    match node.op:
        case Neg():
            return -one
        case Add():
            return one + other
        case Sub():
            return one - other
        case Mul():
            return _padded(np.convolve(one, other), degree)
        case Div() if other[0] and not other[1:].any():
            return one / other[0]
        case Pow() if other[0] in range(1, degree + 1) and not other[1:].any():
            product = np.ones(1)
            for _ in range(int(other[0])):
                product = np.convolve(product, one)
            return _padded(product, degree)
    return None


def _padded(coefficients: np.ndarray, degree: int) -> np.ndarray | None:
    """With as many coefficients as the degree asks for; None where more are in use."""
    if coefficients[degree + 1 :].any():
        return None
    return np.pad(coefficients[: degree + 1], (0, max(0, degree + 1 - len(coefficients))))
