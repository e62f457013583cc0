"""Models to break: five of different kinds, and a callback for tests/mutation.py that opens a file and runs it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import mnnx
from mnnx.interpreter.tensor import SessionTensor
from mnnx.schema import dtypes
from tests.networks import Builder

_MOST_ELEMENTS = 1 << 16  # of an input; a broken file may ask for any size


def open_and_run(data: bytes) -> None:
    """Opens an .mnnx file and runs it once on a small random feed."""
    config = mnnx.ScheduleConfig(num_threads=2)
    with mnnx.Interpreter.from_bytes(data) as interpreter, interpreter.create_session(config) as session:
        random = np.random.default_rng(1)
        session.run({name: _value(random, tensor) for name, tensor in session.inputs.items()})


def _value(random: np.random.Generator, tensor: SessionTensor) -> Any:
    if tensor.kind != "tensor":
        return {"sequence": [], "optional": None, "map": {}}[tensor.kind]
    shape = [3 if dim < 0 else dim for dim in tensor.shape]
    dtype = np.dtype(np.float32) if tensor.dtype is None else tensor.dtype
    if math.prod(shape) > _MOST_ELEMENTS:
        raise mnnx.LimitExceeded(f"input {tensor.name!r} is too large for this test: {shape}")
    numbers = random.normal(size=shape) if dtype.kind == "f" else random.integers(1, 4, shape)
    return numbers.astype(str).astype(object) if dtype == dtypes.STRING else numbers.astype(dtype)


def cnn() -> onnx.ModelProto:
    """Plain, depthwise and strided convolutions, a residual, a concatenation, both poolings, a classifier."""
    b = Builder(0)
    x = b.node("Relu", b.normalized(b.conv("x", 3, 8, 3, 2), 8))
    h = b.node("Clip", b.conv(x, 8, 8, 3, group=8), b.constant(np.float32(0)), b.constant(np.float32(6)))
    x = b.node("Add", x, b.node("HardSwish", b.conv(h, 8, 8)))
    x = b.node("Concat", x, b.node("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4), axis=1)
    x = b.node("AveragePool", b.node("LeakyRelu", b.conv(x, 16, 12, 5), alpha=0.1), kernel_shape=[2, 2], strides=[2, 2])
    x = b.node("Resize", x, "", b.constant(np.array([1, 1, 2, 2], np.float32)), mode="linear")
    x = b.node("ConvTranspose", x, b.weight(12, 6, 2, 2, fan_in=48), strides=[2, 2])
    x = b.node("Flatten", b.node("GlobalAveragePool", x))
    x = b.node("Softmax", b.node("Gemm", x, b.weight(6, 5, fan_in=6), b.weight(5, fan_in=5)))
    return b.model({"x": (TensorProto.FLOAT, ["n", 3, 16, 16])}, x, ["n", 5])


def lstm_with_if() -> onnx.ModelProto:
    """A bidirectional LSTM over (time, batch, 4); a branch chosen by the largest result; products as of attention."""
    b = Builder(1)
    hidden = 8
    lstm = ("x", b.weight(2, 4 * hidden, 4, fan_in=4), b.weight(2, 4 * hidden, hidden, fan_in=hidden), b.weight(2, 8 * hidden, fan_in=90))
    y = b.node("LSTM", *lstm, hidden_size=hidden, direction="bidirectional")
    y = b.node("Reshape", b.node("Transpose", y, perm=[0, 2, 1, 3]), b.constant(np.array([0, 0, -1])))
    y = b.node("LayerNormalization", y, b.constant(np.ones(2 * hidden, np.float32)))
    scores = b.node("Softmax", b.node("MatMul", y, b.node("Transpose", y, perm=[0, 2, 1])))
    y = b.node("MatMul", scores, y)
    positive = b.node("Greater", b.node("ReduceMax", y, keepdims=0), b.constant(np.float32(1)))
    then_branch = onnx.parser.parse_graph(f"t () => (float[t,b,h] p) {{ p = Exp({y}) }}")
    else_branch = onnx.parser.parse_graph(f"e () => (float[t,b,h] q) {{ a = Neg({y}) q = Mul(a, a) }}")
    y = b.node("If", positive, then_branch=then_branch, else_branch=else_branch)
    return b.model({"x": (TensorProto.FLOAT, ["time", "batch", 4])}, y, ["time", "batch", 2 * hidden])


def loops() -> onnx.ModelProto:
    """A Loop that grows a tensor and a sequence, with a Scan and an If inside; behind it a shape that depends on data."""
    return onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 18]>
        g (float[k] x, int64 n) => (float[m] y, float[p,q] all, int64[1,r] at)
        <float[3] w = {0.5, -1, 2}>
        { empty = SequenceEmpty<dtype=1>()
          grown, list, all = Loop(n, , x, empty) <body = b (int64 i, bool c, float[s] t, seq(float[m]) l)
              => (bool d, float[u] v, seq(float[m]) o, float[3] e)
            { f = Cast<to=1>(i) axis = Constant<value = int64[1] {0}>() g = Unsqueeze(f, axis) v = Concat<axis=0>(t, g)
              two = Constant<value = int64 {2}>() r = Mod(i, two) odd = Cast<to=9>(r)
              h = If(odd) <then_branch = p () => (float[a] z) { z = Neg(v) },
                           else_branch = q () => (float[a] z) { z = Exp(w) }>
              o = SequenceInsert(l, h) d = Identity(c)
              last, e0 = Scan(f, w) <num_scan_inputs=1,
                body = sb (float s0, float s1) => (float s2, float s3) { s2 = Add(s0, s1) s3 = Mul(s2, s1) }>
              e = Add(e0, last) }>
          y = ConcatFromSequence<axis=0>(list)
          zero = Constant<value = float {0}>() positive = Greater(y, zero) at = NonZero(positive) }""")


