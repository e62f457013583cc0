"""Native convolutions against a naive sum over taps."""

import itertools

import numpy as np
import pytest

from mnnx.backends.cpu.tiling import Tiling
from mnnx.schema.ops.convolution import Conv, ConvTranspose
from mnnx.schema.ops.fused import FusedConv, FusedConvTranspose
from tests.backends.cpu.native import native

RNG = np.random.default_rng(5)


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def convolved(op: Conv, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    """Conv in float64: one product of matrices per tap."""
    g = op.geometry(x.shape, w.shape)
    room = [max(0, (o - 1) * s + e - b - n) for o, s, e, b, n in zip(g.output, g.strides, g.extents, g.begin, g.input, strict=True)]
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *zip(g.begin, room, strict=True)])
    y = np.zeros((x.shape[0], w.shape[0], *g.output))
    rows, channels = w.shape[0] // op.group, w.shape[1]
    for tap in itertools.product(*map(range, g.kernel)):
        where = [slice(k * d, k * d + (o - 1) * s + 1, s) for k, d, o, s in zip(tap, g.dilations, g.output, g.strides, strict=True)]
        seen = padded[(slice(None), slice(None), *where)]
        for group in range(op.group):
            own = slice(group * rows, (group + 1) * rows)
            part = np.tensordot(w[(own, slice(None), *tap)].astype(np.float64), seen[:, group * channels : (group + 1) * channels], (1, 1))
            y[:, own] += part.swapaxes(0, 1)
    return y if bias is None else y + bias.reshape(-1, *[1] * len(g.kernel))


def scattered(op: ConvTranspose, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    """ConvTranspose in float64, element by element of the input's positions."""
    g = op.geometry(x.shape, w.shape)
    rows, channels = w.shape[1], x.shape[1] // op.group
    y = np.zeros((x.shape[0], rows * op.group, *g.output))
    for position, tap in itertools.product(np.ndindex(*g.input), np.ndindex(*g.kernel)):
        where = [p * s - b + k * d for p, s, b, k, d in zip(position, g.strides, g.begin, tap, g.dilations, strict=True)]
        if all(0 <= p < n for p, n in zip(where, g.output, strict=True)):
            for group in range(op.group):
                own = slice(group * channels, (group + 1) * channels)
                add = x[(slice(None), own, *position)].astype(np.float64) @ w[(own, slice(None), *tap)].astype(np.float64)
                y[(slice(None), slice(group * rows, (group + 1) * rows), *where)] += add
    return y if bias is None else y + bias.reshape(-1, *[1] * len(g.kernel))


def same(got: np.ndarray, expected: np.ndarray) -> None:
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-3)


CONVOLUTIONS = [
    ((1, 3, 8, 8), (8, 3, 3, 3), {}),
    ((2, 5, 17, 19), (13, 5, 3, 3), {"pads": (1, 1, 1, 1)}),
    ((1, 16, 14, 14), (24, 16, 1, 1), {}),
    ((2, 16, 7, 7), (64, 16, 1, 1), {}),
    ((1, 16, 8, 8), (64, 16, 1, 1), {}),
    ((1, 16, 14, 14), (24, 16, 1, 1), {"strides": (2, 2)}),
    ((1, 3, 33, 31), (9, 3, 7, 7), {"strides": (2, 2), "pads": (3, 3, 3, 3)}),
    ((1, 4, 20, 20), (8, 4, 3, 3), {"dilations": (2, 3), "pads": (2, 3, 2, 3)}),
    ((1, 4, 20, 20), (8, 4, 3, 3), {"dilations": (2, 2), "strides": (2, 2)}),
    ((1, 4, 20, 20), (8, 4, 3, 2), {"strides": (3, 2), "pads": (0, 1, 2, 3)}),
    ((1, 8, 9, 9), (16, 2, 3, 3), {"group": 4, "pads": (1, 1, 1, 1)}),
    ((2, 8, 9), (16, 8, 3), {"pads": (2, 0), "strides": (2,)}),
    ((1, 4, 50, 1), (6, 4, 3, 1), {"pads": (1, 0, 1, 0)}),
    ((1, 3, 5, 6, 7), (4, 3, 3, 2, 3), {"pads": (1, 0, 1, 1, 1, 0), "strides": (1, 2, 1)}),
    ((1, 64, 3, 3), (8, 64, 3, 3), {"auto_pad": "SAME_UPPER"}),
    ((1, 150, 7, 7), (72, 150, 3, 3), {"pads": (1, 1, 1, 1)}),
    ((1, 1, 1, 1), (1, 1, 1, 1), {}),
    ((5, 20, 1, 1), (50, 20, 1, 1), {}),
    ((2, 3, 4, 5), (7, 3, 4, 5), {}),
    ((0, 3, 8, 8), (8, 3, 3, 3), {}),
]
DEPTHWISE = [
    ((1, 8, 14, 14), (8, 1, 3, 3), {"group": 8, "pads": (1, 1, 1, 1)}),
    ((2, 8, 15, 33), (16, 1, 3, 3), {"group": 8, "pads": (1, 1, 1, 1), "strides": (2, 2)}),
    ((1, 2, 150, 70), (2, 1, 3, 3), {"group": 2, "pads": (1, 1, 1, 1)}),
    ((2, 8, 7, 7), (8, 1, 5, 5), {"group": 8, "pads": (2, 2, 2, 2)}),
    ((1, 8, 40), (8, 1, 31), {"group": 8, "pads": (15, 15)}),
    ((1, 4, 6, 6, 20), (4, 1, 3, 3, 3), {"group": 4, "pads": (1, 1, 1, 1, 1, 1), "strides": (1, 2, 2)}),
    ((1, 4, 9, 9), (4, 1, 1, 1), {"group": 4}),
]


