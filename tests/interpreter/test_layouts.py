"""Layouts over whole graphs: who repacks, and that results stay what they are."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

import mnnx
from mnnx.backends.cpu.executions.blocked_convolution import BlockableConvolution
from mnnx.backends.cpu.target import Target
from mnnx.interpreter import plan
from tests.networks import Builder, feed_for

LANES = Target.host().vector_bytes // 4
SIZE = 8


@pytest.fixture(autouse=True)
def _eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions that can be blocked want that, however small they are."""
    layouts = BlockableConvolution.layouts

    def eager(self, inputs, outputs, lanes):
        return [way._replace(saves=way.saves + 1e9) for way in layouts(self, inputs, outputs, lanes)]

    monkeypatch.setattr(BlockableConvolution, "layouts", eager)


class Net:
    """A network of float32 [n, channels, SIZE, SIZE] → `outputs`."""

    def __init__(self, tmp_path, build: Callable[[Builder], tuple[str, ...]], channels: int = 3, batch: int = 1):
        b = Builder(0)
        names = build(b)
        info = onnx.helper.make_tensor_value_info
        graph = onnx.helper.make_graph(
            b.nodes,
            "net",
            [info("x", TensorProto.FLOAT, [batch, channels, SIZE, SIZE])],
            [onnx.helper.make_value_info(name, onnx.TypeProto()) for name in names],
            b.weights,
        )
        self.model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 19)], ir_version=9)
        self.names = names
        self.feed = feed_for(self.model)
        self.path = tmp_path / "net.mnnx"
        mnnx.convert(self.model, self.path)

    def session(self, threads: int = 1, **options) -> mnnx.Session:
        return mnnx.Interpreter(self.path).create_session(mnnx.ScheduleConfig(num_threads=threads, **options))

    def ops(self) -> Counter[str]:
        """How often each op runs, those that the planner put in included."""
        seen: Counter[str] = Counter()
        self.session().run_with_callbacks(lambda tensors, info: None, lambda tensors, info: seen.update([info.type]), self.feed)
        return seen

    def repacks(self) -> int:
        return self.ops()["mnnx::Repack"]

    def check(self) -> None:
        """The results are the reference's, on one thread and on two, and do not change from run to run."""
        expected = ReferenceEvaluator(self.model).run(list(self.names), self.feed)
        for threads in (1, 2):
            session = self.session(threads)
            for _ in range(2):
                results = session.run(self.feed)
                for name, right in zip(self.names, expected, strict=True):
                    np.testing.assert_allclose(results[name], right, rtol=1e-3, atol=1e-4)


def relu(b: Builder, x: str) -> str:
    return b.node("Relu", x)


def classify(b: Builder, x: str, channels: int) -> str:
    x = b.node("Flatten", b.node("GlobalAveragePool", x))
    return b.node("Gemm", x, b.weight(channels, 5, fan_in=channels), b.weight(5, fan_in=200))