def quantized() -> onnx.ModelProto:
    """Convolutions and a product of int8 numbers, each between DequantizeLinear and QuantizeLinear."""
    b = Builder(3)
    zero, unsigned = b.constant(np.int8(0)), b.constant(np.uint8(128))

    def quantize(x: str) -> str:
        scale = b.constant(np.float32(0.05))
        return b.node("DequantizeLinear", b.node("QuantizeLinear", x, scale, unsigned), scale, unsigned)

    def weight(*shape: int) -> str:
        scales = b.constant(b.random.uniform(0.01, 0.02, shape[0]).astype(np.float32))
        zeros = b.constant(np.zeros(shape[0], np.int8))
        return b.node("DequantizeLinear", b.constant(b.random.integers(-127, 128, shape, np.int8)), scales, zeros, axis=0)

    x = quantize("x")
    x = quantize(b.node("Relu", b.node("Conv", x, weight(8, 3, 3, 3), b.weight(8, fan_in=90), pads=[1] * 4)))
    x = quantize(b.node("Relu", b.node("Conv", x, weight(8, 1, 3, 3), group=8, pads=[1] * 4)))
    x = quantize(b.node("Add", x, quantize(b.node("Conv", x, weight(8, 8, 1, 1)))))
    x = quantize(b.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]))
    x = quantize(b.node("Flatten", b.node("GlobalAveragePool", x)))
    scale = b.constant(np.float32(0.02))
    w = b.node("DequantizeLinear", b.constant(b.random.integers(-127, 128, (8, 5), np.int8)), scale, zero)
    return b.model({"x": (TensorProto.FLOAT, ["n", 3, 8, 8])}, quantize(b.node("MatMul", x, w)), ["n", 5])


def trees() -> onnx.ModelProto:
    """A scaler, a forest of 6 trees of depth 3 over 4 features, and the labels and probabilities of 3 classes."""
    random = np.random.default_rng(4)
    columns: dict[str, list[Any]] = {
        name: [] for name in ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")
    }
    leaves: dict[str, list[Any]] = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}
    for tree in range(6):
        for node in range(15):
            leaf = node >= 7
            row = (tree, node, int(random.integers(4)), "LEAF" if leaf else "BRANCH_LEQ", float(random.normal()))
            children = (0, 0) if leaf else (2 * node + 1, 2 * node + 2)
            for column, value in zip(columns.values(), (*row, *children), strict=True):
                column.append(value)
            if leaf:
                for column, value in zip(leaves.values(), (tree, node, int(random.integers(3)), float(random.random())), strict=True):
                    column.append(value)
    attributes = {f"nodes_{name}": column for name, column in columns.items()} | {
        f"class_{name}": column for name, column in leaves.items()
    }
    nodes = [
        helper.make_node("Scaler", ["x"], ["scaled"], domain="ai.onnx.ml", offset=[0.1] * 4, scale=[2.0] * 4),
        helper.make_node(
            *("TreeEnsembleClassifier", ["scaled"], ["label", "scores"]),
            domain="ai.onnx.ml",
            classlabels_strings=["a", "b", "c"],
            post_transform="SOFTMAX",
            **attributes,
        ),
        helper.make_node("Normalizer", ["scores"], ["y"], domain="ai.onnx.ml", norm="L1"),
        helper.make_node("MatMul", ["y", "w"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes,
        "trees",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [
            helper.make_tensor_value_info("label", TensorProto.STRING, ["n"]),
            helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 2]),
        ],
        [numpy_helper.from_array(random.normal(size=(3, 2)).astype(np.float32), "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)], ir_version=8)


MODELS = {"cnn": cnn, "lstm with if": lstm_with_if, "loops": loops, "quantized": quantized, "trees": trees}
