"""Convolutions on GPUs, in every layout that they take, against a naive computation in float64."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import onnx
import onnx.parser
import pytest

import mnnx
from mnnx.schema.ops.base import Op
from mnnx.schema.ops.convolution import Conv, ConvTranspose
from mnnx.schema.ops.fused import FusedConv, FusedConvTranspose
from tests.backends.gpu.blocked import run_blocked
from tests.devices import halves

#: Op, shapes of x and w. The blocks' width is 4 or 16, tiles have 4 or 8 pixels.
CASES: list[tuple[Op, tuple[int, ...], tuple[int, ...]]] = [
    (Conv(), (1, 16, 7, 7), (32, 16, 1, 1)),
    (Conv(), (2, 19, 5, 7), (35, 19, 1, 1)),
    (Conv(strides=(2, 2)), (1, 20, 9, 8), (17, 20, 1, 1)),
    (Conv(pads=(1, 1, 1, 1)), (1, 3, 11, 9), (20, 3, 3, 3)),
    (Conv(pads=(1, 1, 1, 1)), (3, 21, 6, 5), (48, 21, 3, 3)),
    (Conv(pads=(1, 1, 1, 1)), (1, 32, 13, 13), (64, 32, 3, 3)),
    (Conv(pads=(1, 0, 0, 2), strides=(2, 1)), (1, 17, 9, 10), (16, 17, 3, 2)),
    (Conv(pads=(2, 4, 2, 4), dilations=(2, 3)), (1, 8, 9, 12), (24, 8, 3, 3)),
    (Conv(pads=(9, 9, 9, 9)), (1, 5, 2, 3), (6, 5, 3, 3)),
    (Conv(auto_pad="SAME_LOWER", strides=(3, 2)), (1, 4, 10, 9), (9, 4, 4, 5)),
    (Conv(), (1, 40, 6, 6), (10, 40, 6, 6)),
    (Conv(group=2, pads=(1, 1, 1, 1)), (1, 32, 7, 6), (64, 16, 3, 3)),
    (Conv(group=3, pads=(1, 1, 1, 1)), (2, 15, 5, 5), (48, 5, 3, 3)),
    (Conv(group=3), (1, 48, 5, 5), (9, 16, 3, 3)),
    (Conv(group=5), (2, 5, 6, 5), (10, 1, 3, 3)),
    (Conv(group=19, pads=(1, 1, 1, 1)), (2, 19, 9, 11), (19, 1, 3, 3)),
    (Conv(group=32, pads=(2, 2, 2, 2), strides=(2, 2)), (1, 32, 13, 6), (32, 1, 5, 5)),
    (Conv(group=6, pads=(2, 2, 2, 2), dilations=(2, 2)), (1, 6, 5, 5), (6, 1, 3, 3)),
    (Conv(pads=(2, 1)), (2, 18, 23), (21, 18, 3)),
    (Conv(group=7, pads=(3, 0)), (1, 7, 15), (7, 1, 4)),
    (Conv(pads=(1, 0, 1, 0, 1, 1), strides=(1, 2, 1)), (1, 6, 4, 7, 5), (18, 6, 3, 3, 2)),
    (Conv(group=5, pads=(1, 1, 1, 1, 1, 1)), (1, 5, 3, 4, 5), (5, 1, 3, 3, 3)),
    (ConvTranspose(), (1, 16, 5, 4), (16, 32, 3, 3)),
    (ConvTranspose(strides=(2, 2)), (2, 19, 5, 7), (19, 21, 2, 2)),
    (ConvTranspose(strides=(2, 3), pads=(1, 0, 0, 1), output_padding=(1, 2)), (1, 8, 4, 5), (8, 18, 3, 4)),
    (ConvTranspose(strides=(2, 2), pads=(1, 1, 1, 1)), (1, 5, 9, 9), (5, 7, 4, 4)),
    (ConvTranspose(strides=(3, 2), dilations=(2, 2)), (1, 4, 3, 4), (4, 5, 2, 3)),
    (ConvTranspose(strides=(2, 2), output_shape=(12, 9)), (1, 4, 5, 5), (4, 5, 3, 3)),
    (ConvTranspose(strides=(4, 4)), (1, 4, 3, 3), (4, 5, 2, 2)),
    (ConvTranspose(group=2, strides=(2, 2)), (1, 32, 4, 3), (32, 16, 3, 3)),
    (ConvTranspose(group=3, strides=(2, 1)), (1, 6, 4, 3), (6, 2, 2, 3)),
    (ConvTranspose(strides=(3,), pads=(2, 1)), (2, 17, 9), (17, 16, 5)),
    (ConvTranspose(strides=(1, 2, 2)), (1, 4, 3, 2, 4), (4, 6, 2, 2, 3)),
]


def naive(op: Op, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Tap after tap, group after group, in float64."""
    geometry = op.geometry(x.shape, w.shape)
    groups, transposed = op.group, isinstance(op, ConvTranspose)
    x, w = x.astype(np.float64), w.astype(np.float64)
    sizes, image_sizes = (geometry.input, geometry.output) if transposed else (geometry.output, geometry.input)
    strides, dilations, begin = geometry.strides, geometry.dilations, geometry.begin
    reach = [(n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(sizes, strides, geometry.kernel, dilations, strict=True)]
    room = [max(r, b + m) for r, b, m in zip(reach, begin, image_sizes, strict=True)]
    inside = tuple(slice(b, b + m) for b, m in zip(begin, image_sizes, strict=True))
    parts = []
    for x_part, w_part in zip(np.split(x, groups, 1), np.split(w, groups, 0), strict=True):
        image = np.zeros((len(x), w_part.shape[1], *room))
        y = np.zeros((len(x), w_part.shape[0], *geometry.output))
        if not transposed:
            image[(..., *inside)] = x_part
        for tap in itertools.product(*map(range, geometry.kernel)):
            first = [t * d for t, d in zip(tap, dilations, strict=True)]
            met = (..., *(slice(f, f + (n - 1) * s + 1, s) for f, n, s in zip(first, sizes, strides, strict=True)))
            weights = w_part[(..., *tap)]
            if transposed:
                image[met] += np.einsum("nc...,cm->nm...", x_part, weights)
            else:
                y += np.einsum("nc...,mc->nm...", image[met], weights)
        parts.append(image[(..., *inside)] if transposed else y)
    return np.concatenate(parts, 1)


def _numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _assert_close(got: np.ndarray, wanted: np.ndarray, bound: float) -> None:
    np.testing.assert_allclose(got, wanted, rtol=0, atol=bound * max(1.0, np.abs(wanted).max()))


@pytest.mark.parametrize("precision", ["high", "low"])
@pytest.mark.parametrize("case", CASES, ids=[f"{op.name}-{'x'.join(map(str, x))}-{'x'.join(map(str, w))}" for op, x, w in CASES])
def test_every_way_gives_the_sums(case: tuple[Op, tuple[int, ...], tuple[int, ...]], precision: str, gpu: str) -> None:
    op, *shapes = case
    x, w = (_numbers(seed, *shape) for seed, shape in enumerate(shapes))
    wanted, bound = naive(op, x, w), 1e-5 if precision == "high" else 4e-3
    for _, got in run_blocked(gpu, op, x, w, precision=precision):
        _assert_close(got, wanted, bound)


@pytest.mark.parametrize(("kind", "group"), [(FusedConv, 1), (FusedConv, 24), (FusedConvTranspose, 1)])
def test_bias_residual_and_activation_end_every_way(kind: type[Op], group: int, gpu: str) -> None:
    plain = {FusedConv: Conv, FusedConvTranspose: ConvTranspose}[kind]
    settings = {"pads": (1, 1, 1, 1), "group": group}
    x, w, bias = _numbers(0, 2, 24, 7, 9), _numbers(1, 24, 24 // group, 3, 3), _numbers(2, 24)
    sums = naive(plain(**settings), x, w) + bias.reshape(-1, 1, 1)
    residual = _numbers(3, *sums.shape)
    for activation, parameters, function in (
        ("Clip", (-0.5, 6.0), lambda v: np.clip(v, -0.5, 6.0)),
        ("HardSwish", (), lambda v: v * np.clip(v / 6 + 0.5, 0, 1)),
        ("Sigmoid", (), lambda v: 1 / (1 + np.exp(-v))),
    ):
        op = kind(activation=activation, activation_parameters=parameters, **settings)
        runs = run_blocked(gpu, op, x, w, bias, residual)
        assert len(runs) > 1
        for _, got in runs:
            np.testing.assert_allclose(got, function(sums + residual), rtol=0, atol=1e-5 * np.abs(sums).max())


def test_weights_may_be_computed(gpu: str) -> None:
    for op, *shapes in CASES[3:24:4]:
        x, w = (_numbers(seed, *shape) for seed, shape in enumerate(shapes))
        ((_, got),) = run_blocked(gpu, op, x, w, constants=())
        _assert_close(got, naive(op, x, w), 1e-5)


NETWORK = """
<ir_version: 10, opset_import: ["": 21]>
main (float[n, 3, h, w] x) => (float[n, c, h2, w2] y)
{
    c0 = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(x, w0, b0)
    r0 = Relu(c0)
    c1 = Conv<pads = [1, 1, 1, 1], group = 20>(r0, w1)
    s1 = HardSwish(c1)
    c2 = Conv(s1, w2)
    a2 = Add(c2, r0)
    r2 = Relu(a2)
    c3 = Conv<pads = [1, 1, 1, 1]>(r2, w3)
    j3 = Concat<axis = 1>(c3, r2)
    y = ConvTranspose<strides = [2, 2]>(j3, w4)
}
"""


@pytest.mark.parametrize("precision", ["high", "low"])
@pytest.mark.parametrize("size", [(1, 17, 23), (2, 32, 8), (1, 1, 1)])
def test_networks_pass_blocks_on(session_of: Callable[..., mnnx.Session], size: tuple[int, int, int], precision: str, gpu: str) -> None:
    n, height, width = size
    shapes = {"w0": (20, 3, 3, 3), "b0": (20,), "w1": (20, 1, 3, 3), "w2": (20, 20, 1, 1), "w3": (40, 20, 3, 3), "w4": (60, 10, 2, 2)}
    weights = {name: _numbers(seed, *shape) for seed, (name, shape) in enumerate(shapes.items())}
    model = onnx.parser.parse_model(NETWORK)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
    session = session_of(model, backend=gpu, backend_config=halves(precision))
    x = _numbers(9, n, 3, height, width)
    got = session.run({"x": x})["y"]
    assert {row.backend for row in session.placement()} == {gpu}
    r0 = np.maximum(naive(Conv(pads=(1,) * 4, strides=(2, 2)), x, weights["w0"]) + weights["b0"].reshape(-1, 1, 1), 0)
    c1 = naive(Conv(pads=(1,) * 4, group=20), r0, weights["w1"])
    r2 = np.maximum(naive(Conv(), c1 * np.clip(c1 / 6 + 0.5, 0, 1), weights["w2"]) + r0, 0)
    c3 = naive(Conv(pads=(1,) * 4), r2, weights["w3"])
    wanted = naive(ConvTranspose(strides=(2, 2)), np.concatenate([c3, r2], 1), weights["w4"])
    _assert_close(got, wanted, 1e-5 if precision == "high" else 1e-2)
