"""Native poolings against windows taken one by one."""

import itertools

import numpy as np
import pytest

from mnnx.schema.ops.pooling import AveragePool, GlobalAveragePool, GlobalMaxPool, MaxPool
from tests.backends.cpu.native import native

RNG = np.random.default_rng(7)

CASES = [
    ((2, 5, 17, 23), {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}),
    ((2, 5, 18, 24), {"kernel_shape": (3, 3), "strides": (2, 2), "ceil_mode": True}),
    ((1, 2, 40, 70), {"kernel_shape": (2, 2), "strides": (2, 2)}),
    ((2, 5, 33), {"kernel_shape": (5,), "pads": (2, 1)}),
    ((2, 2, 5, 6, 7), {"kernel_shape": (2, 3, 2), "strides": (1, 2, 2), "pads": (1, 0, 0, 0, 1, 1)}),
    ((1, 3, 20, 20), {"kernel_shape": (3, 3), "dilations": (2, 2), "pads": (1, 1, 1, 1)}),
    ((1, 8, 7, 7), {"kernel_shape": (7, 7)}),
    ((1, 8, 7, 7), {"kernel_shape": (1, 1), "strides": (2, 2)}),
    ((0, 8, 7, 7), {"kernel_shape": (2, 2)}),
]


def windows(op, x: np.ndarray):
    """Per output position: the values of its window inside the input, and how many lie inside the padded input."""
    g = op.geometry(x.shape)
    for position in np.ndindex(*g.output):
        at = [
            [p * s - b + k * d for k in range(n)] for p, s, b, d, n in zip(position, g.strides, g.begin, g.dilations, g.kernel, strict=True)
        ]
        inside = [[v for v in values if 0 <= v < n] for values, n in zip(at, g.input, strict=True)]
        padded = [sum(-b <= v < n + e for v in values) for values, n, b, e in zip(at, g.input, g.begin, g.end, strict=True)]
        taken = [x[(slice(None), slice(None), *tap)] for tap in itertools.product(*inside)]
        yield position, np.stack(taken, -1), int(np.prod(padded))


def pooled(op, x: np.ndarray) -> np.ndarray:
    y = np.zeros((*x.shape[:2], *op.geometry(x.shape).output))
    for position, values, padded in windows(op, x):
        where = (slice(None), slice(None), *position)
        if isinstance(op, MaxPool):
            y[where] = values.max(-1)
        else:
            y[where] = values.sum(-1) / (padded if op.count_include_pad else values.shape[-1])
    return y


@pytest.mark.usefixtures("tiling")
@pytest.mark.parametrize("op", [MaxPool, AveragePool])
@pytest.mark.parametrize(("shape", "attributes"), CASES)
def test_pooling(op, shape, attributes):
    x, op = RNG.standard_normal(shape).astype(np.float32), op(**attributes)
    expected = pooled(op, x)
    np.testing.assert_allclose(native(op, x), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(native(op, x, threads=3), expected, rtol=1e-5, atol=1e-5)


def test_mean_over_the_padded_input():
    op = AveragePool(kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1), count_include_pad=True, ceil_mode=True)
    x = RNG.standard_normal((2, 3, 18, 24)).astype(np.float32)
    np.testing.assert_allclose(native(op, x), pooled(op, x), rtol=1e-5, atol=1e-5)


def test_nan_wins():
    x = np.zeros((1, 1, 4, 40), np.float32)
    x[0, 0, 1, 7] = np.nan
    np.testing.assert_array_equal(np.isnan(native(MaxPool(kernel_shape=(2, 2)), x))[0, 0, :2, 6:8], True)
    assert np.isnan(native(GlobalMaxPool(), x)).all()


@pytest.mark.usefixtures("tiling")
@pytest.mark.parametrize("shape", [(2, 5, 7, 7), (1, 3, 1, 1), (1, 7, 112, 12), (2, 3, 65), (3, 2)])
def test_whole_channels(shape):
    x = RNG.standard_normal(shape).astype(np.float32)
    axes = tuple(range(2, x.ndim))
    np.testing.assert_allclose(native(GlobalMaxPool(), x), x.max(axes, keepdims=True) if axes else x)
    np.testing.assert_allclose(native(GlobalAveragePool(), x, threads=2), x.mean(axes, keepdims=True) if axes else x, rtol=1e-5, atol=1e-6)


def test_indices_are_left_to_numpy():
    from tests.backends.cpu.native import Native

    with pytest.raises(ValueError, match="indices"):
        Native(MaxPool(kernel_shape=(2, 2)), np.zeros((1, 1, 4, 4), np.float32), outputs=2)
