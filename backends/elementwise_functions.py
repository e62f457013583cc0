"""NumPy meanings of the functions of `elementwise.FUNCTIONS` that NumPy doesn't have as such."""

from __future__ import annotations

import math

import numpy as np

_erf = np.frompyfunc(math.erf, 1, 1)


def div(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a / b; integers are truncated towards zero, 0 where b is 0."""
    if np.issubdtype(np.result_type(a), np.integer):
        quotient = np.floor_divide(a, b)
        if np.issubdtype(quotient.dtype, np.signedinteger):
            quotient += ((quotient < 0) & (quotient * b != a) & (b != 0)).astype(quotient.dtype)
        return np.where(b == 0, quotient.dtype.type(0), quotient)
    return np.true_divide(a, b)


def power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a ** b; integers wrap, and negative exponents give the truncated real result (0 where a is 0)."""
    if np.issubdtype(np.result_type(a), np.signedinteger):
        result = np.power(a, np.maximum(b, 0))
        unit = np.where(a == 1, 1, np.where(a == -1, 1 - 2 * (b & 1), 0)).astype(result.dtype)
        return np.where(b < 0, unit, result)
    return np.power(a, b)


def shift_left(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a << b; 0 where b isn't in [0, bits)."""
    bits = 8 * a.dtype.itemsize
    inside = (b >= 0) & (b < bits)
    return np.where(inside, np.left_shift(a, np.where(inside, b, a.dtype.type(0))), a.dtype.type(0))


def shift_right(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a >> b with the sign; 0 or -1 where b isn't in [0, bits)."""
    last = a.dtype.type(8 * a.dtype.itemsize - 1)
    inside = (b >= 0) & (b <= last)
    shifted = np.right_shift(a, np.where(inside, b, last))
    return shifted if np.issubdtype(a.dtype, np.signedinteger) else np.where(inside, shifted, a.dtype.type(0))


def erf(x: np.ndarray) -> np.ndarray:
    """The Gauss error function, in the dtype of x."""
    return np.asarray(_erf(x.astype(np.float64))).astype(x.dtype)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + e^-x), in the dtype of x."""
    return 1 / (1 + np.exp(-x))
