"""What no row of the case table tries: integers of all widths at their edges, many inputs, deep broadcasting, narrow storage."""

import ml_dtypes
import numpy as np
import pytest

from mnnx.backends.elementwise import evaluate
from mnnx.schema.ops import activation, arithmetic, comparison
from mnnx.schema.ops.base import Op, Spec
from mnnx.schema.ops.cast import BitCast, Cast
from mnnx.schema.ops.quantization import DynamicQuantizeLinear
from tests.backends.gpu.run import gpu, run
from tests.devices import GPU_BACKENDS

_INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def _numbers(dtype: str, count: int = 400) -> np.ndarray:
    """Edges and random numbers of all magnitudes."""
    info, rng = np.iinfo(dtype), np.random.default_rng(11)
    edges = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3, 5, 31, 32, 33, 63, 64]
    edges += [] if info.min == 0 else [-1, -2, -7]
    edges += [(1 << k) + d for k in (24, 31, 32, 33, 53) for d in (-1, 0, 1) if (1 << k) + d <= info.max]
    bits = rng.integers(0, 8 * np.dtype(dtype).itemsize, count)
    wide = rng.integers(0, 1 << 63, count, dtype=np.uint64) >> (63 - bits).astype(np.uint64)
    signs = rng.integers(0, 2, count) * (info.min < 0)
    random = np.where(signs == 1, -wide.astype(np.int64), wide.astype(np.int64)).astype(dtype)
    return np.concatenate([np.array(edges, dtype), random])


_BINARY = [
    arithmetic.Add(), arithmetic.Sub(), arithmetic.Mul(), arithmetic.Div(), arithmetic.Mod(), arithmetic.Mod(fmod=True), arithmetic.Max(),
    arithmetic.Min(), comparison.Less(), comparison.LessOrEqual(), comparison.Equal(), comparison.Greater(), comparison.BitwiseXor(),
    comparison.BitShift(direction="LEFT"), comparison.BitShift(direction="RIGHT"),
]  # fmt: skip


@pytest.mark.parametrize("op", _BINARY, ids=str)
@pytest.mark.parametrize("backend", GPU_BACKENDS)
def test_integers_of_all_widths_wrap_as_on_the_host(backend: str, op: Op) -> None:
    device, tried = gpu(backend), 0
    for dtype in _INTEGERS:
        a, b = _numbers(dtype)[:, None], _numbers(dtype, 20)[None]
        specs = [_spec(a), _spec(b)]
        if device.supports(op, specs, op.infer_all(*specs)) is None:
            tried += 1
            with np.errstate(all="ignore"):
                np.testing.assert_array_equal(run(device, op, a, b)[0][1][0], evaluate(op, a, b), dtype)
    assert tried


def _spec(array: np.ndarray) -> Spec:
    return Spec(array.dtype, array.shape)


@pytest.mark.parametrize("source", [*_INTEGERS, "float32", "bool"])
@pytest.mark.parametrize("backend", GPU_BACKENDS)
def test_casts_agree_with_numpy(backend: str, source: str) -> None:
    device = gpu(backend)
    if source == "float32":
        x = np.concatenate([np.random.default_rng(2).standard_normal(300) * 50, [0.5, -0.5, 2.0**40, -(2.0**40), 126.9]])
        x = x.astype(np.float32)
    else:
        x = np.array([True, False, True]) if source == "bool" else _numbers(source)
    for target in (*_INTEGERS, "float32", "float16", "bool"):
        op, within = Cast(to=np.dtype(target)), x
        if source == "float32" and target in _INTEGERS:  # others may become any value
            info = np.iinfo(target)
            within = x[(x > info.min) & (x < min(info.max, 1e13))]
        with np.errstate(all="ignore"):
            wanted = within.astype(target)
        if device.supports(op, [_spec(within)], [_spec(wanted)]) is None:
            np.testing.assert_array_equal(run(device, op, within)[0][1][0], wanted, target)


@pytest.mark.parametrize("backend", GPU_BACKENDS)
def test_bfloat16_is_rounded_to_even(backend: str) -> None:
    device = gpu(backend)
    x = np.random.default_rng(4).standard_normal(500).astype(np.float32)
    x = np.concatenate([x, np.array([np.inf, -np.inf, 0.0, 1.00390625, 1.01171875, 3.4e38], np.float32)])
    op = Cast(to=np.dtype(ml_dtypes.bfloat16))
    wanted = x.astype(ml_dtypes.bfloat16)
    if device.supports(op, [_spec(x)], [_spec(wanted)]) is not None:
        pytest.skip("not compiled ahead of time")
    np.testing.assert_array_equal(run(device, op, x)[0][1][0].astype(np.float32), wanted.astype(np.float32))


