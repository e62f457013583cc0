"""Native reductions, softmax, normalizations, Gather and RotaryEmbedding against naive NumPy in float64."""

import numpy as np
import pytest

from mnnx.errors import InputError
from mnnx.schema.ops import normalization, reduction
from mnnx.schema.ops.activation import LogSoftmax, Softmax
from mnnx.schema.ops.attention import RotaryEmbedding
from mnnx.schema.ops.indexing import Gather
from tests.backends.cpu.run import cpu, run

RNG = np.random.default_rng(8)
BACKEND = cpu(2)


def f32(*shape, low=-3.0, high=3.0):
    return RNG.uniform(low, high, shape).astype(np.float32)


def native(op, *inputs, unknown=()):
    kind, outputs = run(BACKEND, op, *inputs, unknown=unknown)
    assert kind != "HostExecution"
    return outputs


REDUCTIONS = {
    reduction.ReduceSum: np.sum,
    reduction.ReduceMean: np.mean,
    reduction.ReduceProd: np.prod,
    reduction.ReduceMax: np.max,
    reduction.ReduceMin: np.min,
    reduction.ReduceL1: lambda x, axis, keepdims: np.abs(x).sum(axis, keepdims=keepdims),
    reduction.ReduceL2: lambda x, axis, keepdims: np.sqrt((x * x).sum(axis, keepdims=keepdims)),
    reduction.ReduceSumSquare: lambda x, axis, keepdims: (x * x).sum(axis, keepdims=keepdims),
    reduction.ReduceLogSum: lambda x, axis, keepdims: np.log(x.sum(axis, keepdims=keepdims)),
}


@pytest.mark.parametrize("op_class", REDUCTIONS)
@pytest.mark.parametrize("axes", [(0,), (1,), (-1,), (2, 3), (1, 2), (0, 1, 2, 3)])
def test_reduction(op_class, axes):
    x = f32(3, 4, 5, 71, low=0.9, high=1.1) if op_class in (reduction.ReduceProd, reduction.ReduceLogSum) else f32(3, 4, 5, 71)
    for keepdims in (True, False):
        (result,) = native(op_class(keepdims=keepdims), x, np.array(axes, np.int64))
        expected = REDUCTIONS[op_class](x.astype(np.float64), axes, keepdims=keepdims)
        rounding = 1e-7 * np.abs(x).sum(axes).max()  # of a sum whose terms nearly cancel
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=2e-5 + rounding, strict=False)
        assert result.shape == expected.shape


def test_axes_that_lie_apart_run_with_numpy():
    x = f32(3, 4, 5)
    kind, (result,) = run(BACKEND, reduction.ReduceSum(), x, np.array([0, 2], np.int64))
    assert kind == "HostExecution"
    np.testing.assert_allclose(result, x.sum((0, 2), keepdims=True), rtol=1e-5)


def test_a_long_sum_is_accurate():
    x = f32(1 << 20, low=0.0, high=1.0)
    (result,) = native(reduction.ReduceSum(), x, None)
    np.testing.assert_allclose(result, x.sum(dtype=np.float64), rtol=2e-7)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_maximum_with_nan(axis):
    x = f32(3, 5, 40)
    x[1, 2, 33] = np.nan
    (result,) = native(reduction.ReduceMax(keepdims=False), x, np.array([axis], np.int64))
    np.testing.assert_array_equal(result, x.max(axis))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("with_nan", [False, True])
def test_indices_of_extremes(axis, last, with_nan):
    x = np.round(f32(4, 7, 70))
    if with_nan:
        x[1, 2, 33] = x[3, 2, 33] = x[1, 6, 33] = x[1, 2, 60] = np.nan
    for op_class, function in ((reduction.ArgMax, np.argmax), (reduction.ArgMin, np.argmin)):
        (result,) = native(op_class(axis=axis, keepdims=False, select_last_index=last), x)
        expected = x.shape[axis] - 1 - function(np.flip(x, axis), axis) if last else function(x, axis)
        np.testing.assert_array_equal(result, expected)


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_softmax(axis):
    x = f32(3, 5, 70, low=-30.0, high=30.0)
    expected = softmax(x.astype(np.float64), axis)
    np.testing.assert_allclose(native(Softmax(axis=axis), x)[0], expected, rtol=3e-6, atol=1e-30)
    np.testing.assert_allclose(native(LogSoftmax(axis=axis), x)[0], np.log(expected), rtol=1e-6, atol=3e-6)


def test_softmax_with_masked_entries():
    x = np.array([[-np.inf, 1, 2], [5, -np.inf, -np.inf]], np.float32)
    np.testing.assert_allclose(native(Softmax(), x)[0], softmax(x.astype(np.float64), 1), rtol=1e-6)


def standard(x, axes, epsilon):
    x = x.astype(np.float64)
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon), mean, 1 / np.sqrt(variance + epsilon)


