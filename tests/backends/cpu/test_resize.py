"""Native Resize against a loop over the taps of every output position, as ONNX specifies them."""

import math

import numpy as np
import pytest

from mnnx.schema.ops.resize import Resize
from tests.backends.cpu.run import cpu, run

RNG = np.random.default_rng(9)
BACKEND = cpu(2)


def keys(distance, a=-0.75):
    d = abs(distance)
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0


def taps(position, dim, scale, mode, transformation, antialias):
    """[(input position, weight)] of one output position. Source: ONNX Resize-19 and its reference implementation."""
    x = {
        "half_pixel": (position + 0.5) / scale - 0.5,
        "asymmetric": position / scale,
        "align_corners": position * (dim - 1) / (dim * scale - 1) if dim * scale != 1 else 0.0,
    }[transformation]
    if mode == "nearest":
        return [(min(max(math.ceil(x - 0.5), 0), dim - 1), 1.0)]
    kernel, radius = (lambda d: max(0.0, 1 - abs(d)), 1) if mode == "linear" else (keys, 2)
    stretch = min(scale, 1.0) if antialias else 1.0
    found = []
    for i in range(math.floor(x - radius / stretch) - 1, math.ceil(x + radius / stretch) + 2):
        found.append((min(max(i, 0), dim - 1), kernel((i - x) * stretch)))
    total = sum(weight for _, weight in found) if antialias else 1.0
    return [(i, weight / total) for i, weight in found]


def naive(x, scales, *how):
    x = x.astype(np.float64)
    for axis, scale in enumerate(scales):
        if scale == 1:
            continue
        rows = np.moveaxis(x, axis, 0)
        result = np.zeros((math.floor(len(rows) * scale), *rows.shape[1:]))
        for position in range(len(result)):
            for index, weight in taps(position, len(rows), float(scale), *how):
                result[position] += weight * rows[index]
        x = np.moveaxis(result, 0, axis)
    return x


@pytest.mark.parametrize("shape", [(2, 3, 17, 23), (5, 9), (13,)])
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("transformation", ["half_pixel", "align_corners", "asymmetric"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resize(mode, transformation, antialias, shape):
    if antialias and mode == "nearest":
        pytest.skip("only interpolation antialiases")
    x = RNG.uniform(-1, 1, shape).astype(np.float32)
    op = Resize(mode=mode, coordinate_transformation_mode=transformation, antialias=antialias)
    for scales in ((2, 2), (1.7, 0.6), (1, 3), (0.5, 0.5)):
        scales = np.array([1, 1, *scales][-len(shape) :], np.float32)
        kind, (result,) = run(BACKEND, op, x, None, scales)
        assert kind != "HostExecution"
        np.testing.assert_allclose(result, naive(x, scales, mode, transformation, antialias), rtol=1e-5, atol=2e-6)


def test_other_dims_run_with_numpy():
    x = RNG.uniform(-1, 1, (4, 5, 6)).astype(np.float32)
    kind, (result,) = run(BACKEND, Resize(mode="linear"), x, None, np.array([2, 1, 1], np.float32))
    assert kind == "HostExecution"
    assert result.shape == (8, 5, 6)
