"""Poolings and Resize in both layouts and precisions, against loops in float64."""

import itertools

import numpy as np
import pytest

from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.base import Op, Spec
from mnnx.schema.ops.normalization import LpNormalization
from mnnx.schema.ops.pooling import AveragePool, GlobalAveragePool, GlobalMaxPool, MaxPool
from mnnx.schema.ops.resize import Resize
from tests.backends.gpu.run import gpu, run
from tests.devices import GPU_BACKENDS

_POOLS = [
    MaxPool(kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
    MaxPool(kernel_shape=(2, 3), dilations=(2, 1), ceil_mode=True, strides=(2, 3)),
    AveragePool(kernel_shape=(3, 3), pads=(1, 1, 1, 1)),
    AveragePool(kernel_shape=(3, 2), pads=(1, 0, 2, 1), strides=(2, 2), count_include_pad=True, ceil_mode=True),
    AveragePool(kernel_shape=(2, 2), dilations=(3, 2), pads=(1, 1, 1, 1)),
]


def _images(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape).astype(np.float32)


def _pooled(op: Op, x: np.ndarray) -> np.ndarray:
    g = op.geometry(x.shape)
    y = np.zeros((*x.shape[:2], *g.output))
    for place in itertools.product(*map(range, g.output)):
        starts = [p * s - b for p, s, b in zip(place, g.strides, g.begin, strict=True)]
        places = [[start + k * d for k in range(n)] for start, n, d in zip(starts, g.kernel, g.dilations, strict=True)]
        inside = [p for p in itertools.product(*places) if all(0 <= i < n for i, n in zip(p, g.input, strict=True))]
        values = np.stack([x[(..., *p)].astype(np.float64) for p in inside])
        if isinstance(op, MaxPool):
            y[(..., *place)] = values.max(0)
            continue
        ends = [n + e for n, e in zip(g.input, g.end, strict=True)]
        padded = [p for p in itertools.product(*places) if all(-b <= i < e for i, b, e in zip(p, g.begin, ends, strict=True))]
        y[(..., *place)] = values.sum(0) / len(padded if op.count_include_pad else inside)
    return y


def _assert_all_agree(backend: str, precision: str, op: Op, wanted: np.ndarray, *inputs: np.ndarray | None, ways: int) -> None:
    constants = tuple(range(1, len(inputs)))
    found = run(gpu(backend, precision), op, *inputs, constants=constants)
    assert len(found) == ways
    tolerance = 5e-3 if precision == "low" else 2e-5
    for _, (y, *_rest) in found:
        np.testing.assert_allclose(y, wanted, tolerance, tolerance)


@pytest.mark.parametrize("precision", ["high", "low"])
@pytest.mark.parametrize("op", _POOLS, ids=str)
@pytest.mark.parametrize("backend", GPU_BACKENDS)
def test_windows_are_pooled_in_both_layouts(backend: str, op: Op, precision: str) -> None:
    x = _images(2, 19, 9, 10)
    found = run(gpu(backend, precision), op, x)
    for _, outputs in found:
        tolerance = 5e-3 if precision == "low" else 2e-5
        np.testing.assert_allclose(outputs[0], _pooled(op, x), tolerance, tolerance)


@pytest.mark.parametrize("shape", [(2, 5, 7), (1, 6, 4, 5, 6)])
@pytest.mark.parametrize("backend", GPU_BACKENDS)
def test_lines_and_volumes_are_pooled_in_both_layouts(backend: str, shape: tuple[int, ...]) -> None:
    x, dims = _images(*shape), len(shape) - 2
    op = AveragePool(kernel_shape=(2,) * dims, strides=(2,) * dims, pads=(1,) * 2 * dims)
    _assert_all_agree(backend, "high", op, _pooled(op, x), x, ways=2)


@pytest.mark.parametrize("precision", ["high", "low"])
@pytest.mark.parametrize("shape", [(2, 19, 7, 9), (1, 3, 1, 1), (3, 33, 40), (1, 7, 3, 4, 5)])
@pytest.mark.parametrize("backend", GPU_BACKENDS)
def test_channels_are_pooled_whole_in_both_layouts(backend: str, shape: tuple[int, ...], precision: str) -> None:
    x, axes = _images(*shape), tuple(range(2, len(shape)))
    _assert_all_agree(backend, precision, GlobalAveragePool(), x.astype(np.float64).mean(axes, keepdims=True), x, ways=2)
    _assert_all_agree(backend, precision, GlobalMaxPool(), x.max(axes, keepdims=True), x, ways=2)


@pytest.mark.parametrize("backend", GPU_BACKENDS)
def test_windows_that_see_no_pixel_of_odd_channels_stay_plain(backend: str) -> None:
    op = MaxPool(kernel_shape=(2,), dilations=(4,), pads=(1, 1))
    ((way, outputs),) = run(gpu(backend), op, _images(1, 3, 3))
    assert not any(way.outputs)
    assert np.isneginf(outputs[0]).all()


@pytest.mark.parametrize("precision", ["high", "low"])
@pytest.mark.parametrize(
    "op",
    [
        Resize(mode="linear"),
        Resize(mode="linear", coordinate_transformation_mode="align_corners"),
        Resize(mode="cubic", coordinate_transformation_mode="asymmetric", exclude_outside=True),
        Resize(mode="linear", antialias=True),
        Resize(mode="nearest", nearest_mode="ceil"),
        Resize(mode="nearest", coordinate_transformation_mode="align_corners"),
    ],
    ids=str,
)
@pytest.mark.parametrize("backend", GPU_BACKENDS)
def test_images_are_resized_in_both_layouts(backend: str, op: Resize, precision: str) -> None:
    x = _images(2, 19, 5, 8)
    sizes = np.array([2, 19, 7, 5], np.int64)
    wanted = x.astype(np.float64)
    for axis, scaling in enumerate(op.scalings(Spec(x.dtype, x.shape), None, None, Spec.of(sizes))):
        taps = op.taps(scaling)
        if taps is not None:
            matrix = np.zeros((scaling.size, scaling.dim))
            weights = np.ones(taps.index.shape) if taps.weights is None else taps.weights
            np.add.at(matrix, (np.arange(scaling.size)[:, None], taps.index), weights)
            wanted = np.moveaxis(np.tensordot(matrix, wanted, (1, axis)), 0, axis)
    _assert_all_agree(backend, precision, op, wanted, x, None, None, sizes, ways=2)


@pytest.mark.parametrize("channels", [3, 32])
def test_the_largest_pixel_is_nan_where_there_is_one(session_of, gpu: str, channels: int) -> None:
    model = f"""<ir_version: 10, opset_import: ["": 21]>
    main (float[1, {channels}, 6, 6] x) => (float[1, {channels}, 3, 3] y, float[1, {channels}, 1, 1] z)
    {{ y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x) z = GlobalMaxPool(x) }}"""
    x = np.random.default_rng(0).standard_normal((1, channels, 6, 6)).astype(np.float32)
    x[0, 1, 2, 3] = np.nan
    x[0, 2, 5, 5] = np.inf
    result = session_of(model, backend=gpu).run({"x": x})
    np.testing.assert_array_equal(result["y"], x.reshape(1, channels, 3, 2, 3, 2).max((3, 5)))
    np.testing.assert_array_equal(result["z"], x.max((2, 3), keepdims=True))


@pytest.mark.parametrize("precision", ["high", "low"])
@pytest.mark.parametrize("backend", GPU_BACKENDS)
def test_the_largest_is_nan_where_one_is(backend: str, precision: str) -> None:
    x = _images(1, 19, 9, 10)
    x[0, :, 4, 5] = np.nan
    windows = np.zeros((1, 19, 9, 10), bool)
    windows[:, :, 3:6, 4:7] = True
    pool = MaxPool(kernel_shape=(3, 3), pads=(1, 1, 1, 1))
    for _, (y, *_rest) in run(gpu(backend, precision), pool, x):
        np.testing.assert_array_equal(np.isnan(y), windows)
    for _, (y, *_rest) in run(gpu(backend, precision), GlobalMaxPool(), x):
        assert np.isnan(y).all()


@pytest.mark.parametrize("backend", GPU_BACKENDS)
def test_the_place_of_the_largest_is_that_of_a_nan(backend: str) -> None:
    x = _images(1, 2, 4, 4)
    x[0, 1, 2, 1] = x[0, 1, 3, 3] = np.nan
    op, device = MaxPool(kernel_shape=(4, 4)), gpu(backend)
    results = op.infer_all(Spec(x.dtype, x.shape))
    specs, results = [Spec(x.dtype, x.shape)], [results[0], Spec(np.dtype(np.int64), results[0].shape)]
    tensors = [DeviceTensor("", spec, device, device.allocate(spec.nbytes)) for spec in (*specs, *results)]
    tensors[0].copy_from_host(x)
    commands = device.new_commands()
    device.create(op, specs, results).on_resize(tensors[:1], tensors[1:], None)
    commands.submit(0, len(commands))
    y, index = (tensor.copy_to_host() for tensor in tensors[1:])
    np.testing.assert_array_equal(np.isnan(y).ravel(), [False, True])
    np.testing.assert_array_equal(index.ravel(), [x[0, 0].argmax(), 16 + 9])


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("backend", GPU_BACKENDS)
def test_a_row_with_nan_has_no_norm(backend: str, order: int) -> None:
    x = _images(3, 32)
    x[1, 7] = np.nan
    for _, (y,) in run(gpu(backend), LpNormalization(axis=-1, p=order), x):
        np.testing.assert_array_equal(np.isnan(y), [[False], [True], [False]] * np.ones((1, 32), bool))