CHANNELS = [2 * LANES, LANES + LANES // 2, 2 * LANES + 3, 5]


@pytest.mark.parametrize("channels", CHANNELS)
def test_a_chain_stays_blocked(tmp_path, channels):
    def build(b):
        x = relu(b, b.conv("x", 3, channels, 3))
        y = b.node("Add", x, relu(b, b.conv(x, channels, channels)))
        y = b.node("MaxPool", relu(b, y), kernel_shape=[3, 3], strides=[2, 2])
        y = b.node("Concat", y, b.node("AveragePool", y, kernel_shape=[1, 1]), axis=1)
        y = b.node("Resize", y, "", b.constant(np.array([1, 1, 2, 2], np.float32)), mode="linear")
        y = b.node("Pad", y, b.constant(np.array([0, 0, 1, 1, 0, 0, 0, 0])))
        y = b.node("Sigmoid", b.node("Mul", y, b.constant(np.float32(0.3))))
        return (relu(b, b.conv(y, 2 * channels, LANES, 3)),)

    net = Net(tmp_path, build)
    assert net.repacks() == 1 or channels % LANES  # the output; where blocks would be half empty, plain tensors may cost less
    net.check()


@pytest.mark.parametrize("channels", CHANNELS)
def test_branches_that_are_concatenated(tmp_path, channels):
    def build(b):
        x = relu(b, b.conv("x", 3, channels, 3))
        for _ in range(2):
            small = relu(b, b.conv(x, channels, LANES))
            x = b.node("Concat", relu(b, b.conv(small, LANES, channels)), relu(b, b.conv(small, LANES, channels, 3)), axis=1)
            x = relu(b, b.conv(x, 2 * channels, channels))
        return (classify(b, x, channels),)

    net = Net(tmp_path, build, batch=2)
    assert net.repacks() == (0 if channels % LANES == 0 else 1)  # what is pooled, to be flattened
    net.check()


@pytest.mark.parametrize("channels", CHANNELS)
def test_squeeze_and_excitation(tmp_path, channels):
    def build(b):
        x = b.node("HardSwish", b.conv("x", 3, channels, 3))
        scale = relu(b, b.conv(b.node("GlobalAveragePool", x), channels, 4))
        scale = b.node("HardSigmoid", b.conv(scale, 4, channels))
        x = b.node("Add", b.node("Mul", x, scale), b.node("Tanh", b.conv(x, channels, channels)))
        return (b.conv(x, channels, LANES),)

    net = Net(tmp_path, build, batch=2)
    around_the_gate = 3 if channels % LANES else 0  # its products of one pixel are plain; whole blocks are the same bytes there
    assert net.repacks() <= 1 + around_the_gate
    net.check()


def test_channels_that_are_split_lie_where_they_were(tmp_path):
    def build(b):
        x = relu(b, b.conv("x", 3, 3 * LANES + 1, 3))
        sizes = b.constant(np.array([LANES, 2 * LANES + 1]))
        b.nodes.append(onnx.helper.make_node("Split", [x, sizes], ["first", "second"], name="split", axis=1))
        first = relu(b, b.conv("first", LANES, 2 * LANES + 1))
        return (relu(b, b.conv(b.node("Add", first, "second"), 2 * LANES + 1, LANES)),)

    net = Net(tmp_path, build)
    assert net.repacks() == 1
    assert "Split" not in net.ops()
    net.check()


def test_channels_that_are_split_within_blocks(tmp_path):
    def build(b):
        x = relu(b, b.conv("x", 3, 2 * LANES, 3))
        sizes = b.constant(np.array([3, 2 * LANES - 3]))
        b.nodes.append(onnx.helper.make_node("Split", [x, sizes], ["first", "second"], name="split", axis=1))
        return b.conv("first", 3, LANES), b.conv("second", 2 * LANES - 3, LANES)

    net = Net(tmp_path, build, batch=2)
    assert net.repacks() == 2
    net.check()


def test_elementwise_ops_alone_are_not_worth_blocks(tmp_path):
    def build(b):
        return (b.node("Sigmoid", b.node("Add", b.node("Relu", "x"), b.weight(2 * LANES, 1, 1, fan_in=2))),)

    net = Net(tmp_path, build, channels=2 * LANES)
    assert net.repacks() == 0
    net.check()


def test_a_value_is_repacked_once_for_all_that_read_it(tmp_path):
    def build(b):
        x = relu(b, b.conv("x", 3, 2 * LANES, 3))
        flat = b.node("Reshape", x, b.constant(np.array([1, -1, 2])))
        turned = b.node("Transpose", x, perm=[0, 2, 3, 1])
        return flat, turned, b.node("Softmax", x, axis=1), x, b.node("Transpose", b.node("Flatten", x, axis=2), perm=[1, 0])

    net = Net(tmp_path, build)
    assert net.repacks() == 1
    net.check()


def test_a_plain_value_is_repacked_once_for_all_convolutions(tmp_path):
    def build(b):
        x = b.node("Softmax", b.node("Transpose", "x", perm=[0, 1, 3, 2]), axis=1)
        return (b.node("Add", b.conv(x, 8 * LANES, LANES, 3), b.node("Mul", b.conv(x, 8 * LANES, LANES), b.conv(x, 8 * LANES, LANES))),)

    net = Net(tmp_path, build, channels=8 * LANES)
    assert net.repacks() <= 2  # that one, and the output
    net.check()


def test_one_channel_is_computed_plain(tmp_path):
    def build(b):
        x = relu(b, b.conv("x", 3, 2 * LANES, 3))
        mask = b.node("Sigmoid", b.node("Exp", b.node("Neg", b.node("Abs", b.conv(x, 2 * LANES, 1)))))
        return b.conv(b.node("Mul", x, mask), 2 * LANES, LANES), mask

    net = Net(tmp_path, build)
    assert net.repacks() <= 2
    net.check()


def test_callbacks_and_inner_tensors_see_plain_values(tmp_path):
    def build(b):
        x = relu(b, b.conv("x", 3, LANES + 3, 3))
        y = b.node("MaxPool", x, kernel_shape=[3, 3])
        return x, y, b.conv(y, LANES + 3, LANES)

    net = Net(tmp_path, build)
    expected = dict(zip(net.names, ReferenceEvaluator(net.model).run(list(net.names), net.feed), strict=True))
    seen = {}

    def after(tensors, info):
        seen.update({tensor.name: tensor.copy_to_host() for tensor in tensors if tensor is not None})

    net.session().run_with_callbacks(lambda tensors, info: True, after, net.feed)
    for name in net.names:
        assert seen[name].shape == expected[name].shape
        np.testing.assert_allclose(seen[name], expected[name], rtol=1e-3, atol=1e-4)
    inner = net.session().run(net.feed, outputs=[net.names[1]])
    np.testing.assert_allclose(inner[net.names[1]], expected[net.names[1]], rtol=1e-3, atol=1e-4)


def test_values_outlive_a_plan_in_plain_form(tmp_path):
    def build(b):
        x = relu(b, b.conv("x", 3, LANES, 3))
        chosen = b.node("NonZero", b.node("Greater", x, b.constant(np.float32(0.5))))
        count = b.node("Shape", chosen)
        return b.node("Mul", b.conv(x, LANES, LANES), b.node("Cast", b.node("ReduceMax", count, keepdims=0), to=TensorProto.FLOAT)), x

    Net(tmp_path, build).check()


def test_every_shape_has_layouts_of_its_own(tmp_path):
    def build(b):
        x = relu(b, b.conv("x", 3, LANES, 3))
        return (b.node("Concat", b.node("Resize", x, "", b.constant(np.array([1, 1, 2, 2], np.float32))), axis=2),)

    net = Net(tmp_path, build, batch="n")
    session = net.session()
    for batch in (1, 3, 1):
        feed = {"x": np.random.default_rng(batch).standard_normal((batch, 3, SIZE, SIZE)).astype(np.float32)}
        (expected,) = ReferenceEvaluator(net.model).run(list(net.names), feed)
        np.testing.assert_allclose(session.run(feed)[net.names[0]], expected, rtol=1e-3, atol=1e-4)


def test_plain_and_blocked_plans_agree_and_need_similar_memory(tmp_path, monkeypatch):
    def build(b):
        x = relu(b, b.conv("x", 3, 2 * LANES, 3))
        for _ in range(3):
            x = b.node("Add", x, relu(b, b.conv(x, 2 * LANES, 2 * LANES, 3)))
        return (x,)

    net = Net(tmp_path, build)
    session = net.session()
    blocked, memory = session.run(net.feed), session.info()["arena_bytes"]
    monkeypatch.setattr(plan, "assign_layouts", lambda values, steps, kept: (list(steps), {i: i for i in kept}))
    session = net.session()
    plain = session.run(net.feed)
    np.testing.assert_allclose(blocked[net.names[0]], plain[net.names[0]], rtol=1e-3, atol=1e-4)
    assert memory <= 2 * session.info()["arena_bytes"]
