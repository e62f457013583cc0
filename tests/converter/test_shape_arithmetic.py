"""Shapes with open dims: what is known of them, and what is computed of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import mnnx

HEADER = '<ir_version: 9, opset_import: ["" : 20]>'

#: Model → its text, the ops that are left.
MODELS = {
    "own dims are copied": (
        """agraph (float[N, 4, L] x) => (float[N, 2, M] y)
        <int64 zero = {0}, int64[1] front = {0}, int64[2] rest = {2, -1}>
        { s = Shape(x)
          n = Gather(s, zero)
          u = Unsqueeze(n, front)
          t = Concat<axis = 0>(u, rest)
          y = Reshape(x, t) }""",
        {"Reshape": 1},
    ),
    "dims of fixed size are folded": (
        """agraph (float[N, 4, L] x) => (float[N, 4, L] y)
        <int64 one = {1}>
        { s = Shape(x)
          c = Gather(s, one)
          f = Cast<to = 1>(c)
          y = Div(x, f) }""",
        {"Div": 1},
    ),
    "neighbouring dims are one Shape": (
        """agraph (float[N, 4, L] x) => (float[N, L, 4] y, int64[2] z)
        <int64[1] two = {2}, int64[1] zero = {0}, int64[1] one = {1}, int64[1] three = {3}, int64[1] four = {4}, int64[2] ends = {0, 2}>
        { s = Shape(x)
          i = Cast<to = 6>(s)
          l = Slice(i, two, three, zero)
          m = Cast<to = 7>(l)
          n = Slice(s, zero, one)
          c = Concat<axis = 0>(n, m, four)
          y = Expand(four_f, c)
          z = Gather(s, ends) }""",
        {"Shape": 3, "Concat": 1, "Expand": 1, "Gather": 1},
    ),
    "a product keeps names": (
        """agraph (float[N, L, 8] x) => (float[N, L, 2, 3] y)
        <int64 zero = {0}, int64 one = {1}, int64[1] front = {0}, int64[1] two = {2}, int64[1] three = {3}>
        { s = Shape(x)
          n = Gather(s, zero)
          l = Gather(s, one)
          a = Unsqueeze(n, front)
          b = Unsqueeze(l, front)
          t = Concat<axis = 0>(a, b, two, three)
          p = MatMul(x, w)
          q = Exp(p)
          y = Reshape(q, t) }""",
        {"MatMul": 1, "Exp": 1, "Reshape": 1},
    ),
    "own dims are kept by a norm of each channel": (
        """agraph (float[N, 4, L] x) => (float[N, 4, L] y)
        <int64[3] groups = {0, 4, -1}, float[4] ones = {1, 1, 1, 1}, float[4] zeros = {0, 0, 0, 0}, float[4,1] gamma = {1, 2, 3, 4}>
        { a = Reshape(x, groups)
          b = InstanceNormalization(a, ones, zeros)
          s = Shape(x)
          c = Reshape(b, s)
          d = Mul(c, gamma)
          y = Add(d, gamma) }""",
        {"InstanceNormalization": 1},
    ),
    "an Expand to its own dims does nothing": (
        """agraph (float[N, 4, L] x) => (float[N, 4, L] y)
        { s = Shape(x)
          e = Expand(x, s)
          y = Exp(e) }""",
        {"Exp": 1},
    ),
    "a Reshape with 0 for a size of 0 stays": (
        """agraph (float[N, 4, L] x) => (float[N, L, 4] y)
        <int64 zero = {0}, int64 two = {2}, int64[1] front = {0}, int64[1] four = {4}>
        { s = Shape(x)
          n = Gather(s, zero)
          a = Unsqueeze(n, front)
          l = Gather(s, two)
          b = Unsqueeze(l, front)
          t = Concat<axis = 0>(a, b, four)
          y = Reshape<allowzero = 1>(x, t) }""",
        {"Shape": 2, "Concat": 1, "Reshape": 1},
    ),
    "a shape that is fed isn't taken for what remains": (
        """agraph (float[N, 4, L] x, int64[1] s) => (float[A] y)
        { y = Reshape(x, s) }""",
        {"Reshape": 1},
    ),
    "a Slice of an open dim leaves it open": (
        """agraph (float[N, 4, L] x) => (float[P, 4, L] y)
        <int64[1] zero = {0}, int64[1] two = {2}>
        { r = Slice(x, zero, two, zero)
          s = Shape(r)
          m = ReduceMax<keepdims = 0>(x)
          t = Expand(m, s)
          y = Add(r, t) }""",
        {"Slice": 1, "Shape": 1, "ReduceMax": 1, "Expand": 1, "Add": 1},
    ),
    "a Slice to where exporters write the end takes all": (
        """agraph (float[N, 4, L] x) => (float[P, 4, Q] y)
        <int32[2] zeros = {0, 0}, int32[2] end = {1000000000, 2147483647}, int32[2] both = {0, 2}>
        { r = Slice(x, zeros, end, both)
          s = Shape(x)
          t = Expand(r, s)
          y = Exp(t) }""",
        {"Exp": 1},
    ),
    "a number that is filled into own dims is that number": (
        """agraph (float[N, 4, L] x) => (float[N, 4, L] y)
        { s = Shape(x)
          ones = ConstantOfShape<value = float[1] {1}>(s)
          p = Mul(x, ones)
          b = Shape<start = 1>(x)
          t = Expand(one, b)
          y = Sub(t, p) }""",
        {"Sub": 1},
    ),
    "a number that is filled into more dims is not": (
        """agraph (float[N, 4, 1] x) => (float[N, 4, 4] y)
        { s = Shape(x)
          ones = ConstantOfShape<value = float[1] {1}>(s)
          y = Mul(four_f, ones) }""",
        {"Shape": 1, "ConstantOfShape": 1, "Mul": 1},
    ),
    "dims of what is filled or expanded are known by name": (
        """agraph (float[N, 4, L] x) => (float[N, 4, L] y)
        { s = Shape(x)
          zeros = ConstantOfShape(s)
          a = Max(x, zeros)
          e = Expand(a, s)
          h = Shape(e)
          y = Expand(a, h) }""",
        {"Shape": 1, "ConstantOfShape": 1, "Max": 1},
    ),
    "an Expand with -1 for what stays does nothing": (
        """agraph (float[N, 4, L] x) => (float[N, 4, L] y)
        <int64[1] zero = {0}, int64[1] two = {2}, int64[1] stays = {-1}, int64[3] all = {-1, -1, -1}, int64[3] ones = {1, 1, 1}>
        { s = Shape(x)
          n = Gather(s, zero)
          l = Gather(s, two)
          t = Concat<axis = 0>(n, stays, l)
          e = Equal(t, all)
          g = Where(e, ones, t)
          r = Expand(x, g)
          y = Exp(r) }""",
        {"Exp": 1},
    ),
    "dims of what is computed are read from the input": (
        """agraph (float[N, L, 8] x) => (int64[2] y)
        { m = MatMul(x, w)
          z = Relu(m)
          y = Shape<start = 0, end = 2>(z) }""",
        {"Shape": 1},
    ),
    "numbers times one are dims still": (
        """agraph (float[N, 4, L] x) => (float[N, M, L] y)
        <int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64[1] front = {0}, int64[1] rest = {-1}>
        { s = Shape(x)
          n = Gather(s, zero)
          m = Mul(one, n)
          f = Gather(s, one)
          d = Div(f, two)
          q = Mul(d, two)
          r = Reshape(m, rest)
          u = Unsqueeze(q, front)
          t = Concat<axis = 0>(r, u, rest)
          y = Reshape(x, t) }""",
        {"Reshape": 1},
    ),
    "a product of open dims that only its mask tells apart goes back by them": (
        """agraph (float[N, L, 8] x) => (float[A, B, C] y)
        <int64 zero = {0}, int64 one = {1}, int64[1] front = {0}, int64[1] rest = {-1}, int64[4] heads = {0, 0, 2, 4}>
        { s = Shape(x)
          n = Gather(s, zero)
          l = Gather(s, one)
          h = Reshape(x, heads)
          q = Transpose<perm = [0, 2, 1, 3]>(h)
          k = Transpose<perm = [0, 2, 3, 1]>(h)
          m = MatMul(q, k)
          p = Range(zero, l, one)
          f = Cast<to = 1>(p)
          a = Add(m, f)
          v = Softmax(a)
          o = MatMul(v, q)
          t = Transpose<perm = [0, 2, 1, 3]>(o)
          b = Unsqueeze(n, front)
          c = Unsqueeze(l, front)
          e = Concat<axis = 0>(b, c, rest)
          z = Reshape(t, e)
          y = Add(z, x) }""",
        {"Shape": 1, "Gather": 1, "Range": 1, "Cast": 1, "Reshape": 2, "mnnx::FusedAttention": 1, "Add": 1},
    ),
}
WEIGHTS = {
    "w": np.linspace(-1, 1, 48, dtype=np.float32).reshape(8, 6),
    "four_f": np.array([[[1.0, 2, 3, 4]]], np.float32),
    "one": np.array(1, np.float32),
}


def _model(name: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(HEADER + MODELS[name][0])
    used = {value for node in model.graph.node for value in node.input}
    declared = {tensor.name for tensor in model.graph.initializer}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, key) for key, array in WEIGHTS.items() if key in used - declared)
    return model


@pytest.mark.parametrize("name", MODELS)
def test_what_is_left(name: str, tmp_path: Path) -> None:
    assert dict(mnnx.convert(_model(name), tmp_path / "m.mnnx").ops_after) == MODELS[name][1]


@pytest.mark.parametrize("level", [0, 1, 2, 3])
@pytest.mark.parametrize("name", MODELS)
def test_every_level_gives_the_reference_result_for_every_size(name: str, level: int, session_of) -> None:
    model = _model(name)
    session = session_of(model, level=level)
    dims = model.graph.input[0].type.tensor_type.shape.dim
    for n, length in ((1, 2), (3, 5), (1, 1), (2, 0)):
        shape = [d.dim_value or {"N": n, "L": length}[d.dim_param] for d in dims]
        x = np.random.default_rng(n).standard_normal(shape).astype(np.float32)
        if 0 in shape and name.startswith(("own dims", "a shape that is fed", "numbers times one", "a product of open")):
            continue  # what remains can't be told, and 0 copies a dim
        feed = {"x": x, "s": np.array([x.size])}
        feed = {info.name: feed[info.name] for info in model.graph.input}
        wanted = ReferenceEvaluator(model).run(None, feed)
        for got, array in zip(session.run(feed).values(), wanted, strict=True):
            np.testing.assert_allclose(got, array, rtol=1e-5, atol=1e-6)


def test_ranks_are_known_behind_a_computed_shape(tmp_path: Path) -> None:
    """onnx's inference knows no rank for what is reshaped to a computed shape of unknown values; fusion needs one."""
    model = onnx.parser.parse_model(
        HEADER
        + """agraph (float[N, 4, H, W] x) => (float[N, 6, M] y)
        <int64[1] zero = {0}, int64[1] two = {2}, int64[1] rest = {-1}, float[6] bias = {1, 2, 3, 4, 5, 6}>
        { s = Shape(x)
          i = Cast<to = 6>(s)
          j = Slice(i, zero, two, zero)
          k = Cast<to = 7>(j)
          t = Concat<axis = 0>(k, rest)
          r = Reshape(x, t)
          a = Transpose<perm = [0, 2, 1]>(r)
          m = MatMul(a, w)
          b = Add(m, bias)
          p = Softmax(b)
          y = Transpose<perm = [0, 2, 1]>(p) }"""
    )
    model.opset_import[0].version = 12
    del model.graph.node[-2].attribute[:]
    model.graph.node[-2].attribute.append(onnx.helper.make_attribute("axis", 2))
    w = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)
    model.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    report = mnnx.convert(model, tmp_path / "m.mnnx")
    assert dict(report.ops_after) == {"Reshape": 1, "Transpose": 2, "mnnx::FusedMatMul": 1, "Softmax": 1}
    x = np.random.default_rng(1).standard_normal((2, 4, 3, 5)).astype(np.float32)
    got = mnnx.Interpreter.from_file(tmp_path / "m.mnnx").create_session().run({"x": x})["y"]
    np.testing.assert_allclose(got, ReferenceEvaluator(model).run(None, {"x": x})[0], rtol=1e-4, atol=1e-6)