@pytest.mark.parametrize("axis", [1, -1])
def test_layer_normalization_with_its_statistics(axis):
    x = f32(4, 6, 37) + 5
    scale, bias = f32(*x.shape[axis:]), f32(*x.shape[axis:])
    y, mean, deviation = standard(x, tuple(range(axis % 3, 3)), 1e-5)
    results = native(normalization.LayerNormalization(axis=axis), x, scale, bias)
    for result, expected in zip(results, (y * scale + bias, mean, deviation), strict=True):
        np.testing.assert_allclose(result, expected, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(native(normalization.LayerNormalization(axis=axis), x, scale)[0], y * scale, rtol=2e-5, atol=2e-5)


def test_rms_normalization():
    x, scale = f32(4, 37) + 1, f32(37)
    expected = x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-5) * scale
    np.testing.assert_allclose(native(normalization.RMSNormalization(), x, scale)[0], expected, rtol=1e-5)


def test_instance_and_group_normalization():
    x, scale, bias = f32(4, 6, 7, 5) + 5, f32(6), f32(6)
    per_channel = scale[:, None, None], bias[:, None, None]
    expected = standard(x, (2, 3), 1e-5)[0] * per_channel[0] + per_channel[1]
    np.testing.assert_allclose(native(normalization.InstanceNormalization(), x, scale, bias)[0], expected, rtol=2e-5, atol=2e-5)
    groups = standard(x.reshape(4, 3, 2, 7, 5), (2, 3, 4), 1e-5)[0].reshape(x.shape)
    result = native(normalization.GroupNormalization(num_groups=3), x, scale, bias)[0]
    np.testing.assert_allclose(result, groups * per_channel[0] + per_channel[1], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("shape", [(4, 6, 7, 5), (4, 6), (0, 6, 3)])
def test_batch_normalization(shape):
    x = f32(*shape)
    scale, bias, mean, variance = f32(6), f32(6), f32(6), f32(6, low=0.1)
    expand = (slice(None), *[None] * (len(shape) - 2))
    expected = (x - mean[expand]) / np.sqrt(variance[expand] + 1e-5) * scale[expand] + bias[expand]
    np.testing.assert_allclose(
        native(normalization.BatchNormalization(), x, scale, bias, mean, variance)[0], expected, rtol=2e-5, atol=2e-5
    )


@pytest.mark.parametrize("size", [1, 4, 5, 100])
def test_local_response_normalization(size):
    x = f32(2, 9, 17, 19)
    squares = x.astype(np.float64) ** 2
    sums = np.stack([squares[:, max(0, c - (size - 1) // 2) : c + size // 2 + 1].sum(1) for c in range(9)], 1)
    expected = x / (2 + 0.3 / size * sums) ** 0.75
    np.testing.assert_allclose(native(normalization.LRN(size=size, alpha=0.3, bias=2.0), x)[0], expected, rtol=3e-6)


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64", "complex128"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gather(dtype, axis):
    x = RNG.integers(0, 100, (7, 7, 7)).astype(dtype)
    for indices in (np.array([[0, 6, -7], [3, -1, 2]], np.int32), np.array(5, np.int64), np.array([], np.int64)):
        (result,) = native(Gather(axis=axis), x, indices, unknown=(1,))
        np.testing.assert_array_equal(result, np.take(x, indices, axis))


@pytest.mark.parametrize("index", [7, -8, 2**40, -(2**63)])
def test_gather_names_an_index_out_of_range(index):
    x, indices = f32(3, 7, 2), np.array([0, index, 1], np.int64)
    with pytest.raises(InputError, match=rf"index {index} is outside \[-7, 7\), the range of axis 1"):
        native(Gather(axis=1), x, indices, unknown=(1,))


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("rotated", [0, 6])
@pytest.mark.parametrize("heads_inside", [False, True])
def test_rotary_embedding(interleaved, rotated, heads_inside):
    x, half = f32(2, 5, 37, 10), (rotated or 10) // 2
    cos, sin, positions = f32(50, half), f32(50, half), RNG.integers(0, 50, (2, 37))
    a, b = (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved else (slice(half), slice(half, 2 * half))
    wanted, c, s = x.copy(), cos[positions][:, None], sin[positions][:, None]
    wanted[..., a], wanted[..., b] = c * x[..., a] - s * x[..., b], s * x[..., a] + c * x[..., b]
    given = x.transpose(0, 2, 1, 3).reshape(2, 37, 50) if heads_inside else x
    op = RotaryEmbedding(interleaved=interleaved, rotary_embedding_dim=rotated, num_heads=5 if heads_inside else 0)
    for operands in ((cos, sin, positions), (cos[positions], sin[positions])):
        (y,) = native(op, given, *operands, unknown=range(1, 1 + len(operands)))
        y = y.reshape(2, 37, 5, 10).transpose(0, 2, 1, 3) if heads_inside else y
        np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("position", [4, -1, 2**40])
def test_rotary_embedding_names_a_position_out_of_range(position):
    positions = np.array([[0, position, 1]])
    with pytest.raises(InputError, match=f"position_ids must be in 0 … 3, not {position}"):
        native(RotaryEmbedding(), f32(1, 2, 3, 8), f32(4, 4), f32(4, 4), positions, unknown=(3,))
