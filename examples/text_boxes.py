"""From the probability map of a DB text detector to rotated boxes (Liao et al., Real-time Scene Text Detection with Differentiable
Binarization, 2020): threshold, connected components, rectangle of least area, grown again by what the network was taught to shrink."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np


def find_boxes(
    probability: np.ndarray, threshold: float = 0.3, box_threshold: float = 0.5, unclip: float = 1.6, min_side: float = 3
) -> list[tuple[np.ndarray, float]]:
    """(corners, score) of every text line in a map (H, W), from top to bottom.

    corners: float64 (4, 2), x and y in the map's edge coordinates (a pixel covers x … x + 1), clockwise, from the text's top left.
    """
    boxes = []
    for rows, starts, ends in components(probability > threshold):
        score = sum(probability[y, a:b].sum() for y, a, b in zip(rows, starts, ends, strict=True)) / (ends - starts).sum()
        ends_of_runs = [np.stack([x, y], 1) for x in (starts, ends) for y in (rows, rows + 1)]
        corners = smallest_rectangle(np.concatenate(ends_of_runs).astype(np.float64))
        sides = np.linalg.norm(corners[1] - corners[0]), np.linalg.norm(corners[3] - corners[0])
        if score >= box_threshold and min(sides) >= min_side:
            boxes.append((grow(corners, sides[0] * sides[1] * unclip / (2 * (sides[0] + sides[1]))), float(score)))
    return sorted(boxes, key=lambda box: (box[0][:, 1].min(), box[0][:, 0].min()))


def components(mask: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """The 8-connected components of a boolean (H, W), each as the rows, first and end columns of its runs."""
    edges = np.diff(np.pad(mask, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    rows, starts = np.nonzero(edges == 1)
    ends = np.nonzero(edges == -1)[1]
    parent = list(range(len(rows)))

    def root(run: int) -> int:
        while parent[run] != run:
            parent[run] = parent[parent[run]]
            run = parent[run]
        return run

    first_of_row = np.searchsorted(rows, np.arange(mask.shape[0] + 1))
    for y in range(1, mask.shape[0]):
        above, here = first_of_row[y - 1], first_of_row[y]
        while above < first_of_row[y] and here < first_of_row[y + 1]:
            if starts[above] <= ends[here] and starts[here] <= ends[above]:
                parent[root(here)] = root(above)
            if ends[above] < ends[here]:
                above += 1
            else:
                here += 1
    labels = np.array([root(run) for run in range(len(rows))], np.int64)
    for label in np.unique(labels):
        runs = labels == label
        yield rows[runs], starts[runs], ends[runs]


def convex_hull(points: np.ndarray) -> np.ndarray:
    """The corners of the convex hull of (N, 2) points, in order (Andrew's monotone chain)."""
    points = np.unique(points, axis=0)

    def chain(points: np.ndarray) -> list[np.ndarray]:
        hull: list[np.ndarray] = []
        for point in points:
            while len(hull) > 1 and cross(hull[-1] - hull[-2], point - hull[-1]) <= 0:
                hull.pop()
            hull.append(point)
        return hull[:-1]

    return np.array(chain(points) + chain(points[::-1]))


def cross(a: np.ndarray, b: np.ndarray) -> float:
    return a[0] * b[1] - a[1] * b[0]


def smallest_rectangle(points: np.ndarray) -> np.ndarray:
    """The rectangle of least area around points (N, 2): one of its sides lies on a side of their convex hull. Clockwise from the one
    nearest to the top left, so that the first side is within 45° of horizontal."""
    hull = convex_hull(points)
    along = np.roll(hull, -1, 0) - hull
    along /= np.linalg.norm(along, axis=1, keepdims=True)
    across = np.stack([-along[:, 1], along[:, 0]], 1)
    u, v = hull @ along.T, hull @ across.T
    best = np.argmin(np.ptp(u, 0) * np.ptp(v, 0))
    axes = np.stack([along[best], across[best]])
    (u0, v0), (u1, v1) = (f(np.stack([u[:, best], v[:, best]]), 1) for f in (np.min, np.max))
    corners = np.array([[u0, v0], [u1, v0], [u1, v1], [u0, v1]]) @ axes
    return np.roll(corners, -corners.sum(1).argmin(), 0)


def grow(corners: np.ndarray, distance: float) -> np.ndarray:
    """The rectangle with every side moved outwards by `distance`."""
    right, down = corners[1] - corners[0], corners[3] - corners[0]
    right, down = right / np.linalg.norm(right) * distance, down / np.linalg.norm(down) * distance
    return corners + np.array([-right - down, right - down, right + down, down - right])
