"""Native quantization and products of bytes: exact, against integer arithmetic in NumPy."""

import numpy as np
import pytest

from mnnx.backends.cpu.compiler import assembly
from mnnx.backends.cpu.target import Target
from mnnx.backends.cpu.tiling import Tiling
from mnnx.schema.ops.dynamic_quantization import FusedMatMulInteger
from mnnx.schema.ops.quantization import (
    ConvInteger,
    DequantizeLinear,
    DynamicQuantizeLinear,
    MatMulInteger,
    QLinearConv,
    QLinearMatMul,
    QuantizeLinear,
    as_conv,
)
from tests.backends.cpu.native import Native, native
from tests.backends.cpu.test_convolution import convolved

RNG = np.random.default_rng(13)
BYTES = ["uint8", "int8"]


def integers(dtype: str, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


def scalar(value, dtype="float32") -> np.ndarray:
    return np.asarray(value, dtype)


def quantized(real: np.ndarray, zero: np.ndarray, dtype: str) -> np.ndarray:
    info = np.iinfo(dtype)
    return np.clip(np.rint(real) + zero, info.min, info.max).astype(dtype)


def along(values: np.ndarray, axis: int, rank: int) -> np.ndarray:
    return values.reshape([-1 if i == axis else 1 for i in range(rank)])


@pytest.mark.usefixtures("tiling")
@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16"])
@pytest.mark.parametrize(("shape", "axis"), [((3, 5, 7), None), ((2, 16, 33), 1), ((4, 3, 70), 2), ((5, 9), 0), ((), None), ((0, 3), None)])
def test_linear(shape, axis, dtype):
    x = np.asarray(100 * RNG.standard_normal(shape), np.float32)
    count = 1 if axis is None else shape[axis]
    scale, zero = RNG.uniform(0.1, 1, count).astype(np.float32), RNG.integers(0, 9, count).astype(dtype)
    scales, zeros = (scale, zero) if axis is None else (along(scale, axis, x.ndim), along(zero, axis, x.ndim))
    if axis is None:
        scale, zero = scale.reshape(()), zero.reshape(())
    attributes = {} if axis is None else {"axis": axis - len(shape)}
    q = native(QuantizeLinear(**attributes), x, scale, zero, threads=2)
    np.testing.assert_array_equal(q, quantized(x / scales, zeros.astype(np.float32), dtype).reshape(shape))
    y = native(DequantizeLinear(**attributes), q, scale, zero)
    expected = ((q.astype(np.int32) - zeros.astype(np.int32)).astype(np.float32) * scales).reshape(shape)
    np.testing.assert_array_equal(y, expected)


def test_quantization_saturates_and_rounds_halves_to_even():
    x = np.array([np.inf, -np.inf, 1e30, -1e30, 0.5, 1.5, 2.5, -0.5, 300, -300], np.float32)
    got = native(QuantizeLinear(), x, scalar(1.0), scalar(0, "int8"))
    np.testing.assert_array_equal(got, [127, -128, 127, -128, 0, 2, 2, 0, 127, -128])


@pytest.mark.parametrize("x", [RNG.standard_normal((100, 100)), np.zeros((3, 4)), -np.abs(RNG.standard_normal(7)), np.full((2,), 5.0)])
def test_dynamic_quantization(x):
    x = x.astype(np.float32)
    low, high = np.minimum(x.min(), np.float32(0)), np.maximum(x.max(), np.float32(0))
    expected_scale = np.float32(1) if low == high else (high - low) / np.float32(255)
    y, scale, zero = Native(DynamicQuantizeLinear(), x, outputs=3, threads=2).run()
    assert scale == expected_scale
    assert zero == quantized(-low / scale, 0, "uint8")
    np.testing.assert_array_equal(y, quantized(x / scale, zero.astype(np.float32), "uint8"))


@pytest.mark.usefixtures("tiling")
@pytest.mark.parametrize("zeros", [None, "scalar", "columns"])
@pytest.mark.parametrize("b_type", BYTES)
@pytest.mark.parametrize("a_type", BYTES)
@pytest.mark.parametrize(
    ("a", "b"), [((1, 5), (5, 7)), ((9, 64), (64, 96)), ((2, 17, 33), (33, 50)), ((8, 300), (300, 16)), ((20,), (20, 3))]
)
def test_matmul_integer(a, b, a_type, b_type, zeros):
    a, b = integers(a_type, *a), integers(b_type, *b)
    a_zero = None if zeros is None else scalar(17, a_type)
    b_zero = {None: None, "scalar": scalar(7, b_type), "columns": integers(b_type, b.shape[1])}[zeros]
    expected = (a.astype(np.int32) - (0 if a_zero is None else int(a_zero))) @ (
        b.astype(np.int32) - (0 if b_zero is None else b_zero.astype(np.int32))
    )
    for threads in (1, 2):
        np.testing.assert_array_equal(native(MatMulInteger(), a, b, a_zero, b_zero, constants=(1, 3), threads=threads), expected)


@pytest.mark.usefixtures("tiling")
@pytest.mark.parametrize("b_type", BYTES)
@pytest.mark.parametrize("a_type", BYTES)
@pytest.mark.parametrize(
    ("a", "b"), [((1, 5), (5, 7)), ((9, 64), (64, 96)), ((2, 17, 33), (2, 33, 50)), ((3, 1, 8, 30), (2, 30, 17)), ((5, 4, 8), (1, 8, 49))]
)
def test_matmul_integer_of_computed_matrices(a, b, a_type, b_type):
    a, b, a_zero, b_zero = integers(a_type, *a), integers(b_type, *b), scalar(17, a_type), scalar(7, b_type)
    expected = np.matmul(a.astype(np.int32) - 17, b.astype(np.int32) - 7)
    for threads in (1, 2):
        np.testing.assert_array_equal(native(MatMulInteger(), a, b, a_zero, b_zero, constants=(3,), threads=threads), expected)


@pytest.mark.parametrize("weights", BYTES)
def test_sums_become_floats_as_by_a_cast_a_product_and_a_sum(weights):
    a, b = integers("uint8", 37, 70), integers(weights, 70, 50)
    a_zero, b_zero, scale = scalar(117, "uint8"), integers(weights, 50), scalar(0.01234)
    scales, bias = (RNG.uniform(0.001, 0.01, 50).astype(np.float32) for _ in range(2))
    sums = np.matmul(a.astype(np.int32) - 117, b.astype(np.int32) - b_zero)
    expected = sums.astype(np.float32) * (scale * scales) + bias
    got = native(FusedMatMulInteger(), a, b, a_zero, b_zero, scale, scales, bias, constants=(1, 3, 5, 6), threads=2)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(("board", "instruction"), [("raspberrypi5", "sdot"), ("raspberrypi3", "smlal"), ("x86-64-v4", "vpdpbusd")])
def test_matrices_are_packed_by_code_for_any_target(board, instruction):
    target = Target.named(board)
    tiling = Tiling.of(target)
    packing = {"vectors": tiling.vectors, "lanes": tiling.lanes, "mode": tiling.dot}
    ending = {"target": "uint8", "rounds": False, "kind": ""}
    assert instruction in assembly("dot_matrix.product", {**tiling.dot_parameters, "fma": True, **ending}, target)
    assert "kernel" in assembly("dot_matrix.pack", packing, target)


CONVOLUTIONS = [
    ((1, 3, 8, 8), (8, 3, 3, 3), {"pads": (1, 1, 1, 1)}),
    ((2, 5, 17, 19), (13, 5, 3, 3), {"pads": (1, 1, 1, 1)}),
    ((2, 16, 7, 7), (20, 16, 1, 1), {}),
    ((1, 3, 33, 31), (9, 3, 7, 7), {"strides": (2, 2), "pads": (3, 3, 3, 3)}),
    ((1, 8, 9, 9), (16, 2, 3, 3), {"group": 4, "pads": (1, 1, 1, 1)}),
    ((2, 8, 9), (16, 8, 3), {"pads": (1, 1)}),
]


@pytest.mark.usefixtures("tiling")
@pytest.mark.parametrize("zeros", [None, "scalar", "channels"])
@pytest.mark.parametrize("w_type", BYTES)
@pytest.mark.parametrize("x_type", BYTES)
@pytest.mark.parametrize(("x", "w", "attributes"), CONVOLUTIONS)
def test_conv_integer(x, w, attributes, x_type, w_type, zeros):
    x, w = integers(x_type, *x), integers(w_type, *w)
    x_zero = None if zeros is None else scalar(100, x_type)
    w_zero = {None: None, "scalar": scalar(7, w_type), "channels": integers(w_type, w.shape[0])}[zeros]
    op = ConvInteger(**attributes)
    weights = w.astype(np.int32) - (0 if w_zero is None else along(w_zero.astype(np.int32), 0, w.ndim) if w_zero.ndim else int(w_zero))
    expected = convolved(as_conv(op), x.astype(np.int32) - (0 if x_zero is None else int(x_zero)), weights)
    for threads in (1, 3):
        np.testing.assert_array_equal(native(op, x, w, x_zero, w_zero, constants=(1, 3), threads=threads), expected)


@pytest.mark.parametrize("y_type", BYTES)
@pytest.mark.parametrize("columns", [False, True])
def test_qlinear_matmul(columns, y_type):
    a, b = integers("uint8", 9, 33), integers("int8", 33, 20)
    b_scale = RNG.uniform(0.01, 0.03, 20 if columns else ()).astype(np.float32)
    b_zero, scale, y_scale, y_zero = integers("int8", *b_scale.shape), scalar(0.02), scalar(1.5), scalar(11, y_type)
    inputs = (a, scale, scalar(5, "uint8"), b, b_scale, b_zero, y_scale, y_zero)
    product = (a.astype(np.int32) - 5) @ (b.astype(np.int32) - b_zero.astype(np.int32))
    expected = quantized(product * (scale * b_scale / y_scale), 11, y_type)
    np.testing.assert_array_equal(native(QLinearMatMul(), *inputs, constants=(1, 3, 4, 5, 6, 7)), expected)


@pytest.mark.parametrize("y_type", BYTES)
@pytest.mark.parametrize("channels", [False, True])
def test_qlinear_conv(channels, y_type):
    x, w, bias = integers("uint8", 2, 5, 9, 9), integers("int8", 13, 5, 3, 3), RNG.integers(-1000, 1000, 13).astype(np.int32)
    w_scale = RNG.uniform(0.01, 0.03, 13 if channels else ()).astype(np.float32)
    w_zero, scale, y_scale, y_zero = integers("int8", *w_scale.shape), scalar(0.02), scalar(1.5), scalar(11, y_type)
    op = QLinearConv(pads=(1, 1, 1, 1), strides=(2, 2))
    inputs = (x, scale, scalar(5, "uint8"), w, w_scale, w_zero, y_scale, y_zero, bias)
    weights = w.astype(np.int32) - (along(w_zero.astype(np.int32), 0, 4) if channels else int(w_zero))
    sums = convolved(as_conv(op), x.astype(np.int32) - 5, weights, bias)
    factor = (scale * w_scale / y_scale).astype(np.float32)
    expected = quantized(sums.astype(np.float32) * (along(factor, 0, 3) if channels else factor), 11, y_type)
    np.testing.assert_array_equal(native(op, *inputs, constants=tuple(range(1, 9)), threads=2), expected)
