"""The matrices of Winograd's convolutions F(m, 3): m outputs of a 3-tap filter from m + 2 products.

y = Aᵀ ((G g) · (Bᵀ d)) for m + 2 inputs d and the filter g; in two dimensions with the matrices on both sides. They follow from
Toom and Cook's algorithm: polynomials are multiplied by their values at m + 1 points and at infinity (Lavin & Gray, Fast Algorithms for
Convolutional Neural Networks, 2016). The points are such that float32 loses little: fractions without rounding, near 1 in size, in
pairs ±p.
"""

from __future__ import annotations

import numpy as np

from mnnx.schema.records import Row

#: Outputs → the finite points.
POINTS = {2: (0.0, 1.0, -1.0), 4: (0.0, 0.75, -0.75, 1.5, -1.5)}


class Matrices(Row):
    """float64: `output` Aᵀ [m, m + 2], `filter` G [m + 2, 3], `input` Bᵀ [m + 2, m + 2]."""

    output: np.ndarray
    filter: np.ndarray
    input: np.ndarray


def matrices(outputs: int) -> Matrices:
    """Those of F(outputs, 3)."""
    points = POINTS[outputs]
    size = outputs + 2
    output, filter_, input_ = np.zeros((outputs, size)), np.zeros((size, 3)), np.zeros((size, size))
    for i, point in enumerate(points):
        others = points[:i] + points[i + 1 :]
        output[:, i] = point ** np.arange(outputs)
        filter_[i] = point ** np.arange(3) / np.prod([point - other for other in others])
        input_[i, :-1] = np.poly(others)[::-1]
    output[-1, -1] = filter_[-1, -1] = 1
    input_[-1] = np.poly(points)[::-1]
    return Matrices(output, filter_, input_)
