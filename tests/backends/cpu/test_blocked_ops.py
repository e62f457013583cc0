"""Executions on blocked tensors against the ops' NumPy executions."""

import numpy as np
import pytest

from mnnx.backends import host
from mnnx.backends.blocked import block, blocked_shape, unblock
from mnnx.backends.cpu.arguments import array_of
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops import activation, arithmetic, comparison, normalization, pooling, reduction
from mnnx.schema.ops.base import Op, Spec
from mnnx.schema.ops.repack import Repack
from mnnx.schema.ops.resize import Resize
from tests.backends.cpu.blocked import run_blocked
from tests.backends.cpu.run import cpu

RNG = np.random.default_rng(11)
BACKEND = cpu(2)
LANES = BACKEND.block_width


def f32(*shape, low=-3.0, high=3.0):
    return RNG.uniform(low, high, shape).astype(np.float32)


def scalar(value):
    return np.array(value, np.float32)


def check(op: Op, *inputs, constants=(), rtol=2e-5, atol=2e-5):
    runs = run_blocked(BACKEND, op, *inputs, constants=constants)
    expected = host.run(op, list(inputs))[0]
    assert runs
    for way, result in runs:
        assert result.dtype == expected.dtype
        np.testing.assert_allclose(result, expected, rtol=rtol, atol=atol, err_msg=str(way))


def refuses(op: Op, *inputs, constants=()):
    assert not run_blocked(BACKEND, op, *inputs, constants=constants)


SHAPES = [
    (1, 1, 40, 41),
    (2, 2 * LANES + 3, 5, 7),
    (1, 4 * LANES, 1, 1),
    (3, 2 * LANES, 300),
    (2, 5, 3, 2, 4),
    (1, 8 * LANES + 1, 1, 1),
    (1, 5, 600),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_repack(shape):
    x, spec = f32(*shape), Spec(np.dtype(np.float32), shape)
    wide = int(np.prod(blocked_shape(shape, LANES))) * 4
    plain, blocked, back = (
        DeviceTensor("", spec, BACKEND, BACKEND.allocate(n), layout=layout) for n, layout in ((x.nbytes, 0), (wide, LANES), (x.nbytes, 0))
    )
    plain.copy_from_host(x)
    blocked.memory.view(np.float32)[:] = np.nan
    commands = BACKEND.new_commands()
    for source, target in ((plain, blocked), (blocked, back)):
        BACKEND.create(Repack(), [spec], [spec]).on_resize([source], [target], None)
    commands.submit(0, len(commands))
    np.testing.assert_array_equal(array_of(blocked), block(x, LANES))
    np.testing.assert_array_equal(back.copy_to_host(), x)
    np.testing.assert_array_equal(blocked.copy_to_host(), x)
    np.testing.assert_array_equal(unblock(block(x, LANES), shape[1]), x)


C = 2 * LANES + 3
#: Shapes of a second operand, and whether it is a weight.
OPERANDS = [
    ((2, C, 5, 7), False), ((2, C, 5, 7), True), ((1, C, 5, 7), True), ((C, 1, 1), True), ((1, C, 1, 1), True), ((2, C, 1, 1), False),
    ((1, C, 1, 1), False), ((), True), ((), False), ((1,), False), ((2, 1, 5, 7), False), ((1, 1, 7), False), ((5, 7), True), ((7,), True),
    ((2, C, 5, 1), False), ((1, C, 1, 7), True),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "constant"), OPERANDS, ids=str)
def test_operands_that_broadcast(shape, constant):
    for op in (arithmetic.Mul(), arithmetic.Sub()):
        check(op, f32(2, C, 5, 7), f32(*shape), constants=(1,) if constant else ())
        check(op, f32(*shape), f32(2, C, 5, 7), constants=(0,) if constant else ())


def test_operands_that_have_no_place():
    refuses(arithmetic.Mul(), f32(2, C, 5, 7), f32(C, 1, 1))  # no blocked layout: it has no batch
    refuses(arithmetic.Mul(), f32(2, C), f32(2, C))
    refuses(arithmetic.Mul(), f32(2, C, 5, 7).astype(np.float64), f32(2, C, 5, 7).astype(np.float64))
    refuses(comparison.Less(), f32(2, C, 5, 7), f32(2, C, 5, 7))


@pytest.mark.parametrize(
    "op",
    [
        activation.Relu(), activation.LeakyRelu(alpha=0.1), activation.Elu(), activation.HardSigmoid(), activation.HardSwish(),
        activation.Sigmoid(), activation.Softplus(), activation.Gelu(), activation.Mish(), activation.Swish(), activation.Softsign(),
        arithmetic.Neg(), arithmetic.Abs(), arithmetic.Erf(), arithmetic.Tanh(), arithmetic.Floor(), arithmetic.Sin(),
    ],
    ids=lambda op: op.name,
)  # fmt: skip
def test_activation(op):
    check(op, f32(2, C, 5, 7))


