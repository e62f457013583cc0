"""What dynamic quantization writes becomes one op of the same numbers; near misses are left alone, or go in as far as they fit."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import mnnx

HEADER = '<ir_version: 9, opset_import: ["" : 20, "com.microsoft" : 1]>'
_RNG = np.random.default_rng(11)
WEIGHTS = {
    "w": _RNG.integers(-128, 128, (8, 6)).astype(np.int8),
    "v": _RNG.integers(0, 256, (8, 6)).astype(np.uint8),
    "u": _RNG.integers(-128, 128, (6, 4)).astype(np.int8),
    "batch": _RNG.integers(-128, 128, (2, 8, 6)).astype(np.int8),
    "zw": np.int8(0),
    "zv": np.uint8(131),
    "zws": _RNG.integers(-9, 9, 6).astype(np.int8),
    "sw": np.float32(0.0071),
    "one": np.array([0.0071], np.float32),
    "sws": _RNG.uniform(0.001, 0.01, 6).astype(np.float32),
    "rows": _RNG.uniform(0.001, 0.01, (5, 1)).astype(np.float32),
    "bias": _RNG.uniform(-1, 1, 6).astype(np.float32),
    "row": _RNG.uniform(-1, 1, (1, 6)).astype(np.float32),
    "column": _RNG.uniform(-1, 1, (5, 1)).astype(np.float32),
    "cube": _RNG.uniform(-1, 1, (1, 1, 1, 6)).astype(np.float32),
}
X = "float[2,5,8] x"
ENTER = "q, s, z = DynamicQuantizeLinear(x) "
PRODUCT = ENTER + "i = MatMulInteger(q, w, z, zw) c = Cast<to = 1>(i) "
SCALED = PRODUCT + "f = Mul(s, sw) p = Mul(c, f) "

SCALES, BIAS, ACTIVATION, INSIDE = (
    "scales into MatMulInteger",
    "bias into a dynamically quantized product",
    "activation into a dynamically quantized product",
    "DynamicQuantizeLinear into MatMulInteger",
)
FUSED, WHOLE = "mnnx::FusedMatMulInteger", "mnnx::FusedDynamicQuantizeMatMul"

#: name → (inputs, body, outputs, {rewrite: count}, ops that are left)
MODELS = {
    "a product with bias and activation": (
        X,
        SCALED + "a = Add(bias, p) y = Relu(a)",
        "float[2,5,6] y",
        {SCALES: 1, BIAS: 1, ACTIVATION: 1, INSIDE: 1},
        {WHOLE: 1},
    ),
    "scales and zero points per column": (
        X,
        ENTER + "i = MatMulInteger(q, w, z, zws) c = Cast<to = 1>(i) f = Mul(sws, s) p = Mul(f, c) y = Add(p, row)",
        "float[2,5,6] y",
        {SCALES: 1, BIAS: 1, INSIDE: 1},
        {WHOLE: 1},
    ),
    "unsigned weights": (
        X,
        ENTER + "i = MatMulInteger(q, v, z, zv) c = Cast<to = 1>(i) f = Mul(s, one) y = Mul(c, f)",
        "float[2,5,6] y",
        {SCALES: 1, INSIDE: 1},
        {WHOLE: 1},
    ),
    "a matrix for each item": (
        X,
        ENTER + "i = MatMulInteger(q, batch, z) c = Cast<to = 1>(i) f = Mul(s, sw) p = Mul(c, f) y = Tanh(p)",
        "float[2,5,6] y",
        {SCALES: 1, ACTIVATION: 1, INSIDE: 1},
        {WHOLE: 1},
    ),
    "two products of one tensor in bytes": (
        X,
        SCALED + "y = Add(p, bias) i2 = MatMulInteger(q, v, z, zv) c2 = Cast<to = 1>(i2) f2 = Mul(s, sws) r = Mul(c2, f2)",
        "float[2,5,6] y, float[2,5,6] r",
        {SCALES: 2, BIAS: 1, INSIDE: 0},
        {"DynamicQuantizeLinear": 1, FUSED: 2},
    ),
    "two products in a row": (
        X,
        SCALED + "a = Relu(p) q2, s2, z2 = DynamicQuantizeLinear(a) i2 = MatMulInteger(q2, u, z2, zw) c2 = Cast<to = 1>(i2) "
        "f2 = Mul(s2, sw) y = Mul(c2, f2)",
        "float[2,5,4] y",
        {SCALES: 2, ACTIVATION: 1, INSIDE: 2},
        {WHOLE: 2},
    ),
    "bytes that are an input, with a scale that is": (
        "uint8[2,5,8] x, float[1] s",
        "i = MatMulInteger(x, w) c = Cast<to = 1>(i) p = Mul(c, s) y = Add(p, bias)",
        "float[2,5,6] y",
        {SCALES: 1, BIAS: 1, INSIDE: 0},
        {FUSED: 1},
    ),
    "constant scales": (
        "uint8[2,5,8] x",
        "i = MatMulInteger(x, v, zv, zv) c = Cast<to = 1>(i) y = Mul(c, sws)",
        "float[2,5,6] y",
        {SCALES: 1},
        {FUSED: 1},
    ),
    "a product of two computed tensors": (
        X + ", float[2,8,6] w2",
        ENTER + "r, t, o = DynamicQuantizeLinear(w2) i = MatMulInteger(q, r, z, o) c = Cast<to = 1>(i) f = Mul(s, t) y = Mul(c, f)",
        "float[2,5,6] y",
        {SCALES: 1, INSIDE: 0},
        {"DynamicQuantizeLinear": 2, "Mul": 1, FUSED: 1},
    ),
    "a scale that is an output": (
        X,
        SCALED + "y = Add(p, bias)",
        "float[2,5,6] y, float s",
        {SCALES: 1, BIAS: 1, INSIDE: 0},
        {"DynamicQuantizeLinear": 1, FUSED: 1},
    ),
    "a bias per row": (X, SCALED + "y = Add(p, column)", "float[2,5,6] y", {SCALES: 1, BIAS: 0, INSIDE: 1}, {WHOLE: 1, "Add": 1}),
    "a bias that adds a dim": (X, SCALED + "y = Add(p, cube)", "float[1,2,5,6] y", {SCALES: 1, BIAS: 0}, {WHOLE: 1, "Add": 1}),
    "a bias used elsewhere before": (
        X,
        SCALED + "y = Add(p, bias)",
        "float[2,5,6] y, float[2,5,6] p",
        {SCALES: 1, BIAS: 0, INSIDE: 1},
        {WHOLE: 1, "Add": 1},
    ),
    "a bias behind the activation": (
        X,
        SCALED + "r = Relu(p) y = Add(r, bias)",
        "float[2,5,6] y",
        {SCALES: 1, BIAS: 0, ACTIVATION: 1},
        {WHOLE: 1, "Add": 1},
    ),
    "sums that are an output": (
        X,
        SCALED + "y = Add(p, bias)",
        "float[2,5,6] y, int32[2,5,6] i",
        {SCALES: 0},
        {"DynamicQuantizeLinear": 1, "MatMulInteger": 1, "Cast": 1, "Mul": 2, "Add": 1},
    ),
    "scales per row": (
        X,
        PRODUCT + "f = Mul(s, rows) y = Mul(c, f)",
        "float[2,5,6] y",
        {SCALES: 0},
        {"DynamicQuantizeLinear": 1, "MatMulInteger": 1, "Cast": 1, "Mul": 2},
    ),
    "another zero point": (
        X,
        ENTER + "i = MatMulInteger(q, w, zv, zw) c = Cast<to = 1>(i) f = Mul(s, sw) y = Mul(c, f)",
        "float[2,5,6] y",
        {SCALES: 1, INSIDE: 0},
        {"DynamicQuantizeLinear": 1, FUSED: 1},
    ),
    "no zero point": (
        X,
        ENTER + "i = MatMulInteger(q, w) c = Cast<to = 1>(i) f = Mul(s, sw) y = Mul(c, f)",
        "float[2,5,6] y",
        {SCALES: 1, INSIDE: 0},
        {"DynamicQuantizeLinear": 1, FUSED: 1},
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_rules_fire_where_they_must_and_keep_every_value(name: str, tmp_path: Path) -> None:
    inputs, body, outputs, rewrites, left = MODELS[name]
    model = onnx.parser.parse_model(f"{HEADER} agraph ({inputs}) => ({outputs}) {{ {body} }}")
    used = {name for node in model.graph.node for name in node.input}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in WEIGHTS.items() if n in used)
    report = mnnx.convert(model, tmp_path / "model.mnnx")
    done: Counter[str] = Counter()
    for result in report.passes:
        done.update(result.counts)
    assert {rule: done[rule] for rule in rewrites} == rewrites
    assert dict(report.ops_after) == left
    feed = {i.name: _array(i) for i in model.graph.input}
    wanted = ReferenceEvaluator(model).run(None, feed)
    with mnnx.Interpreter.from_file(tmp_path / "model.mnnx") as interpreter, interpreter.create_session() as session:
        for got, array in zip(session.run(feed).values(), wanted, strict=True):
            np.testing.assert_allclose(got, array, rtol=1e-5, atol=1e-5)


def _array(value: onnx.ValueInfoProto) -> np.ndarray:
    tensor, rng = value.type.tensor_type, np.random.default_rng(3)
    shape = [dim.dim_value for dim in tensor.shape.dim]
    if tensor.elem_type == onnx.TensorProto.UINT8:
        return rng.integers(0, 256, shape).astype(np.uint8)
    return rng.uniform(-0.5, 1, shape).astype(np.float32) if shape != [1] else np.array([0.02], np.float32)


def test_explains_why_it_leaves_a_product_alone(tmp_path: Path) -> None:
    inputs, body, outputs, *_ = MODELS["scales per row"]
    model = onnx.parser.parse_model(f"{HEADER} agraph ({inputs}) => ({outputs}) {{ {body} }}")
    model.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(WEIGHTS[name]), name) for name in ("w", "zw", "rows"))
    report = mnnx.convert(model, tmp_path / "model.mnnx", explain="y")
    assert "not times a number and constants, one or one per column" in report.explanation()


@pytest.mark.parametrize(
    "body",
    [
        "y = com.microsoft.DynamicQuantizeMatMul(x, w, sws, zws, bias)",
        ENTER + "y = com.microsoft.MatMulIntegerToFloat(q, w, s, sws, z, zws, bias)",
    ],
    ids=["DynamicQuantizeMatMul", "MatMulIntegerToFloat"],
)
def test_ops_of_onnxruntime_become_the_same_op(body: str, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(f"{HEADER} agraph ({X}) => (float[2,5,6] y) {{ {body} }}")
    model.graph.initializer.extend(onnx.numpy_helper.from_array(WEIGHTS[name], name) for name in ("w", "sws", "zws", "bias"))
    assert dict(mnnx.convert(model, tmp_path / "model.mnnx").ops_after) == {WHOLE: 1}
