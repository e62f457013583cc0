"""Networks in the style of well-known ones, as ONNX models with seeded random weights: for tests of plans, and for the benchmark."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Builder:
    """Adds nodes and weights to one graph; methods take and give names of tensors."""

    def __init__(self, seed: int):
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def node(self, op_type: str, *inputs: str, **attributes) -> str:
        name = f"{op_type.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, array: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def weight(self, *shape: int, fan_in: int) -> str:
        return self.constant((self.random.standard_normal(shape) * math.sqrt(2 / fan_in)).astype(np.float32))

    def conv(self, x: str, inputs: int, outputs: int, kernel: int = 1, stride: int = 1, group: int = 1) -> str:
        """A convolution with "same" padding and a bias."""
        fan_in = inputs // group * kernel * kernel
        weight, bias = self.weight(outputs, inputs // group, kernel, kernel, fan_in=fan_in), self.weight(outputs, fan_in=200)
        return self.node("Conv", x, weight, bias, pads=[kernel // 2] * 4, strides=[stride] * 2, group=group, kernel_shape=[kernel] * 2)

    def normalized(self, x: str, channels: int) -> str:
        """A batch normalization with plausible statistics."""
        uniform = [
            self.random.uniform(low, high, channels).astype(np.float32) for low, high in ((0.8, 1.2), (-0.1, 0.1), (-0.1, 0.1), (0.8, 1.2))
        ]
        return self.node("BatchNormalization", x, *map(self.constant, uniform))

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        return self.node("Add", self.node("MatMul", x, self.weight(inputs, outputs, fan_in=2 * inputs)), self.weight(outputs, fan_in=200))

    def model(self, inputs: dict[str, tuple[int, list[int | str]]], output: str, shape: list[int | str]) -> onnx.ModelProto:
        self.nodes.append(helper.make_node("Identity", [output], ["y"], name="y"))
        graph = helper.make_graph(
            self.nodes,
            "network",
            [helper.make_tensor_value_info(name, *what) for name, what in inputs.items()],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
            self.weights,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def mobilenet_like(size: int = 224, width: float = 1.0, classes: int = 1000, seed: int = 0) -> onnx.ModelProto:
    """Inverted residuals with depthwise 3 × 3 convolutions and ReLU6 (Sandler et al., MobileNetV2, 2018)."""
    b = Builder(seed)

    def scaled(channels: int) -> int:
        return max(8, int(channels * width) // 8 * 8)

    def relu6(x: str) -> str:
        return b.node("Clip", x, zero, six)

    zero, six = b.constant(np.float32(0)), b.constant(np.float32(6))
    channels = scaled(32)
    x = relu6(b.normalized(b.conv("x", 3, channels, 3, 2), channels))
    for expand, outputs, repeats, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2)):
        for repeat in range(repeats):
            wide, narrow = channels * expand, scaled(outputs)
            h = x if expand == 1 else relu6(b.conv(x, channels, wide))
            h = relu6(b.conv(h, wide, wide, 3, stride if repeat == 0 else 1, group=wide))
            h = b.conv(h, wide, narrow)
            x = b.node("Add", x, h) if repeat else h
            channels = narrow
    last = scaled(1280)
    x = b.node("Flatten", b.node("GlobalAveragePool", relu6(b.conv(x, channels, last))))
    x = b.node("Gemm", x, b.weight(last, classes, fan_in=last), b.weight(classes, fan_in=200))
    return b.model({"x": (TensorProto.FLOAT, ["n", 3, size, size])}, b.node("Softmax", x), ["n", classes])


def resnet_like(size: int = 224, width: int = 64, depth: int = 2, classes: int = 1000, seed: int = 1) -> onnx.ModelProto:
    """Basic residual blocks (He et al., Deep Residual Learning, 2015); depth 2 is ResNet-18's."""
    b = Builder(seed)
    x = b.node("Relu", b.normalized(b.conv("x", 3, width, 7, 2), width))
    x = b.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = width
    for stage in range(4):
        outputs = width << stage
        for block in range(depth):
            stride = 2 if stage and not block else 1
            h = b.node("Relu", b.normalized(b.conv(x, channels, outputs, 3, stride), outputs))
            h = b.normalized(b.conv(h, outputs, outputs, 3), outputs)
            shortcut = x if stride == 1 and channels == outputs else b.conv(x, channels, outputs, 1, stride)
            x = b.node("Relu", b.node("Add", h, shortcut))
            channels = outputs
    x = b.node("Flatten", b.node("GlobalAveragePool", x))
    x = b.node("Gemm", x, b.weight(classes, channels, fan_in=channels), b.weight(classes, fan_in=200), transB=1)
    return b.model({"x": (TensorProto.FLOAT, ["n", 3, size, size])}, x, ["n", classes])


