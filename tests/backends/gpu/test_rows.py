"""Reductions, softmax and normalizations on GPUs: long rows, many rows and few, against float64."""

from __future__ import annotations

import math

import numpy as np
import pytest

import mnnx
from mnnx.schema.ops import reduction
from mnnx.schema.ops.activation import LogSoftmax, Softmax
from mnnx.schema.ops.normalization import GroupNormalization, InstanceNormalization, LayerNormalization, LpNormalization
from mnnx.schema.writer import serialize
from tests.backends.gpu.test_products import assert_near, floats, run
from tests.op_model import model_of

#: A shape, and axes of it: few long rows, many short ones, columns, axes that lie apart, all.
REDUCED = [
    ((1_000_003,), (0,)),
    ((3, 40_000), (1,)),
    ((9000, 33), (1,)),
    ((70_000, 6), (0,)),
    ((50, 64, 48), (1,)),
    ((5, 7, 9, 64), (0, 2)),
    ((6, 31, 17, 5), (1, 3)),
    ((2, 300, 320), (0, 1, 2)),
]
FUNCTIONS = {
    reduction.ReduceSum: np.sum,
    reduction.ReduceMean: np.mean,
    reduction.ReduceMax: np.max,
    reduction.ReduceMin: np.min,
    reduction.ReduceL1: lambda x, axis: np.abs(x).sum(axis),
    reduction.ReduceL2: lambda x, axis: np.sqrt((x * x).sum(axis)),
    reduction.ReduceSumSquare: lambda x, axis: (x * x).sum(axis),
    reduction.ReduceLogSum: lambda x, axis: np.log(x.sum(axis)),
    reduction.ReduceLogSumExp: lambda x, axis: np.log(np.exp(x).sum(axis)),
}


