"""Float ops between DequantizeLinear and QuantizeLinear become ops of integers, with equal results; near misses are left alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import mnnx

HEADER = '<ir_version: 9, opset_import: ["" : 20]>'
_RNG = np.random.default_rng(5)
#: Weights by name. Scales are powers of two: all sums are exact in floats, and both forms give equal bytes.
WEIGHTS = {
    "w": _RNG.integers(-128, 128, (8, 6)).astype(np.int8),
    "wt": _RNG.integers(-128, 128, (6, 8)).astype(np.int8),
    "k": _RNG.integers(-128, 128, (8, 8, 3)).astype(np.int8),
    "narrow": _RNG.integers(-128, 128, (8, 2, 3)).astype(np.int8),
    "single": _RNG.integers(-128, 128, (8, 1, 3)).astype(np.int8),
    "b": _RNG.integers(-500, 500, 6).astype(np.int32),
    "bk": _RNG.integers(-500, 500, 8).astype(np.int32),
    "row": (_RNG.integers(-16, 16, 6) / 4).astype(np.float32),
    "sx": np.float32(0.0625),
    "sw": np.float32(0.03125),
    "sb": np.float32(0.0625 * 0.03125),
    "sy": np.float32(0.5),
    "sz": np.float32(0.25),
    "sws": np.exp2(-_RNG.integers(3, 7, 6)).astype(np.float32),
    "zx": np.uint8(120),
    "zw": np.int8(0),
    "zws": np.zeros(6, np.int8),
    "zy": np.uint8(130),
    "least": np.uint8(0),
    "low": np.float32(-100.0),
    "high": np.float32(127.5),
    "lower": np.float32(-3.0),
    "begin": np.array([1], np.int64),
    "end": np.array([3], np.int64),
    "axis": np.array([1], np.int64),
    "first": np.array([0], np.int64),
    "second": np.array([2], np.int64),
    "three": np.array([1, 1, 3], np.int64),
    "ws": _RNG.integers(-128, 128, 6).astype(np.int8),
    "number": np.int8(37),
    "half": np.float32(0.5),
    "shape": np.array([2, 15], np.int64),
    "twice": np.array([1, 1, 2, 2], np.float32),
}


def _model(inputs: str, body: str, outputs: str) -> onnx.ModelProto:

    model = onnx.parser.parse_model(f"{HEADER} agraph ({inputs}) => ({outputs}) {{ {body} }}")
    used = {name for node in model.graph.node for name in node.input}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in WEIGHTS.items() if n in used)
    return model


ENTER = "q = QuantizeLinear(x, sx, zx) d = DequantizeLinear(q, sx, zx) "
WEIGHT = "dw = DequantizeLinear(w, sw, zw) "
LEAVE = "qy = QuantizeLinear(p, sy, zy) y = DequantizeLinear(qy, sy, zy)"
VECTOR = "float[2,5,8] x"

#: name → (inputs, body, outputs, {rewrite: count}, ops that are left)
MODELS = {
    "MatMul": (
        VECTOR,
        ENTER + WEIGHT + "p = MatMul(d, dw) qy = QuantizeLinear(p, sy, zy)",
        "uint8[2,5,6] qy",
        {"MatMul to QLinearMatMul": 1},
        {"QuantizeLinear": 1, "QLinearMatMul": 1},
    ),
    "scales per column": (
        VECTOR,
        ENTER + "dw = DequantizeLinear(w, sws, zws) p = MatMul(d, dw) qy = QuantizeLinear(p, sy, zy)",
        "uint8[2,5,6] qy",
        {"MatMul to QLinearMatMul": 1},
        {"QuantizeLinear": 1, "QLinearMatMul": 1},
    ),
    "product of computed matrices": (
        VECTOR + ", float[2,8,5] z",
        ENTER + "qz = QuantizeLinear(z, sx, zx) dz = DequantizeLinear(qz, sx, zx) p = MatMul(d, dz) qy = QuantizeLinear(p, sy, zy)",
        "uint8[2,5,5] qy",
        {"MatMul to QLinearMatMul": 1},
        {"QuantizeLinear": 2, "QLinearMatMul": 1},
    ),
    "Gemm": (
        "float[5,8] x",
        ENTER + "dw = DequantizeLinear(wt, sw, zw) db = DequantizeLinear(b, sb) p = Gemm<transB = 1>(d, dw, db) " + LEAVE,
        "float[5,6] y",
        {"Gemm to QLinearMatMul": 1, "DequantizeLinear into QLinearMatMul": 1},
        {"QuantizeLinear": 1, "mnnx::FusedQLinearMatMul": 1},
    ),
    "scales per row of a transposed matrix": (
        "float[5,8] x",
        ENTER + "dw = DequantizeLinear<axis = 0>(wt, sws, zws) p = Gemm<transB = 1>(d, dw) qy = QuantizeLinear(p, sy, zy)",
        "uint8[5,6] qy",
        {"Gemm to QLinearMatMul": 1},
        {"QuantizeLinear": 1, "QLinearMatMul": 1},
    ),
    "Conv": (
        "float[1,8,9] x",
        ENTER + "dk = DequantizeLinear(k, sw, zw) db = DequantizeLinear(bk, sb) p = Conv<pads = [1, 1]>(d, dk, db) "
        "qy = QuantizeLinear(p, sy, zy)",
        "uint8[1,8,9] qy",
        {"Conv to QLinearConv": 1},
        {"QuantizeLinear": 1, "QLinearConv": 1},
    ),
    "depthwise Conv": (
        "float[1,8,9] x",
        ENTER + "dk = DequantizeLinear(single, sw, zw) db = DequantizeLinear(bk, sb) p = Conv<group = 8, pads = [1, 1]>(d, dk, db) "
        "qy = QuantizeLinear(p, sy, zy)",
        "uint8[1,8,9] qy",
        {"Conv to QLinearConv": 1},
        {"QuantizeLinear": 1, "QLinearConv": 1},
    ),
    "a sum and a product of bytes": (
        VECTOR + ", float[5,1] z",
        ENTER + "qz = QuantizeLinear(z, sw, zy) dz = DequantizeLinear(qz, sw, zy) s = Add(d, dz) qs = QuantizeLinear(s, sz, zw) "
        "ds = DequantizeLinear(qs, sz, zw) p = Mul(ds, d) qy = QuantizeLinear(p, sy, zy)",
        "uint8[2,5,8] qy",
        {"Add and Mul of bytes": 2},
        {"QuantizeLinear": 2, "mnnx::QuantizedAdd": 1, "mnnx::QuantizedMul": 1},
    ),
    "a product of bytes with constant ones": (
        "float[2,5,6] x",
        ENTER + "dw = DequantizeLinear(ws, sw, zw) p = Mul(dw, d) qy = QuantizeLinear(p, sy, zy)",
        "uint8[2,5,6] qy",
        {"Add and Mul of bytes": 1},
        {"QuantizeLinear": 1, "mnnx::QuantizedMul": 1},
    ),
    "a product of bytes with a number that is one, too": (
        VECTOR,
        ENTER + "dw = DequantizeLinear(number, sw, zw) p = Mul(dw, d) qy = QuantizeLinear(p, sy, zy)",
        "uint8[2,5,8] qy",
        {"table of bytes": 1},
        {"QuantizeLinear": 1, "mnnx::ByteTable": 1},
    ),
    "a sum of bytes that is needed as it is, too": (
        VECTOR + ", float[5,1] z",
        ENTER + "qz = QuantizeLinear(z, sw, zy) dz = DequantizeLinear(qz, sw, zy) s = Add(d, dz) qs = QuantizeLinear(s, sz, zw) "
        "ds = DequantizeLinear(qs, sz, zw) y = Sub(s, ds)",
        "float[2,5,8] y",
        {"Add and Mul of bytes": 0},
        {"QuantizeLinear": 3, "DequantizeLinear": 3, "Add": 1, "Sub": 1},
    ),
    "pixels that are repeated": (
        "float[1,2,3,3] x",
        ENTER + 'r = Resize<mode = "nearest">(d, , twice) qy = QuantizeLinear(r, sx, zx)',
        "uint8[1,2,6,6] qy",
        {"quantized before it is moved": 1, "quantized again": 1},
        {"QuantizeLinear": 1, "Resize": 1},
    ),
    "means of bytes": (
        "float[1,2,8,4] x",
        ENTER
        + "m = AveragePool<kernel_shape = [2, 2], strides = [2, 2]>(d) qm = QuantizeLinear(m, sz, zy) dm = DequantizeLinear(qm, sz, zy) "
        "g = GlobalAveragePool(dm) f = Flatten(g) qy = QuantizeLinear(f, sy, zy)",
        "uint8[1,2] qy",
        {"means of bytes": 2},
        {"QuantizeLinear": 1, "mnnx::QuantizedAveragePool": 1, "mnnx::QuantizedGlobalAveragePool": 1, "Flatten": 1},
    ),
    "the largest bytes of windows": (
        "float[1,2,7,9] x",
        ENTER + "m = MaxPool<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]>(d) qm = QuantizeLinear(m, sx, zx) "
        "y = DequantizeLinear(qm, sx, zx)",
        "float[1,2,4,5] y",
        {"dequantized after it is moved": 1, "quantized again": 1},
        {"QuantizeLinear": 1, "MaxPool": 1, "DequantizeLinear": 1},
    ),
    "movement": (
        VECTOR,
        ENTER + "m = Transpose<perm = [0, 2, 1]>(d) n = Shape(m) r = Reshape(m, n) qr = QuantizeLinear(r, sx, zx) "
        "y = DequantizeLinear(qr, sx, zx)",
        "float[2,8,5] y",
        {"quantized again": 1},
        {"QuantizeLinear": 1, "Transpose": 1, "DequantizeLinear": 1},
    ),
    "table": (
        VECTOR,
        ENTER + "t = Tanh(d) m = Mul(t, half) n = Transpose<perm = [0, 2, 1]>(m) qy = QuantizeLinear(n, sw, zy)",
        "uint8[2,8,5] qy",
        {"table of bytes": 1, "quantized before it is moved": 1},
        {"QuantizeLinear": 1, "mnnx::ByteTable": 1, "Transpose": 1},
    ),
    "Relu that bytes do": (
        "float[1,8,9] x",
        ENTER + "dk = DequantizeLinear(k, sw, zw) p = Conv<pads = [1, 1]>(d, dk) r = Relu(p) qy = QuantizeLinear(r, sy, least)",
        "uint8[1,8,9] qy",
        {"bounds of bytes": 1, "Conv to QLinearConv": 1},
        {"QuantizeLinear": 1, "QLinearConv": 1},
    ),
    "Clip that bytes do": (
        "float[1,8,9] x",
        ENTER + "dk = DequantizeLinear(k, sw, zw) p = Conv(d, dk) r = Clip(p, low, high) qy = QuantizeLinear(r, sy, zy)",
        "uint8[1,8,7] qy",
        {"bounds of bytes": 1, "Conv to QLinearConv": 1},
        {"QuantizeLinear": 1, "QLinearConv": 1},
    ),
    "Concat of bytes that mean the same": (
        VECTOR + ", float[2,5,8] z",
        ENTER + "qz = QuantizeLinear(z, sx, zx) dz = DequantizeLinear(qz, sx, zx) c = Concat<axis = 1>(d, dz) y = Transpose(c)",
        "float[8,10,2] y",
        {"dequantized after the Concat": 1},
        {"QuantizeLinear": 2, "Concat": 1, "Transpose": 1, "DequantizeLinear": 1},
    ),
    "Concat of bytes that is quantized": (
        VECTOR + ", float[2,5,8] z",
        ENTER
        + "qz = QuantizeLinear(z, sz, zy) dz = DequantizeLinear(qz, sz, zy) c = Concat<axis = 1>(d, dz) qy = QuantizeLinear(c, sx, zx)",
        "uint8[2,10,8] qy",
        {"quantized before the Concat": 1, "quantized again": 1, "table of bytes": 1, "tables into Concat": 1},
        {"QuantizeLinear": 2, "mnnx::ByteTableConcat": 1},
    ),
    "Slices of bytes": (
        VECTOR,
        ENTER + "a = Slice(d, begin, end, axis) c = Slice(d, first, second, axis) y = Sub(a, c)",
        "float[2,2,8] y",
        {"dequantized after it is moved": 2},
        {"QuantizeLinear": 1, "Slice": 2, "DequantizeLinear": 2, "Sub": 1},
    ),
    "bytes that are repeated": (
        VECTOR,
        "t = Tile(x, three) s = Tanh(t) m = Tile(s, three) qy = QuantizeLinear(m, sx, zx)",
        "uint8[2,5,72] qy",
        {"quantized before it is moved": 1},
        {"Tile": 2, "Tanh": 1, "QuantizeLinear": 1},
    ),
    "epilogue": (
        VECTOR,
        ENTER + WEIGHT + "p = MatMul(d, dw) q1 = QuantizeLinear(p, sy, zy) d1 = DequantizeLinear(q1, sy, zy) a = Add(row, d1) "
        "r = Relu(a) qy = QuantizeLinear(r, sz, zy)",
        "uint8[2,5,6] qy",
        {
            "DequantizeLinear into QLinearMatMul": 1,
            "addend into QLinearMatMul": 1,
            "activation into QLinearMatMul": 1,
            "QuantizeLinear into QLinearMatMul": 1,
        },
        {"QuantizeLinear": 1, "mnnx::FusedQLinearMatMul": 1},
    ),
    "factor after movement": (
        VECTOR,
        ENTER + WEIGHT + "p = MatMul(d, dw) q1 = QuantizeLinear(p, sy, zy) d1 = DequantizeLinear(q1, sy, zy) a = Add(d1, row) "
        "t = Transpose<perm = [0, 2, 1]>(a) m = Mul(t, half) qy = QuantizeLinear(m, sz, zy)",
        "uint8[2,6,5] qy",
        {"scaled before it is moved": 1, "factor into QuantizeLinear": 1, "QuantizeLinear into QLinearMatMul": 1},
        {"QuantizeLinear": 1, "mnnx::FusedQLinearMatMul": 1, "Transpose": 1},
    ),
}


def _feed(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    return {i.name: rng.uniform(-9, 9, [d.dim_value for d in i.type.tensor_type.shape.dim]).astype(np.float32) for i in model.graph.input}


@pytest.mark.parametrize("name", MODELS)
def test_rule_fires_and_keeps_every_value(name: str, tmp_path: Path) -> None:
    inputs, body, outputs, rewrites, left = MODELS[name]
    model = _model(inputs, body, outputs)
    report = mnnx.convert(model, tmp_path / "model.mnnx")
    done: Counter[str] = Counter()
    for result in report.passes:
        done.update(result.counts)
    assert {rule: done[rule] for rule in rewrites} == rewrites
    assert dict(report.ops_after) == left
    feed = _feed(model)
    (wanted,) = ReferenceEvaluator(model).run(None, feed)
    with mnnx.Interpreter.from_file(tmp_path / "model.mnnx") as interpreter, interpreter.create_session() as session:
        (got,) = session.run(feed).values()
    np.testing.assert_array_equal(got, wanted)


#: name → (inputs, body, outputs, an op that must stay)
LEFT_ALONE = {
    "a product that is an output": (VECTOR, ENTER + WEIGHT + "p = MatMul(d, dw) " + LEAVE, "float[2,5,6] p, float[2,5,6] y", "MatMul"),
    "a product that is quantized twice": (
        VECTOR,
        ENTER + WEIGHT + "p = MatMul(d, dw) qy = QuantizeLinear(p, sy, zy) qz = QuantizeLinear(p, sz, zy)",
        "uint8[2,5,6] qy, uint8[2,5,6] qz",
        "MatMul",
    ),
    "a bias in other units": (
        "float[5,8] x",
        ENTER + WEIGHT + "db = DequantizeLinear(b, sy) p = Gemm(d, dw, db) qy = QuantizeLinear(p, sy, zy)",
        "uint8[5,6] qy",
        "Gemm",
    ),
    "a convolution of narrow groups": (
        "float[1,8,9] x",
        ENTER + "dk = DequantizeLinear(narrow, sw, zw) p = Conv<group = 4>(d, dk) qy = QuantizeLinear(p, sy, zy)",
        "uint8[1,8,7] qy",
        "Conv",
    ),
    "scales that are computed": (
        VECTOR + ", float s",
        "q = QuantizeLinear(x, s, zx) d = DequantizeLinear(q, s, zx) " + WEIGHT + "p = MatMul(d, dw) qy = QuantizeLinear(p, sy, zy)",
        "uint8[2,5,6] qy",
        "MatMul",
    ),
    "a Relu that cuts off bytes": (
        "float[1,8,9] x",
        ENTER + "dk = DequantizeLinear(k, sw, zw) p = Conv(d, dk) r = Relu(p) qy = QuantizeLinear(r, sy, zy)",
        "uint8[1,8,7] qy",
        "mnnx::FusedConv",
    ),
    "a Clip that cuts off bytes": (
        "float[1,8,9] x",
        ENTER + "dk = DequantizeLinear(k, sw, zw) p = Conv(d, dk) r = Clip(p, lower) qy = QuantizeLinear(r, sy, zy)",
        "uint8[1,8,7] qy",
        "mnnx::FusedConv",
    ),
    "the largest of windows with holes": (
        "float[1,2,7,9] x",
        ENTER + "m = MaxPool<kernel_shape = [2, 2], dilations = [2, 2]>(d) qy = QuantizeLinear(m, sx, zx)",
        "uint8[1,2,5,7] qy",
        "DequantizeLinear",
    ),
    "means that are needed as they are": (
        "float[1,2,8,4] x",
        ENTER + "y = GlobalAveragePool(d) qy = QuantizeLinear(y, sy, zy)",
        "float[1,2,1,1] y, uint8[1,2,1,1] qy",
        "GlobalAveragePool",
    ),
    "another scale": (
        VECTOR,
        ENTER + "qy = QuantizeLinear(d, sx, zy)",
        "uint8[2,5,8] qy",
        "mnnx::ByteTable",
    ),
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_near_miss_is_left_alone(name: str, tmp_path: Path) -> None:
    inputs, body, outputs, stays = LEFT_ALONE[name]
    model = _model(inputs, body, outputs)
    report = mnnx.convert(model, tmp_path / "model.mnnx")
    assert stays in dict(report.ops_after)
    feed = {k: np.float32(0.5) if v.shape == () else v for k, v in _feed(model).items()}
    wanted = ReferenceEvaluator(model).run(None, feed)
    with mnnx.Interpreter.from_file(tmp_path / "model.mnnx") as interpreter, interpreter.create_session() as session:
        for got, array in zip(session.run(feed).values(), wanted, strict=True):
            np.testing.assert_allclose(got, array, rtol=1e-5, atol=1e-5)