def squeezenet_like(size: int = 224, width: int = 16, classes: int = 1000, seed: int = 2) -> onnx.ModelProto:
    """Fire modules, whose 1 × 1 and 3 × 3 halves are concatenated (Iandola et al., SqueezeNet, 2016)."""
    b = Builder(seed)
    x = b.node("Relu", b.conv("x", 3, 4 * width, 3, 2))
    channels = 4 * width
    for squeeze, modules in ((1, 2), (2, 2), (3, 2), (4, 2)):
        if squeeze < 4:
            x = b.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2])
        for _ in range(modules):
            small, half = width * squeeze, 4 * width * squeeze
            h = b.node("Relu", b.conv(x, channels, small))
            x = b.node("Concat", b.node("Relu", b.conv(h, small, half)), b.node("Relu", b.conv(h, small, half, 3)), axis=1)
            channels = 2 * half
    x = b.node("GlobalAveragePool", b.node("Relu", b.conv(x, channels, classes)))
    return b.model({"x": (TensorProto.FLOAT, ["n", 3, size, size])}, b.node("Softmax", b.node("Flatten", x)), ["n", classes])


def transformer_like(
    hidden: int = 256, heads: int = 4, layers: int = 4, vocabulary: int = 2000, longest: int = 256, seed: int = 3
) -> onnx.ModelProto:
    """An encoder with multi-head attention and GELU (Devlin et al., BERT, 2018): ids and mask (batch, length) → (batch, length, hidden)."""
    b = Builder(seed)
    ones, zeros = (b.constant(np.full(hidden, value, np.float32)) for value in (1, 0))

    def split(x: str) -> str:
        return b.node("Transpose", b.node("Reshape", x, b.constant(np.array([0, 0, heads, hidden // heads]))), perm=[0, 2, 1, 3])

    def layer_norm(x: str) -> str:
        return b.node("LayerNormalization", x, ones, zeros, axis=-1)

    length = b.node("Gather", b.node("Shape", "ids"), b.constant(np.array([1])))
    positions = b.node("Slice", b.weight(1, longest, hidden, fan_in=50), b.constant(np.array([0])), length, b.constant(np.array([1])))
    x = layer_norm(b.node("Add", b.node("Gather", b.weight(vocabulary, hidden, fan_in=50), "ids"), positions))
    bias = b.node(
        "Sub", b.node("Cast", b.node("Unsqueeze", "mask", b.constant(np.array([1, 2]))), to=TensorProto.FLOAT), b.constant(np.float32(1))
    )
    bias = b.node("Mul", bias, b.constant(np.float32(1e4)))
    for _ in range(layers):
        q, k, v = (split(b.linear(x, hidden, hidden)) for _ in range(3))
        scores = b.node("MatMul", q, b.node("Transpose", k, perm=[0, 1, 3, 2]))
        scores = b.node("Add", b.node("Div", scores, b.constant(np.float32(math.sqrt(hidden // heads)))), bias)
        h = b.node("Transpose", b.node("MatMul", b.node("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        h = b.linear(b.node("Reshape", h, b.constant(np.array([0, 0, hidden]))), hidden, hidden)
        x = layer_norm(b.node("Add", x, h))
        h = b.linear(x, hidden, 4 * hidden)
        half = b.node("Mul", h, b.constant(np.float32(0.5)))
        erf = b.node("Erf", b.node("Div", h, b.constant(np.float32(math.sqrt(2)))))
        h = b.node("Mul", half, b.node("Add", erf, b.constant(np.float32(1))))
        x = layer_norm(b.node("Add", x, b.linear(h, 4 * hidden, hidden)))
    shape: list[int | str] = ["n", "length"]
    return b.model({"ids": (TensorProto.INT64, shape), "mask": (TensorProto.INT64, shape)}, x, [*shape, hidden])


def feed_for(model: onnx.ModelProto, sizes: dict[str, int] | None = None, seed: int = 5) -> dict[str, np.ndarray]:
    """Random inputs; `sizes` gives those of symbolic dims (else 1)."""
    random = np.random.default_rng(seed)
    feed = {}
    for info in model.graph.input:
        tensor = info.type.tensor_type
        shape = [d.dim_value or (sizes or {}).get(d.dim_param, 1) for d in tensor.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        feed[info.name] = random.standard_normal(shape).astype(dtype) if dtype.kind == "f" else random.integers(0, 2, shape).astype(dtype)
    return feed


#: Name → (the network at its full size, the sizes of symbolic dims).
NETWORKS: dict[str, tuple[Callable[[], onnx.ModelProto], dict[str, int]]] = {
    "mobilenet-like": (mobilenet_like, {}),
    "resnet-like": (resnet_like, {}),
    "squeezenet-like": (squeezenet_like, {}),
    "transformer-like": (transformer_like, {"length": 128}),
}
#: The same, small enough for tests.
SMALL: dict[str, tuple[Callable[[], onnx.ModelProto], dict[str, int]]] = {
    "mobilenet-like": (lambda: mobilenet_like(48, 0.25, 10), {}),
    "resnet-like": (lambda: resnet_like(48, 8, 1, 10), {}),
    "squeezenet-like": (lambda: squeezenet_like(64, 4, 10), {}),
    "transformer-like": (lambda: transformer_like(32, 2, 2, 50, 64), {"length": 17}),
}
