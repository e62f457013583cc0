"""Random graphs of the ops that layouts, views, merged copies and memory taken over meet in: results must be the reference's."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

import mnnx
from mnnx.backends.cpu.executions.blocked_convolution import BlockableConvolution
from mnnx.backends.cpu.target import Target
from tests.networks import Builder

LANES = Target.host().vector_bytes // 4
CHANNELS = [LANES, 2 * LANES, LANES + 3, 5]


class RandomNet(Builder):
    """Tensors [batch, channels, 4, 6], by name; each op takes any that were made before."""

    def __init__(self, seed: int):
        super().__init__(seed)
        self.batch = int(self.random.integers(1, 3))
        self.channels = {"x": int(self.random.choice(CHANNELS))}
        for _ in range(self.random.integers(6, 16)):
            getattr(self, f"add_{self.random.choice(['conv', 'unary', 'binary', 'concat', 'split', 'pool', 'scale', 'turn'])}")()

    def any(self, channels: int | None = None) -> str:
        """A tensor, mostly one of the latest, perhaps with a wanted number of channels."""
        names = [name for name, count in self.channels.items() if channels in (None, count)]
        return names[-1 - min(int(self.random.geometric(0.4)) - 1, len(names) - 1)]

    def put(self, name: str, channels: int) -> None:
        if channels <= 8 * LANES:
            self.channels[name] = channels

    def add_conv(self) -> None:
        x, outputs = self.any(), int(self.random.choice(CHANNELS))
        self.put(self.conv(x, self.channels[x], outputs, int(self.random.choice([1, 3]))), outputs)

    def add_unary(self) -> None:
        x = self.any()
        self.put(self.node(str(self.random.choice(["Relu", "Sigmoid", "Neg", "Tanh"])), x), self.channels[x])

    def add_binary(self) -> None:
        x = self.any()
        self.put(self.node(str(self.random.choice(["Add", "Mul", "Max"])), x, self.any(self.channels[x])), self.channels[x])

    def add_concat(self) -> None:
        parts = [self.any() for _ in range(self.random.integers(2, 4))]
        self.put(self.node("Concat", *parts, axis=1), sum(self.channels[part] for part in parts))

    def add_split(self) -> None:
        x = self.any()
        first = int(self.random.choice([1, LANES, self.channels[x] // 2]))
        if 0 < first < self.channels[x]:
            names = [f"part_{len(self.nodes)}_{i}" for i in range(2)]
            sizes = [first, self.channels[x] - first]
            self.nodes.append(onnx.helper.make_node("Split", [x, self.constant(np.array(sizes))], names, axis=1))
            for name, size in zip(names, sizes, strict=True):
                self.put(name, size)

    def add_pool(self) -> None:
        x = self.any()
        op_type = str(self.random.choice(["MaxPool", "AveragePool"]))
        self.put(self.node(op_type, x, kernel_shape=[3, 3], pads=[1] * 4), self.channels[x])

    def add_scale(self) -> None:
        x = self.any()
        mean = self.node("Sigmoid", self.node("GlobalAveragePool", x))
        self.put(self.node("Mul", x, mean), self.channels[x])

    def add_turn(self) -> None:
        """There and back, by movements that have no blocked form."""
        x = self.any()
        flat = self.node("Reshape", x, self.constant(np.array([self.batch, -1])))
        self.put(self.node("Reshape", flat, self.constant(np.array([self.batch, self.channels[x], 4, 6]))), self.channels[x])

    def finish(self) -> tuple[onnx.ModelProto, list[str]]:
        used = {name for node in self.nodes for name in node.input}
        names = [name for name in self.channels if name != "x" and (name not in used or self.random.random() < 0.1)]
        graph = onnx.helper.make_graph(
            self.nodes,
            "random",
            [onnx.helper.make_tensor_value_info("x", TensorProto.FLOAT, [self.batch, self.channels["x"], 4, 6])],
            [onnx.helper.make_value_info(name, onnx.TypeProto()) for name in names],
            self.weights,
        )
        return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 19)], ir_version=9), names


@pytest.mark.parametrize("eager", [False, True], ids=["by cost", "always blocked"])
@pytest.mark.parametrize("seed", range(25))
def test_random_graph(seed, eager, tmp_path, monkeypatch):
    if eager:
        layouts = BlockableConvolution.layouts
        monkeypatch.setattr(
            BlockableConvolution, "layouts", lambda self, *specs: [way._replace(saves=way.saves + 1e9) for way in layouts(self, *specs)]
        )
    net = RandomNet(seed)
    model, names = net.finish()
    feed = {"x": net.random.standard_normal((net.batch, net.channels["x"], 4, 6)).astype(np.float32)}
    path = tmp_path / "net.mnnx"
    mnnx.convert(model, path)
    session = mnnx.Interpreter(path).create_session(mnnx.ScheduleConfig(num_threads=1 + seed % 2))
    expected = ReferenceEvaluator(model).run(names, feed)
    for _ in range(2):
        results = session.run(feed)
        for name, right in zip(names, expected, strict=True):
            np.testing.assert_allclose(results[name], right, rtol=2e-3, atol=1e-3 * max(1.0, float(np.abs(right).max())))