@pytest.mark.parametrize(("shape", "axes"), REDUCED, ids=str)
@pytest.mark.parametrize("op_class", FUNCTIONS, ids=lambda op_class: op_class.name)
def test_a_reduction_is_that_of_its_rows(gpu: str, op_class: type, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x = floats(0, *shape) + np.float32(0.5)
    got = run(gpu, "high", op_class(keepdims=False), x, np.array(axes, np.int64), constant=frozenset({1}))
    assert_near(got, FUNCTIONS[op_class](x.astype(np.float64), axis=axes), "high")


def test_a_sum_of_halves_is_made_of_floats(gpu: str) -> None:
    x = np.full((3, 20_000), 0.25, np.float32)
    got = run(gpu, "low", reduction.ReduceSum(keepdims=False), x, np.array([1], np.int64), constant=frozenset({1}))
    np.testing.assert_array_equal(got, np.full(3, 5000.0))


def test_a_largest_of_many_is_nan_where_one_is(gpu: str) -> None:
    x = floats(0, 2, 30_000)
    x[1, 17_011] = np.nan
    got = run(gpu, "high", reduction.ReduceMax(keepdims=False), x, np.array([1], np.int64), constant=frozenset({1}))
    np.testing.assert_array_equal(got, [x[0].max(), np.nan])


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(("shape", "axis"), [((2, 5003), 1), ((20_000, 7), 1), ((300, 5), 0)], ids=str)
def test_the_index_of_an_extreme_is_the_first_or_last(gpu: str, last: bool, shape: tuple[int, ...], axis: int) -> None:
    x = np.round(floats(0, *shape) * 20).astype(np.float32)
    got = run(gpu, "high", reduction.ArgMax(axis=axis, keepdims=False, select_last_index=last), x)
    wanted = x.shape[axis] - 1 - np.flip(x, axis).argmax(axis) if last else x.argmax(axis)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("precision", ["high", "low"])
@pytest.mark.parametrize("logarithm", [False, True])
@pytest.mark.parametrize(("shape", "axis"), [((2, 5001), 1), ((3, 4096), 1), ((9001, 48), 1), ((7, 900, 64), 1), ((5, 33, 7), 1)], ids=str)
def test_softmax_is_that_of_its_rows(gpu: str, precision: str, logarithm: bool, shape: tuple[int, ...], axis: int) -> None:
    x = floats(0, *shape) * np.float32(4)
    x = x.astype(np.float16).astype(np.float32)  # the same in both precisions
    e = np.exp(x.astype(np.float64))
    wanted = e / e.sum(axis, keepdims=True)
    got = run(gpu, precision, LogSoftmax(axis=axis) if logarithm else Softmax(axis=axis), x)
    assert_near(got, np.log(wanted) if logarithm else wanted, precision)


@pytest.mark.parametrize("precision", ["high", "low"])
@pytest.mark.parametrize(("shape", "axis"), [((2, 5001), 1), ((130, 384), 1), ((9000, 20), 1), ((4, 6, 35, 16), 2)], ids=str)
def test_layer_normalization_is_that_of_its_rows(gpu: str, precision: str, shape: tuple[int, ...], axis: int) -> None:
    n = math.prod(shape[axis:])
    x, scale, bias = floats(0, *shape), floats(1, *shape[axis:]), floats(2, *shape[axis:])
    got = run(gpu, precision, LayerNormalization(axis=axis), x, scale, bias)
    rows = x.astype(np.float64).reshape(-1, n)
    rows = (rows - rows.mean(1, keepdims=True)) / np.sqrt(rows.var(1, keepdims=True) + 1e-5)
    assert_near(got, rows.reshape(shape) * scale + bias, precision)


def test_layer_normalization_bears_a_large_mean(gpu: str) -> None:
    x = floats(0, 5, 1000) + np.float32(1000)
    got = run(gpu, "high", LayerNormalization(), x, np.ones(1000, np.float32))
    rows = x.astype(np.float64)
    wanted = (rows - rows.mean(1, keepdims=True)) / np.sqrt(rows.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-3)


@pytest.mark.parametrize("precision", ["high", "low"])
@pytest.mark.parametrize("groups", [0, 3])
@pytest.mark.parametrize("pixels", [(8, 10), (7, 9), (96, 96)], ids=str)
def test_channels_are_normalized_by_their_group(gpu: str, precision: str, groups: int, pixels: tuple[int, int]) -> None:
    x, scale, bias = floats(0, 2, 21, *pixels), floats(1, 21), floats(2, 21)
    op = GroupNormalization(num_groups=groups) if groups else InstanceNormalization()
    got = run(gpu, precision, op, x, scale, bias, constant=frozenset({1, 2}))
    rows = x.astype(np.float64).reshape(2 * (groups or 21), -1)
    rows = (rows - rows.mean(1, keepdims=True)) / np.sqrt(rows.var(1, keepdims=True) + 1e-5)
    assert_near(got, rows.reshape(x.shape) * scale[:, None, None] + bias[:, None, None], precision)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize(("shape", "axis"), [((3, 2001), 1), ((4, 50, 16), 1)], ids=str)
def test_rows_are_divided_by_their_norm(gpu: str, p: int, shape: tuple[int, ...], axis: int) -> None:
    x = floats(0, *shape)
    norm = (np.abs(x.astype(np.float64)) ** p).sum(axis, keepdims=True) ** (1 / p)
    assert_near(run(gpu, "high", LpNormalization(axis=axis, p=p), x), x / norm, "high")


@pytest.mark.parametrize("op_class", [reduction.CumSum, reduction.CumProd], ids=lambda op_class: op_class.name)
@pytest.mark.parametrize(("exclusive", "reverse"), [(False, False), (True, False), (False, True), (True, True)])
def test_running_results_go_along_their_axis(gpu: str, op_class: type, exclusive: bool, reverse: bool) -> None:
    x = floats(0, 3, 40, 5) + np.float32(1)
    got = run(gpu, "high", op_class(exclusive=exclusive, reverse=reverse), x, np.array(1, np.int64), constant=frozenset({1}))
    function = np.cumsum if op_class is reduction.CumSum else np.cumprod
    rows = np.flip(x, 1) if reverse else x
    wanted = function(rows.astype(np.float64), 1)
    if exclusive:
        first = np.full_like(wanted[:, :1], 0 if op_class is reduction.CumSum else 1)
        wanted = np.concatenate([first, wanted[:, :-1]], 1)
    assert_near(got, np.flip(wanted, 1) if reverse else wanted, "high")


def test_a_row_of_one_statistic_is_enough(gpu: str) -> None:
    x, scale = floats(0, 4, 50), floats(1, 50)
    with mnnx.Interpreter.from_bytes(serialize(model_of(LayerNormalization(), (x, scale), 3))) as interpreter:
        session = interpreter.create_session(mnnx.ScheduleConfig(backend=gpu, num_threads=1))
        got = session.run({"i0": x, "i1": scale}, outputs=["o2"])["o2"]
    np.testing.assert_allclose(got, 1 / np.sqrt(x.astype(np.float64).var(1, keepdims=True) + 1e-5), rtol=1e-5)