def test_a_shape_that_is_fed_is_still_checked(session_of) -> None:
    session = session_of(_model("a shape that is fed isn't taken for what remains"))
    with pytest.raises(mnnx.MnnxError, match="can't be reshaped"):
        session.run({"x": np.zeros((1, 4, 2), np.float32), "s": np.array([3])})


def test_numbers_beyond_int32_wrap_as_they_are_cast(session_of) -> None:
    """Exporters write the largest int64 for "to the end"."""
    text = HEADER + (
        """agraph (float[N, 4] x) => (int32[2] y)
        <int64[1] zero = {0}, int64[1] end = {9223372036854775807}>
        { s = Shape(x)
          n = Gather(s, zero)
          e = Concat<axis = 0>(n, end)
          y = Cast<to = 6>(e) }"""
    )
    for level in range(4):
        result = session_of(text, level=level).run({"x": np.zeros((3, 4), np.float32)})["y"]
        assert (result.dtype, result.tolist()) == (np.int32, [3, -1])


@pytest.mark.parametrize(
    ("lists", "error"),
    [
        ("int64[1] starts = {0}, int64[2] axes = {0, 1}, int64[2] steps = {1, 1}", "as long as starts"),
        ("int64[2] starts = {0, 0}, int64[3] axes = {0, 1, 0}, int64[2] steps = {1, 1}", "axes"),
        ("int64[2] starts = {0, 0}, int64[2] axes = {0, 1}, int64[1] steps = {1}", "steps"),
    ],
)
def test_a_run_says_that_the_numbers_of_a_slice_are_of_different_lengths(lists: str, error: str, session_of) -> None:
    session = session_of(
        HEADER + f"agraph (float[N, 4] x) => (float[A, B] y) <{lists}> {{ e = Shape(x) y = Slice(x, starts, e, axes, steps) }}"
    )
    with pytest.raises(mnnx.InputError, match=error):
        session.run({"x": np.zeros((3, 4), np.float32)})


