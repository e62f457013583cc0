"""Independent ops side by side: the same bits as one after the other, whatever runs beside what."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from onnx import TensorProto, helper

import mnnx
from mnnx import InputError, ScheduleConfig
from mnnx.schema.ops.elementwise import Elementwise
from mnnx.schema.ops.raster import Raster
from tests.interpreter.test_random_graphs import RandomNet
from tests.networks import SMALL, Builder, feed_for
from tests.random_models import Case, models
from tests.test_random_models import COMMON

HEAD = '<ir_version: 8, opset_import: ["" : 18]>'


def branches(count: int, depth: int, channels: int = 16, size: int = 12) -> onnx.ModelProto:
    """As many convolutional towers on one input, whose results are put together and added up."""
    b = Builder(7)
    ends = []
    for branch in range(count):
        x = b.conv("x", 3, channels, 1 + 2 * (branch % 2))
        for _ in range(depth + branch % 3):
            x = b.node("Relu", b.conv(x, channels, channels, 3))
        ends.append(b.node("Sigmoid", b.node("Neg", x)))
    y = b.node("Concat", *ends, axis=1) if count > 1 else ends[0]
    y = b.node("Relu", b.conv(y, channels * count, 8))
    return b.model({"x": (TensorProto.FLOAT, [1, 3, size, size])}, y, [1, 8, size, size])


def units_of(session: mnnx.Session) -> list:
    return [unit for plan in session._last.trail for pipeline in plan.pipelines for unit in pipeline.units]


def together(interpreter: mnnx.Interpreter, feed: dict, threads: int, widths: tuple[int, ...], runs: int = 3) -> list[mnnx.Session]:
    """Sessions of these widths, whose results are those of one with a width of 1."""
    wanted = interpreter.create_session(ScheduleConfig(num_threads=threads)).run(feed)
    sessions = [interpreter.create_session(ScheduleConfig(num_threads=threads, inter_op_threads=width)) for width in widths]
    for session in sessions:
        for _ in range(runs):
            got = session.run(feed)
            for name, value in wanted.items():
                np.testing.assert_array_equal(got[name], value)
        check_waves(session)
    return sessions


def check_waves(session: mnnx.Session) -> None:
    """No unit writes what another lane of its wave reads or writes."""
    waves: dict[int, list] = {}
    for unit in units_of(session):
        waves.setdefault(unit.wave, []).append(unit)
    for units in waves.values():
        assert len({unit.lane for unit in units}) <= session.config.inter_op_threads
        for one, other in combinations(units, 2):
            if one.lane != other.lane:
                for a, b in ((one, other), (other, one)):
                    read = [whole(t) for t in (*b.inputs, b.scratch) if t is not None]
                    assert not any(overlap(w, t) for w in written(a) for t in [*read, *written(b)]), (a.node.name, b.node.name)


def whole(tensor) -> tuple:
    """The memory of a tensor, and its first byte and its end there."""
    return tensor.memory, tensor.offset, tensor.offset + tensor.backend.stored_bytes(tensor.spec, tensor.layout)


def written(unit) -> list[tuple]:
    """What a unit writes, as `whole`. Of a Raster the regions, without what lies in its result from the start."""
    places = [whole(tensor) for tensor in (*unit.outputs, unit.scratch) if tensor is not None and tensor.spec.nbytes]
    if not isinstance(unit.op, Raster) or unit.op.fill is not None or unit.outputs[0].layout:
        return places
    (memory, start, _), *others = places or [(None, 0, 0)]
    size = unit.op.dtype.itemsize
    spans = [region.target_span() for region in unit.op.regions if region.count]
    return [(memory, start + first * size, start + (last + 1) * size) for first, last in spans] + others


def overlap(a: tuple, b: tuple) -> bool:
    return a[0] is b[0] and a[1] < b[2] and b[1] < a[2]


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("level", [0, 2, 3])
def test_towers_agree_to_the_bit(session_of, threads, level):
    model = branches(5, 2)
    feed = feed_for(model, {})
    session = session_of(model, level=level)
    for wide in together(session.interpreter, feed, threads, (2, 3, 8), runs=20):
        sizes = [len({u.lane for u in units_of(wide) if u.wave == wave}) for wave in {u.wave for u in units_of(wide)}]
        assert max(sizes) == min(wide.config.inter_op_threads, 5)


@pytest.mark.parametrize("name", SMALL)
def test_networks_agree_to_the_bit(session_of, name):
    make, sizes = SMALL[name]
    model = make()
    together(session_of(model).interpreter, feed_for(model, sizes), 2, (2, 4), runs=10)


@pytest.mark.parametrize("seed", range(40))
def test_random_nets_agree_to_the_bit(session_of, seed):
    net = RandomNet(seed)
    outputs = list(net.channels)[-3:]
    graph = helper.make_graph(
        net.nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [net.batch, net.channels["x"], 4, 6])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs if name != "x"],
        net.weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    feed = {"x": np.random.default_rng(seed).standard_normal((net.batch, net.channels["x"], 4, 6)).astype(np.float32)}
    together(session_of(model, level=seed % 4).interpreter, feed, 2, (2, 5))


@settings(max_examples=25, derandomize=True, **COMMON)
@given(models())
def test_random_models_agree_to_the_bit(tmp_path_factory, case: Case) -> None:
    path = tmp_path_factory.mktemp("waves") / "model.mnnx"
    mnnx.convert(case.model, path, level=2)
    with mnnx.Interpreter.from_file(path) as interpreter:
        together(interpreter, case.feed, 2, (3,))


def test_elementwise_ops_that_follow_one_another_stay_in_their_lane(session_of):
    model = f"""{HEAD} g (float[9, 9] a, float[9, 9] b) => (float[9, 9] y, float[9, 9] z)
        {{ c = Sin(a) d = Exp(c) y = Mul(d, b) e = Cos(b) f = Exp(e) z = Mul(f, a) }}"""
    session = session_of(model, num_threads=2, inter_op_threads=2)
    session.run({"a": np.ones((9, 9), np.float32), "b": np.ones((9, 9), np.float32)})
    places = [(unit.wave, unit.lane) for unit in units_of(session)]
    assert places == [(0, 0)] * 3 + [(0, 1)] * 3
    assert all(isinstance(unit.op, Elementwise) for unit in units_of(session))


def test_the_longest_path_goes_first(session_of):
    """Of three branches two may run at once: the short one waits."""
    model = f"""{HEAD} g (float[1, 64, 64] x) => (float[1, 64, 64] y, float[1, 64, 64] z, float[1, 64, 64] s)
        {{ s = Softmax(x) a = MatMul(x, x) b = MatMul(a, x) y = Softmax(b) c = MatMul(x, x) d = MatMul(x, c) z = Softmax(d) }}"""
    session = session_of(model, level=0, num_threads=2, inter_op_threads=2)
    session.run({"x": np.full((1, 64, 64), 0.01, np.float32)})
    waves = {unit.node.op.name + str(i): unit.wave for i, unit in enumerate(units_of(session))}
    assert [wave for name, wave in waves.items() if name.startswith("MatMul")] == [0, 0, 1, 1]


@pytest.mark.parametrize("bad", ["i", "j", "both"])
def test_an_error_in_a_branch_names_its_op_and_leaves_the_session_usable(session_of, bad):
    model = f"""{HEAD} g (float[8, 4] x, int64[3] i, int64[3] j) => (float[3, 4] y, float[3, 4] z)
        {{ a = Gather(x, i) y = Softmax(a) b = Gather(x, j) z = Softmax(b) }}"""
    session = session_of(model, num_threads=2, inter_op_threads=2)
    good = {"x": np.eye(8, 4, dtype=np.float32), "i": np.array([0, 1, 2]), "j": np.array([2, 1, 0])}
    wanted = session.run(good)
    for _ in range(10):
        with pytest.raises(InputError, match="Gather") as error:
            session.run(good | {name: np.array([0, 77 if name == "i" else 99, 1]) for name in ("i", "j") if bad in (name, "both")})
        assert ("77" in str(error.value)) + ("99" in str(error.value)) == 1
        got = session.run(good)
        assert all(np.array_equal(got[name], wanted[name]) for name in wanted)


def test_python_functions_run_alone_and_callbacks_see_ops_one_by_one(session_of):
    model = f"""{HEAD} g (double[2, 6] x) => (double[2, 6] y, double[2, 6] z)
        {{ a = Softmax(x) y = CumSum(a, k) b = Hardmax(x) z = CumSum(b, k) }}""".replace("{ a", "{ k = Constant<value = int64 {1}>() a")
    session = session_of(model, num_threads=2, inter_op_threads=2)
    feed = {"x": np.arange(12, dtype=np.float64).reshape(2, 6)}
    one = session.interpreter.create_session(ScheduleConfig(num_threads=2)).run(feed)
    seen = []
    assert session.run_with_callbacks(lambda t, i: True, lambda t, i: seen.append(i.type), feed) == 0
    assert sorted(seen) == ["CumSum", "CumSum", "Hardmax", "Softmax"]
    for _ in range(3):
        got = session.run(feed)
        assert all(np.array_equal(got[name], one[name]) for name in one)


def test_a_loops_body_runs_its_branches_side_by_side(session_of):
    model = f"""{HEAD} g (int64 n, float[5, 5] x) => (float[5, 5] y)
        {{ y = Loop(n, , x) <body = b (int64 i, bool c, float[5, 5] s) => (bool d, float[5, 5] t)
           {{ d = Identity(c) u = Softmax(s) v = MatMul(s, s) w = Softmax<axis = 0>(v) t = Add(u, w) }}> }}"""
    interpreter = session_of(model).interpreter
    feed = {"n": np.array(200), "x": np.random.default_rng(0).standard_normal((5, 5)).astype(np.float32)}
    together(interpreter, feed, 2, (2,))


def test_wide_sessions_on_one_team_agree_to_the_bit(session_of):
    model = branches(4, 3)
    feed = feed_for(model, {})
    with mnnx.ThreadTeam(2) as team:
        session = session_of(model, team=team, inter_op_threads=3)
        wanted = session.interpreter.create_session(ScheduleConfig(num_threads=2)).run(feed)["y"]
        for future in [session.run_async(feed) for _ in range(50)]:
            np.testing.assert_array_equal(future.result()["y"], wanted)
