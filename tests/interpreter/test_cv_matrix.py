"""CVMatrix: what each method does to points."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mnnx.errors import InputError
from mnnx.interpreter.cv_matrix import CVMatrix

POINTS = np.array([[0, 0], [3, -1], [2.5, 7]])


def scaled(points):
    return (points - [4, 5]) * [2, 3] + [4, 5]


def turned(points):
    """A quarter clockwise (y points down) about (1, 2)."""
    x, y = (points - [1, 2]).T
    return np.stack([1 - y, 2 + x], -1)


def moved(points):
    return np.add(points, [5, -6])


STEPS = {"Scale": ((2, 3, 4, 5), scaled), "Rotate": ((90, 1, 2), turned), "Translate": ((5, -6), moved)}


@pytest.mark.parametrize("name", STEPS)
def test_set(name):
    arguments, step = STEPS[name]
    matrix = CVMatrix([7] * 9)
    getattr(matrix, f"set{name}")(*arguments)
    np.testing.assert_allclose(matrix.mapPoints(POINTS), step(POINTS), atol=1e-12)


@pytest.mark.parametrize(("first", "second"), list(itertools.product(STEPS, STEPS)))
def test_post_acts_after_and_pre_before(first, second):
    matrix = CVMatrix()
    getattr(matrix, f"set{first}")(*STEPS[first][0])
    getattr(matrix, f"post{second}")(*STEPS[second][0])
    np.testing.assert_allclose(matrix.mapPoints(POINTS), STEPS[second][1](STEPS[first][1](POINTS)), atol=1e-12)
    getattr(matrix, f"set{first}")(*STEPS[first][0])
    getattr(matrix, f"pre{second}")(*STEPS[second][0])
    np.testing.assert_allclose(matrix.mapPoints(POINTS), STEPS[first][1](STEPS[second][1](POINTS)), atol=1e-12)


@pytest.mark.parametrize("count", range(5))
def test_poly_to_poly_takes_each_point_to_its_own(count):
    source = np.array([[0, 0], [10, 1], [12, 9], [-1, 11]], float)[:count]
    target = np.array([[3, 1], [14, -2], [11, 8], [2, 13]], float)[:count]
    matrix = CVMatrix()
    assert matrix.setPolyToPoly(source.ravel(), target.ravel())
    np.testing.assert_allclose(matrix.mapPoints(source), target, atol=1e-9)


def test_poly_to_poly_of_two_points_keeps_angles():
    matrix = CVMatrix()
    matrix.setPolyToPoly([0, 0, 1, 1], [0, 1, 1, 0])
    np.testing.assert_allclose(matrix.read(), [0, 1, 0, -1, 0, 1, 0, 0, 1], atol=1e-12)


@pytest.mark.parametrize("points", [[0, 0, 0, 0], [0, 0, 1, 1, 2, 2], [0, 0, 1, 1, 2, 2, 0, 5]])
def test_poly_to_poly_without_an_answer_changes_nothing(points):
    matrix = CVMatrix(range(9))
    assert not matrix.setPolyToPoly(points, range(len(points)))
    assert matrix.read() == list(range(9))


def test_poly_to_poly_wants_equally_many_points():
    with pytest.raises(InputError, match="got 4 and 2 numbers"):
        CVMatrix().setPolyToPoly([0, 0, 1, 1], [0, 0])


def test_invert():
    matrix = CVMatrix([2, 1, 5, 0, 3, -1, 0.1, 0.2, 1])
    forward = matrix.mapPoints(POINTS)
    assert matrix.invert()
    np.testing.assert_allclose(matrix.mapPoints(forward), POINTS, atol=1e-12)


def test_a_singular_matrix_stays_as_it_is():
    matrix = CVMatrix(np.ones(9))
    assert not matrix.invert()
    assert matrix.read() == [1] * 9


def test_write_takes_as_many_values_as_there_are_up_to_nine():
    matrix = CVMatrix()
    matrix.write([2, 0, 3])
    assert matrix.read() == [2, 0, 3, 0, 1, 0, 0, 0, 1]
    matrix.write(range(12))
    assert matrix.read() == list(range(9))


def test_is_an_array_to_numpy():
    assert np.asarray(CVMatrix(range(9))).tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


@pytest.mark.parametrize("use", [CVMatrix, CVMatrix().write, CVMatrix().mapPoints, lambda text: CVMatrix().setPolyToPoly(text, text)])
def test_what_is_no_number_is_an_error(use):
    with pytest.raises(InputError, match="numbers are wanted, got 'abc'"):
        use("abc")


@pytest.mark.parametrize("points", [3, [1, 2, 3], [[1], [2]]])
def test_points_have_two_coordinates(points):
    with pytest.raises(InputError, match="mapPoints wants points"):
        CVMatrix().mapPoints(points)