def test_a_size_below_0_is_no_dim(session_of) -> None:
    session = session_of(
        HEADER
        + "agraph (float[N] x) => (float[A, B] y) <int64[1] m = {-3}> { s = Shape(x) t = Concat<axis = 0>(m, s) y = ConstantOfShape(t) }"
    )
    assert session.outputs["y"].shape == (-1, -1)  # open
    with pytest.raises(mnnx.InputError, match="-3"):
        session.run({"x": np.zeros(3, np.float32)})


def test_an_open_dim_expanded_to_a_size_is_of_that_size(session_of) -> None:
    session = session_of(HEADER + "agraph (float[N] x, float[B] w) => (float[A] y) <int64[1] n = {5}> { y = Expand(x, n) }")
    assert session.outputs["y"].shape == (5,)


@pytest.mark.parametrize("length", [0, 1, 4])
def test_a_squeeze_of_all_dims_of_1_may_take_an_open_one(length: int, session_of) -> None:
    text = HEADER + "agraph (float[1, N, 1] x) => (float[A] y) <int64[1] rest = {-1}> { s = Squeeze(x) r = Relu(s) y = Reshape(r, rest) }"
    session = session_of(text)
    x = np.ones((1, length, 1), np.float32)
    np.testing.assert_array_equal(session.run({"x": x})["y"], x.reshape(-1))