def test_attributes_and_other_operands():
    check(arithmetic.Clip(), f32(2, C, 5, 7), scalar(0), scalar(1), constants=(1, 2))
    check(arithmetic.Clip(), f32(2, C, 5, 7), None, scalar(1), constants=(2,))
    check(activation.PRelu(), f32(2, C, 5, 7), f32(C, 1, 1), constants=(1,))
    check(arithmetic.Sum(), f32(2, C, 5, 7), f32(1, C, 1, 1), f32(2, C, 5, 7))
    check(arithmetic.Div(), f32(2, C, 5, 7), scalar(3), constants=(1,))
    check(arithmetic.Pow(), f32(2, C, 5, 7), scalar(2), constants=(1,))


@pytest.mark.parametrize("op", [arithmetic.Sqrt(), arithmetic.Log(), arithmetic.Reciprocal(), arithmetic.Exp()], ids=lambda op: op.name)
def test_ops_that_could_overflow_run_only_on_whole_blocks(op):
    refuses(op, f32(2, C, 5, 7, low=0.1))
    check(op, f32(2, 2 * LANES, 5, 7, low=0.1))


def test_division_by_unknown_lanes():
    refuses(arithmetic.Div(), f32(2, C, 5, 7), f32(2, C, 5, 7, low=0.1))
    refuses(arithmetic.Div(), f32(2, C, 5, 7), f32(C, 1, 1, low=0.1), constants=(1,))
    check(arithmetic.Div(), f32(2, 2 * LANES, 5, 7), f32(2, 2 * LANES, 5, 7, low=0.1))


WINDOWS = [
    {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)},
    {"kernel_shape": (2, 2), "strides": (2, 2)},
    {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)},
    {"kernel_shape": (3, 2), "strides": (2, 1), "pads": (1, 0, 1, 1), "dilations": (2, 1)},
    {"kernel_shape": (3, 3), "strides": (2, 2), "ceil_mode": 1},
    {"kernel_shape": (5, 5), "strides": (3, 3), "pads": (2, 2, 2, 2), "ceil_mode": 1},
]


@pytest.mark.parametrize("shape", [(2, C, 13, 17), (1, 2 * LANES, 7, 7), (1, LANES, 6, 40)], ids=str)
@pytest.mark.parametrize("window", WINDOWS, ids=lambda w: "x".join(map(str, w["kernel_shape"])))
def test_pooling(shape, window):
    check(pooling.MaxPool(**window), f32(*shape))
    check(pooling.AveragePool(**window), f32(*shape))
    check(pooling.AveragePool(count_include_pad=1, **window), f32(*shape))


def test_pooling_of_one_and_three_dims():
    check(pooling.MaxPool(kernel_shape=(3,), strides=(2,), pads=(1, 1)), f32(2, C, 36))
    check(pooling.AveragePool(kernel_shape=(3, 3, 2), strides=(2, 2, 1), pads=(1, 1, 0, 1, 1, 1)), f32(2, C, 6, 7, 8))


def test_maximum_with_nan():
    x = f32(1, C, 6, 6)
    x[0, 3, 2, 2] = np.nan
    check(pooling.GlobalMaxPool(), x)
    ((_, result),) = run_blocked(BACKEND, pooling.MaxPool(kernel_shape=(3, 3)), x)
    assert np.isnan(result[0, 3, :3, :3]).all()
    assert np.isnan(result).sum() == 9


@pytest.mark.parametrize("shape", [(2, C, 7, 9), (1, 4 * LANES, 7, 7), (1, LANES, 1, 3), (1, 3, 300)], ids=str)
def test_whole_images(shape):
    axes = np.arange(2, len(shape))
    check(pooling.GlobalAveragePool(), f32(*shape))
    check(pooling.GlobalMaxPool(), f32(*shape))
    for op_class in (reduction.ReduceMean, reduction.ReduceSum, reduction.ReduceMax):
        check(op_class(), f32(*shape), axes, constants=(1,))
        if shape[1] % LANES == 0:
            check(op_class(keepdims=False), f32(*shape), axes, constants=(1,))
        else:
            refuses(op_class(keepdims=False), f32(*shape), axes, constants=(1,))
    refuses(reduction.ReduceMean(), f32(*shape), np.array([1]), constants=(1,))


def test_batch_normalization():
    parameters = f32(C), f32(C), f32(C), f32(C, low=0.1)
    for shape in ((2, C, 7, 9), (1, C, 50)):
        check(normalization.BatchNormalization(), f32(*shape), *parameters, constants=(1, 2, 3, 4))
        refuses(normalization.BatchNormalization(), f32(*shape), *parameters)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(
    ("shape", "sizes"),
    [
        ((1, C, 5, 7), (1, C, 10, 14)),
        ((2, 2 * LANES, 5, 7), (2, 2 * LANES, 8, 3)),
        ((1, C, 9), (1, C, 20)),
        ((2, C, 3, 4, 5), (2, C, 3, 7, 5)),
        ((1, C, 5, 7), (1, C, 5, 14)),
    ],
    ids=str,
)
def test_resize(mode, shape, sizes):
    for attributes in ({}, {"coordinate_transformation_mode": "align_corners"}, {"antialias": mode != "nearest"}):
        check(Resize(mode=mode, **attributes), f32(*shape), None, None, np.array(sizes), constants=(3,))