@pytest.mark.usefixtures("tiling")
@pytest.mark.parametrize(("x", "w", "attributes"), CONVOLUTIONS + DEPTHWISE)
def test_convolution(x, w, attributes):
    op, x, w, bias = Conv(**attributes), f32(*x), f32(*w), f32(w[0])
    expected = convolved(op, x, w, bias)
    same(native(op, x, w, bias), expected)
    same(native(op, x, w, bias, threads=3), expected)


@pytest.mark.parametrize("with_residual", [False, True])
@pytest.mark.parametrize(
    ("activation", "function"),
    [
        ("Relu", lambda y: np.maximum(y, 0)),
        ("HardSwish", lambda y: y * np.clip(y / 6 + 0.5, 0, 1)),
        ("Sigmoid", lambda y: 1 / (1 + np.exp(-y))),
    ],
)
@pytest.mark.parametrize(("x", "w", "attributes"), [*CONVOLUTIONS[1:5], CONVOLUTIONS[-2], *DEPTHWISE[:3]])
def test_epilogue(x, w, attributes, activation, function, with_residual):
    x, w, bias = f32(*x), f32(*w), f32(w[0])
    expected = convolved(Conv(**attributes), x, w, bias)
    residual = f32(*expected.shape) if with_residual else None
    expected = function(expected + residual if with_residual else expected)
    same(native(FusedConv(activation=activation, **attributes), x, w, bias, residual, threads=2), expected)


TRANSPOSED = [
    ((1, 24, 10, 11), (24, 24, 2, 2), {"strides": (2, 2)}),
    ((2, 8, 7, 9), (8, 5, 3, 3), {"strides": (2, 2), "pads": (1, 1, 1, 1), "output_padding": (1, 1)}),
    ((2, 8, 7, 9), (8, 5, 4, 4), {"strides": (2, 2), "pads": (1, 1, 1, 1)}),
    ((2, 8, 7, 9), (8, 5, 3, 3), {}),
    ((2, 8, 7, 9), (8, 3, 3, 3), {"group": 4, "strides": (3, 1), "dilations": (2, 2)}),
    ((2, 8, 33), (8, 3, 16), {"strides": (8,), "pads": (4, 4)}),
    ((1, 4, 3, 4, 5), (4, 3, 2, 3, 2), {"strides": (1, 2, 2)}),
]


@pytest.mark.usefixtures("tiling")
@pytest.mark.parametrize(("x", "w", "attributes"), TRANSPOSED)
def test_transposed_convolution(x, w, attributes):
    op, x, w = ConvTranspose(**attributes), f32(*x), f32(*w)
    bias = f32(w.shape[1] * op.group)
    expected = scattered(op, x, w, bias)
    same(native(op, x, w, bias, threads=2), expected)
    residual = f32(*expected.shape)
    fused = FusedConvTranspose(activation="Relu", **attributes)
    same(native(fused, x, w, bias, residual), np.maximum(expected + residual, 0))


def test_windows_far_larger_than_the_image_are_left_to_numpy():
    op = Conv(pads=(1 << 20, 0, 1 << 20, 0), dilations=(1 << 20, 1))
    with pytest.raises(ValueError, match="far larger"):
        native(op, f32(1, 1, 3, 3), f32(1, 1, 3, 1))


def test_subnormal_weights_are_flushed():
    weights, tile = np.full((8, 4), 1e-40, np.float32), Tiling(8, 3, 16, True)
    assert not tile.pack_rows(weights).any()
    assert not tile.pack_columns(weights).any()
    assert weights.all()
