"""The matrices of Winograd's algorithm F(m × m, 3 × 3): y = A' ((G w G') * (B' d B)) A for each tile of m × m pixels.

Source: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2015.
"""

from __future__ import annotations

import numpy as np

from mnnx.schema.records import Row


class Transforms(Row):
    """B' [m + 2, m + 2], G [m + 2, 3] and A' [m, m + 2]."""

    image: tuple[tuple[float, ...], ...]
    weights: tuple[tuple[float, ...], ...]
    result: tuple[tuple[float, ...], ...]


#: By m.
TRANSFORMS = {
    2: Transforms(
        ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
        ((1, 0, 0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0, 0, 1)),
        ((1, 1, 1, 0), (0, 1, -1, -1)),
    ),
    4: Transforms(
        (
            (4, 0, -5, 0, 1, 0),
            (0, -4, -4, 1, 1, 0),
            (0, 4, -4, -1, 1, 0),
            (0, -2, -1, 2, 1, 0),
            (0, 2, -1, -2, 1, 0),
            (0, 4, 0, -5, 0, 1),
        ),
        (
            (1 / 4, 0, 0),
            (-1 / 6, -1 / 6, -1 / 6),
            (-1 / 6, 1 / 6, -1 / 6),
            (1 / 24, 1 / 12, 1 / 6),
            (1 / 24, -1 / 12, 1 / 6),
            (0, 0, 1),
        ),
        ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
    ),
}


def transform_weights(w: np.ndarray, m: int) -> np.ndarray:
    """[M, C, 3, 3] → [(m + 2)², M, C], computed in float64."""
    matrix = np.array(TRANSFORMS[m].weights)
    points = np.kron(matrix, matrix) @ w.reshape(-1, 9).T.astype(np.float64)
    return points.reshape(-1, *w.shape[:2]).astype(w.dtype)
