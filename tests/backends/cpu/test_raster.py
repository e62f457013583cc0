"""Native Rasters move every element to its place."""

import itertools

import numpy as np
import pytest

from mnnx.schema.ops.raster import FILL, Raster, Region
from tests.backends.cpu.run import cpu, run

RNG = np.random.default_rng(6)
DTYPES = ["uint8", "int16", "float32", "float64", "complex128"]


def transpose(shape, permutation, dtype):
    """A Raster, its input and the result."""
    x = RNG.integers(0, 100, shape).astype(dtype)
    y = np.ascontiguousarray(x.transpose(permutation))
    strides = [s // x.itemsize for s in x.strides]
    region = Region(0, 0, tuple(strides[p] for p in permutation), 0, tuple(s // y.itemsize for s in y.strides), y.shape)
    return Raster(x.dtype, y.shape, [region]), x, y


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
def test_transposes(dtype, threads):
    backend = cpu(threads)
    for shape in [(3, 2, 5, 21), (1, 4, 70, 130)]:
        for permutation in itertools.permutations(range(4)):
            raster, x, y = transpose(shape, permutation, dtype)
            kind, (result,) = run(backend, raster, x)
            assert kind == "RasterExecution"
            np.testing.assert_array_equal(result, y)


@pytest.mark.parametrize("dtype", DTYPES)
def test_regions_of_several_sources_with_fill_and_reversed_order(dtype):
    a, b = RNG.integers(1, 100, (6, 50)).astype(dtype), RNG.integers(1, 100, (6, 7)).astype(dtype)
    y = np.concatenate([a[:, ::-1], np.full((6, 3), 9, dtype), b[:, :1].repeat(4, axis=1), b[:, ::3]], axis=1)
    width = y.shape[1]
    regions = [
        Region(0, 49, (50, -1), 0, (width, 1), (6, 50)),
        Region(FILL, 0, (0, 0), 50, (width, 1), (6, 3)),
        Region(1, 0, (7, 0), 53, (width, 1), (6, 4)),
        Region(1, 0, (7, 3), 57, (width, 1), (6, 3)),
    ]
    result = run(cpu(2), Raster(y.dtype, y.shape, regions, np.array(9, dtype)), a, b)[1][0]
    np.testing.assert_array_equal(result, y)


def test_strided_targets():
    a, b = RNG.random((40, 33), np.float32), RNG.random((40, 33), np.float32)
    regions = [Region(source, 0, (33, 1), source, (66, 2), (40, 33)) for source in (0, 1)]
    result = run(cpu(2), Raster(a.dtype, (40, 33, 2), regions), a, b)[1][0]
    np.testing.assert_array_equal(result, np.stack([a, b], axis=-1))


def test_one_long_run_is_shared_by_threads():
    x = RNG.random(300_000, np.float32)
    result = run(cpu(2), Raster(x.dtype, x.shape, [Region(0, 0, (1,), 0, (1,), x.shape)]), x)[1][0]
    np.testing.assert_array_equal(result, x)


def test_a_scalar_and_an_empty_tensor():
    backend = cpu()
    x = np.array(3.5, np.float32)
    assert run(backend, Raster(x.dtype, (), [Region(0, 0, (1,), 0, (1,), (1,))]), x)[1][0] == 3.5
    assert run(backend, Raster(x.dtype, (0, 3), []))[1][0].shape == (0, 3)