@pytest.mark.parametrize(
    "body",
    [
        "y = Concat<axis = 0>(x, k) r = Relu(y) s = Shape(r)",
        "y = Slice(x, zero, count) r = Relu(y) s = Shape(r)",
        "y = Slice(x, zero, count) r = Slice(k, zero, one) a = Shape(y) b = Shape(r) s = Concat<axis = 0>(a, b)",
        "y = Slice(x, zero, count) r = Slice(k, one, count) t = Shape(y) e = Expand(r, t) s = Shape(e)",
    ],
)
@pytest.mark.parametrize("names", ["float[N] y, float[N] r", "float[A] y, float[A] r"])
def test_names_that_outputs_are_declared_with_prove_nothing(names: str, body: str, session_of) -> None:
    lists = "int64[1] zero = {0}, int64[1] one = {1}"
    text = HEADER + f"agraph (float[N] x, float[M] k, int64[1] count) => ({names}, int64[S] s) <{lists}> {{ {body} }}"
    feed = {"x": np.ones(3, np.float32), "k": np.ones(4, np.float32), "count": np.array([2])}
    wanted = ReferenceEvaluator(onnx.parser.parse_model(text)).run(None, feed)
    for level in (0, 1, 2):
        for got, array in zip(session_of(text, level=level).run(feed).values(), wanted, strict=True):
            np.testing.assert_array_equal(got, array)
