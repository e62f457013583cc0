"""Plans: shapes that change, shapes that depend on data, views, memory that is taken over, and what is computed in advance."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from mnnx.interpreter.runner import CACHED_PLANS
from tests.networks import SMALL, feed_for

HEAD = '<ir_version: 8, opset_import: ["" : 18]>'


def reference(text_or_model, feed):
    import onnx

    model = onnx.parser.parse_model(text_or_model) if isinstance(text_or_model, str) else text_or_model
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, feed)


@pytest.mark.parametrize("level", [0, 1, 2, 3])
@pytest.mark.parametrize("name", SMALL)
def test_networks_agree_with_onnxruntime_at_every_level_and_shape(session_of, name, level):
    make, sizes = SMALL[name]
    model = make()
    session = session_of(model, level=level, num_threads=2)
    for batch in (1, 3, 1):
        feed = feed_for(model, sizes | {"n": batch}, seed=batch)
        np.testing.assert_allclose(session.run(feed)["y"], reference(model, feed)[0], rtol=2e-4, atol=2e-5)


GROWING = (
    HEAD
    + """g (float[n,m] x) => (float[k,m] y, int64[2] s)
    { two = Constant<value = int64[2] {2, 1}>() t = Tile(x, two) y = Relu(t) s = Shape(y) }"""
)


def test_another_shape_resizes_by_itself(session_of):
    session = session_of(GROWING)
    for shape in ((2, 3), (5, 1), (2, 3), (0, 4)):
        x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        result = session.run({"x": x})
        np.testing.assert_array_equal(result["y"], np.maximum(np.tile(x, (2, 1)), 0))
        assert result["s"].tolist() == [2 * shape[0], shape[1]]
        assert session.outputs["y"].shape == (2 * shape[0], shape[1])
        assert session.inputs["x"].shape == shape


def test_a_shape_seen_before_is_not_planned_anew(session_of, monkeypatch):
    from mnnx.interpreter import runner

    built = []
    build = runner.Planner.build
    monkeypatch.setattr(runner.Planner, "build", lambda self: built.append(1) or build(self))
    session = session_of(GROWING)
    for rows in (2, 3, 2, 3, 2):
        session.run({"x": np.zeros((rows, 1), np.float32)})
    assert len(built) == 2
    for rows in range(4, 4 + CACHED_PLANS - 1):
        session.run({"x": np.zeros((rows, 1), np.float32)})
    session.run({"x": np.zeros((2, 1), np.float32)})  # used later than 3, so still there
    assert len(built) == 2 + CACHED_PLANS - 1
    session.run({"x": np.zeros((3, 1), np.float32)})
    assert len(built) == 2 + CACHED_PLANS
    assert len(session._last._plans) == CACHED_PLANS


def test_resize_tells_output_shapes_before_a_run(session_of):
    session = session_of(GROWING)
    assert session.outputs["y"].shape == (-1, -1)
    session.resize({"x": (4, 3)})
    assert session.outputs["y"].shape == (8, 3)
    assert session.placement()
    assert session.info()["arena_bytes"] > 0


SEGMENTS = (
    HEAD
    + """g (float[n] x) => (float[k,2] y, int64[1] count, float[1] total)
    { z = Constant<value = float {0}>() m = Greater(x, z) at = NonZero(m) two = Constant<value = int64[2] {-1, 1}>()
      rows = Reshape(at, two) picked = GatherND(x, rows) col = Reshape(picked, two) a = Relu(col) b = Neg(a) y = Concat<axis=1>(a, b)
      inside = Greater(y, z) again = NonZero(inside) s = Shape(again) one = Constant<value = int64[1] {1}>() count = Gather<axis=0>(s, one)
      long = Expand(z, count) ones = Exp(long) total = ReduceSum<keepdims=1>(ones) }"""
)


@pytest.mark.parametrize("level", [0, 2])
def test_shapes_that_depend_on_data(session_of, level):
    session = session_of(SEGMENTS, level=level)
    for values in ([1, -1, 2], [3, 0, -1], [1, 2, 3], [-1, -2], []):
        x = np.array(values, np.float32)
        found, wanted = session.run({"x": x}), reference(SEGMENTS, {"x": x})
        for name, array in zip(("y", "count", "total"), wanted, strict=True):
            np.testing.assert_allclose(found[name], array, rtol=1e-6, err_msg=name)
            assert found[name].shape == array.shape
    kinds = [row.op_type for row in session.placement()]
    assert kinds.count("NonZero") == 2


def test_what_follows_is_planned_anew_only_where_its_shape_changed(session_of, monkeypatch):
    from mnnx.interpreter import runner

    built = []
    build = runner.Planner.build
    monkeypatch.setattr(runner.Planner, "build", lambda self: built.append(1) or build(self))
    session = session_of(SEGMENTS)
    session.run({"x": np.array([1, -1, 2], np.float32)})
    first = len(built)
    session.run({"x": np.array([4, 5, -2], np.float32)})  # two are positive again
    assert len(built) == first
    session.run({"x": np.array([-4, 5, -2], np.float32)})
    assert len(built) > first


def test_values_that_outlive_a_segment_are_kept(session_of):
    """`a` is made before NonZero runs, and used in both later segments."""
    text = (
        HEAD
        + """g (float[n] x) => (float[m] y, float[m] w)
        { a = Exp(x) at = NonZero(x) i = Cast<to=7>(at) o = Constant<value = int64[1] {0}>() j = Squeeze(i, o)
          p = Gather<axis=0>(a, j) q = Neg(p) at2 = NonZero(q) k = Squeeze(at2, o) y = Gather<axis=0>(a, k) w = Add(p, y) }"""
    )
    session = session_of(text)
    x = np.array([1, 2, 0.5], np.float32)
    result = session.run({"x": x})
    np.testing.assert_allclose(result["y"], np.exp(x), rtol=1e-6)
    np.testing.assert_allclose(result["w"], 2 * np.exp(x), rtol=1e-6)


@pytest.mark.parametrize("level", [0, 2])
def test_memory_is_taken_over_only_when_nobody_needs_it(session_of, level):
    text = (
        HEAD
        + """g (float[n,4] x) => (float[n,4] y, float[n,4] z, float[4,n] t, float[k] v)
        { a = Exp(x) b = Neg(a) c = Relu(b) d = Add(a, c) m = Constant<value = int64[1] {-1}>() v = Reshape(d, m) e = Neg(d) f = Exp(e)
          y = Add(f, f) z = Mul(d, y) t = Transpose(d) }"""
    )
    session = session_of(text, level=level)
    for rows in (1, 5, 1):
        x = np.random.default_rng(rows).standard_normal((rows, 4)).astype(np.float32)
        found = session.run({"x": x})
        for name, array in zip("yztv", reference(text, {"x": x}), strict=True):
            np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6, err_msg=name)
        np.testing.assert_array_equal(x, np.random.default_rng(rows).standard_normal((rows, 4)).astype(np.float32))


def test_an_op_may_read_one_value_twice(session_of):
    text = HEAD + "g (float[n] x) => (float[n] y) { a = Neg(x) b = Mul(a, a) c = Sub(b, b) d = Add(c, b) y = Pow(d, d) }"
    x = np.array([0.5, 1.5], np.float32)
    np.testing.assert_allclose(session_of(text, level=0).run({"x": x})["y"], reference(text, {"x": x})[0], rtol=1e-6)


def test_shape_arithmetic_is_no_work_at_run_time(session_of):
    text = (
        HEAD
        + """g (float[n,6] x) => (float[n,3,2] y)
        { s = Shape<start=0, end=1>(x) t = Constant<value = int64[2] {3, 2}>() u = Concat<axis=0>(s, t) y = Reshape(x, u) }"""
    )
    session = session_of(text, level=0)
    session.run({"x": np.zeros((2, 6), np.float32)})
    assert {row.op_type for row in session.placement()} <= {"Reshape"}
    assert session.info()["arena_bytes"] <= 64


def test_info_counts(session_of):
    text = HEAD + "g (float[4,8] x) => (float[4,3] y) <float[8,3] w = {" + ",".join(["1"] * 24) + "}> { y = MatMul(x, w) }"
    info = session_of(text, num_threads=1).info()
    assert info["flops"] == 2 * 4 * 8 * 3
    assert info["weight_bytes"] == 96
    assert (info["num_threads"], info["backends"]) == (1, ["cpu"])
    assert info["arena_bytes"] >= info["arena_lower_bound_bytes"] >= 4 * 4 * (8 + 3)


def test_placement_has_a_row_per_op(session_of):
    session = session_of(HEAD + "g (float[2] x) => (int64[2] y, float[2] z) { z = Relu(x) y = Cast<to=7>(z) }", level=0)
    assert [tuple(row)[1:] for row in session.placement()] == [("Relu", "float32", "cpu", ""), ("Cast", "int64", "cpu", "")]


def test_a_long_chain_of_views_is_one_view(session_of):
    chain = "".join(f"v{i + 1} = {('Identity(v%d)', 'Reshape(v%d, s)')[i % 2] % i} " for i in range(3000))
    session = session_of(
        f"{HEAD}g (float[4,4] x) => (float[4,4] y) <int64[2] s = {{4, -1}}> {{ v0 = Relu(x) {chain} y = Identity(v3000) }}", level=0
    )
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    np.testing.assert_array_equal(session.run({"x": x})["y"], x)
