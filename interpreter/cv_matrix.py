"""A 3×3 matrix that maps points of a destination image to points of a source image, with the methods of MNN's CVMatrix."""
# ruff: noqa: N802 - the camelCase names are those of MNN's Python API.

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mnnx.errors import InputError
from mnnx.interpreter.checks import number, numbers


class CVMatrix:
    """A projective map of the plane, kept as a float64 matrix `[[scale x, skew x, move x], [skew y, scale y, move y], [p0, p1, p2]]`.

    The point (x, y) goes to (X / W, Y / W), where (X, Y, W) = matrix · (x, y, 1). `set…` replaces the map, `pre…` lets another map act
    before it (matrix · other), `post…` after it (other · matrix), as in Skia's SkMatrix and MNN's CVMatrix. `numpy.asarray(matrix)` is
    the 3×3 array. Angles are degrees; positive ones turn clockwise where y points down.
    """

    def __init__(self, values: Sequence[float] | np.ndarray | None = None):
        """The identity, or a matrix of 9 values (row by row, or 3×3). Raises InputError for another number of values."""
        self._values = np.eye(3) if values is None else _matrix(values)

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return np.array(self._values, dtype=dtype)

    def __repr__(self) -> str:
        rows = ", ".join("[" + ", ".join(f"{value:g}" for value in row) + "]" for row in self._values)
        return f"CVMatrix([{rows}])"

    def read(self) -> list[float]:
        """The nine values, row by row."""
        return [float(value) for value in self._values.ravel()]

    def write(self, values: Sequence[float]) -> None:
        """Overwrites the first values, row by row; those beyond the ninth are ignored."""
        values = _numbers(values).ravel()[:9]
        self._values.reshape(-1)[: values.size] = values

    def mapPoints(self, points: Sequence[Sequence[float]] | np.ndarray) -> np.ndarray:
        """Where `points` (…, 2) go: float64 of the same shape; inf or nan where the map has no finite image."""
        points = _numbers(points)
        if points.ndim < 1 or points.shape[-1] != 2:
            raise InputError(f"mapPoints wants points (…, 2), got {list(points.shape)}")
        mapped = points @ self._values[:, :2].T + self._values[:, 2]
        with np.errstate(divide="ignore", invalid="ignore"):
            return mapped[..., :2] / mapped[..., 2:]

    def setScale(self, sx: float, sy: float, px: float = 0, py: float = 0) -> None:
        """Scales by sx, sy; the point (px, py) stays."""
        self._values = _scale(sx, sy, px, py)

    def preScale(self, sx: float, sy: float, px: float = 0, py: float = 0) -> None:
        self._values = self._values @ _scale(sx, sy, px, py)

    def postScale(self, sx: float, sy: float, px: float = 0, py: float = 0) -> None:
        self._values = _scale(sx, sy, px, py) @ self._values

    def setRotate(self, degrees: float, px: float = 0, py: float = 0) -> None:
        """Rotates about the point (px, py)."""
        self._values = _rotation(degrees, px, py)

    def preRotate(self, degrees: float, px: float = 0, py: float = 0) -> None:
        self._values = self._values @ _rotation(degrees, px, py)

    def postRotate(self, degrees: float, px: float = 0, py: float = 0) -> None:
        self._values = _rotation(degrees, px, py) @ self._values

    def setTranslate(self, dx: float, dy: float) -> None:
        """Moves by (dx, dy)."""
        self._values = _translation(dx, dy)

    def preTranslate(self, dx: float, dy: float) -> None:
        self._values = self._values @ _translation(dx, dy)

    def postTranslate(self, dx: float, dy: float) -> None:
        self._values = _translation(dx, dy) @ self._values

    def setPolyToPoly(self, src: Sequence[float], dst: Sequence[float]) -> bool:
        """The map that takes up to four points `src` (x0, y0, x1, y1, …) to `dst`: one point gives a translation, two a rotation with a
        uniform scale, three an affine map, four a projective one. Returns False, and changes nothing, where there is no such map.

        Raises InputError where the two don't hold the same number of points, or more than four.
        """
        source, target = (_numbers(points).reshape(-1) for points in (src, dst))
        if source.size != target.size or source.size % 2 or source.size > 8:
            raise InputError(
                f"setPolyToPoly: src and dst want 0 to 4 points each, equally many; got {source.size} and {target.size} numbers"
            )
        frames = [_frame(points.reshape(-1, 2)) for points in (source, target)]
        if any(frame is None for frame in frames):
            return False
        values = frames[1] @ np.linalg.inv(frames[0])
        self._values = values / values[2, 2] if values[2, 2] else values
        return True

    def invert(self) -> bool:
        """Becomes the inverse map. Returns False, and changes nothing, where the matrix is singular."""
        inverse = _inverse(self._values)
        if inverse is not None:
            self._values = inverse
        return inverse is not None


def _numbers(values: Any) -> np.ndarray:
    array = numbers(values)
    if array is None:
        raise InputError(f"numbers are wanted, got {values!r}")
    return array


def _matrix(values: Sequence[float] | np.ndarray) -> np.ndarray:
    values = _numbers(values)
    if values.size != 9:
        raise InputError(f"a matrix wants 9 values (3×3, row by row), got {values.size} of shape {values.shape}")
    return values.reshape(3, 3)


def _scale(*given: float) -> np.ndarray:
    """By sx, sy about the point (px, py)."""
    sx, sy, px, py = (number(value, "a scale or point") for value in given)
    return np.array([[sx, 0, px - sx * px], [0, sy, py - sy * py], [0, 0, 1]], np.float64)


def _rotation(*given: float) -> np.ndarray:
    """By so many degrees about the point (px, py)."""
    degrees, px, py = (number(value, "an angle or point") for value in given)
    if not math.isfinite(degrees):
        raise InputError(f"an angle must be finite, got {degrees}")
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return np.array([[c, -s, s * py + (1 - c) * px], [s, c, (1 - c) * py - s * px], [0, 0, 1]], np.float64)


def _translation(*given: float) -> np.ndarray:
    """By (dx, dy)."""
    dx, dy = (number(value, "a distance") for value in given)
    return np.array([[1, 0, dx], [0, 1, dy], [0, 0, 1]], np.float64)


def _inverse(values: np.ndarray) -> np.ndarray | None:
    determinant = np.linalg.det(values)
    if determinant == 0 or not math.isfinite(determinant):
        return None
    return np.linalg.inv(values)


def _frame(points: np.ndarray) -> np.ndarray | None:
    """The map from a fixed frame of so many points to `points` (n, 2); None where it isn't invertible."""
    if len(points) == 0:
        return np.eye(3)
    x, y = points[0]
    if len(points) == 1:
        return _translation(x, y)
    if len(points) == 2:
        dx, dy = points[1] - points[0]
        values = np.array([[dx, -dy, x], [dy, dx, y], [0, 0, 1]], np.float64)
    elif len(points) == 3:
        values = np.column_stack([points[1] - points[0], points[2] - points[0], points[0]])
        values = np.vstack([values, [0, 0, 1]])
    else:
        basis = np.column_stack([points[:3], np.ones(3)]).T
        weights = _inverse(basis)
        if weights is None:
            return None
        values = basis * (weights @ [*points[3], 1])
    return values if _inverse(values) is not None else None