@pytest.mark.parametrize("precision", ["high", "low"])
@pytest.mark.parametrize("op", [arithmetic.Max(), arithmetic.Min(), arithmetic.Sum(), arithmetic.Mean()], ids=str)
@pytest.mark.parametrize("backend", GPU_BACKENDS)
def test_many_inputs_are_combined(backend: str, op: Op, precision: str) -> None:
    rng = np.random.default_rng(6)
    shapes = [(3, 5, 4, 4), (1, 5, 1, 1), (), (3, 5, 4, 4), (4,), (1, 1, 4, 4), (3, 1, 1, 1), (3, 5, 4, 4)]
    inputs = [np.asarray(rng.standard_normal(shape), np.float32) for shape in shapes]
    wide = np.broadcast_arrays(*(a.astype(np.float64) for a in inputs))
    wanted = {"Max": np.max, "Min": np.min, "Sum": np.sum, "Mean": np.mean}[op.name](wide, axis=0)
    tolerance = 1e-2 if precision == "low" else 1e-5
    for _, (y,) in run(gpu(backend, precision), op, *inputs):
        np.testing.assert_allclose(y, wanted, tolerance, tolerance)


@pytest.mark.parametrize("backend", GPU_BACKENDS)
def test_a_result_takes_an_inputs_place_only_where_both_are_as_wide(backend: str) -> None:
    x = np.arange(9, dtype=np.float32)
    ((_, (y,)),) = run(gpu(backend, "low"), arithmetic.Add(), x, x, in_place=True)
    np.testing.assert_array_equal(y, 2 * x)
    device = gpu(backend, "low")
    execution = device.create(Cast(to=np.dtype(np.int32)), [_spec(x)], [_spec(x.astype(np.int32))])
    assert execution.in_place == ()


@pytest.mark.parametrize("precision", ["high", "low"])
@pytest.mark.parametrize("backend", GPU_BACKENDS)
def test_float_bits_are_those_of_float32_however_it_is_stored(backend: str, precision: str) -> None:
    x = np.array([1.0, -2.5, 0.0], np.float32)
    device = gpu(backend, precision)
    np.testing.assert_array_equal(run(device, BitCast(to=np.dtype(np.int32)), x)[0][1][0], x.view(np.int32))
    np.testing.assert_array_equal(run(device, BitCast(to=np.dtype(np.float32)), x.view(np.uint32))[0][1][0], x)


def _fma(a: np.ndarray, b: np.ndarray | float, c: float) -> np.ndarray:
    """In float32, from float64, whose product of two float32 is exact."""
    return (np.float64(a) * np.float64(np.float32(b)) + np.float64(np.float32(c))).astype(np.float32)


@pytest.mark.parametrize("backend", GPU_BACKENDS)
def test_sigmoids_round_as_those_of_other_runtimes(backend: str) -> None:
    """Bit for bit Eigen's fit, evaluated with fused multiply-adds: quantized networks amplify a single other rounding."""
    v = np.random.default_rng(5).normal(0, 4, 20_000).astype(np.float32)
    x = np.clip(v, np.float32(-18), np.float32(18))
    s = x * x
    p, q = _fma(s, 4.37031012579801e-11, 1.15627324459942e-07), _fma(s, 6.10247389755681e-13, 5.76102136993427e-09)
    for coefficient in (6.08574864600143e-05, 8.51377133304701e-03, 2.48287947061529e-01):
        p = _fma(p, s, coefficient)
    for coefficient in (6.29106785017040e-06, 1.70198817374094e-03, 1.16817656904453e-01, 9.93151921023180e-01):
        q = _fma(q, s, coefficient)
    wanted = np.clip(p * x / q + np.float32(0.5), 0, 1)
    ((_, (y,)),) = run(gpu(backend), activation.Sigmoid(), v)
    assert np.mean(y != wanted) < 1e-4  # float64 sums round twice, now and then
    np.testing.assert_allclose(y, wanted, 2e-7)


@pytest.mark.parametrize("backend", GPU_BACKENDS)
def test_ranges_of_quantization_are_divided_exactly(backend: str) -> None:
    for seed in range(20):
        x = np.random.default_rng(seed).normal(0, 3, 50).astype(np.float32)
        ((_, (_, scale, _)),) = run(gpu(backend), DynamicQuantizeLinear(), x)
        assert scale == (x.max() - x.min()) / np.float32(255)
