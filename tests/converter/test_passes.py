"""Each pass on a small graph: how often it fired, which ops are left, and equal numbers at every level."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import mnnx
from mnnx.converter.passes import documentation, list_passes
from tests.converter.filled import filled
from tests.converter.recognised import RECOGNISED

#: pass → (model, {rewrite: count}, ops that are left)
MODELS = RECOGNISED | {
    "affine-folding": (
        """agraph (float[1,3,6,6] x) => (float[1,4,4,4] y)
        <float[4,3,3,3] w, float[4] gamma, float[4] beta, float[4] mean, float[4] variance, float[4,1,1] scale>
        { c = Conv(x, w)
          n = BatchNormalization(c, gamma, beta, mean, variance)
          y = Mul(n, scale) }""",
        {"scale and shift into the product before": 2},
        {"Conv": 1},
    ),
    "epilogue-fusion": (
        """agraph (float[1,3,6,6] x, float[1,4,6,6] r) => (float[1,4,6,6] y)
        <float[4,3,1,1] w>
        { c = Conv(x, w)
          s = Add(r, c)
          y = Relu(s) }""",
        {"residual sum": 1, "activation": 1},
        {"mnnx::FusedConv": 1},
    ),
    "epilogue-fusion of a matrix product": (
        """agraph (float[2,5,8] x) => (float[2,5,6] y)
        <float[8,6] w, float[6] b>
        { p = MatMul(x, w)
          s = Add(p, b)
          y = Sigmoid(s) }""",
        {"bias into MatMul": 1, "activation": 1},
        {"mnnx::FusedMatMul": 1},
    ),
    "epilogue-fusion of a Gemm": (
        """agraph (float[5,8] x) => (float[5,6] y)
        <float[6,8] w, float[6] b>
        { p = Gemm<transB = 1, alpha = 0.5>(x, w, b)
          y = LeakyRelu<alpha = 0.2>(p) }""",
        {"Gemm to MatMul": 1, "activation": 1},
        {"mnnx::FusedMatMul": 1},
    ),
    "epilogue-fusion of a scaled product": (
        """agraph (float[2,5,8] x, float[2,8,6] z) => (float[2,5,6] y)
        <float eight = {8}, float[6] b>
        { p = MatMul(x, z)
          s = Div(p, eight)
          y = Add(s, b) }""",
        {"scale into MatMul": 1, "bias into MatMul": 1},
        {"mnnx::FusedMatMul": 1},
    ),
    "epilogue-fusion of a learned scale": (
        """agraph (float[1,3,6,6] x) => (float[1,4,6,6] y)
        <float[4,3,1,1] w, float[1] s = {-0.4}, float t = {0.25}, float d = {3}, float[4,4,3,3] v>
        { c = Conv(x, w)
          h = HardSwish(c)
          m = Mul(s, h)
          a = Sub(t, m)
          b = Div(a, d)
          y = Conv<pads = [1, 1, 1, 1]>(b, v) }""",
        {"activation": 1, "factor and shift of HardSwish": 2},
        {"mnnx::FusedConv": 1, "Conv": 1},
    ),
    "pad-folding": (
        """agraph (float[1,3,6,6] x) => (float[1,4,7,8] y)
        <float[4,3,3,3] w, int64[8] pads = {0, 0, 1, 2, 0, 0, 2, 2}>
        { p = Pad(x, pads)
          y = Conv(p, w) }""",
        {"zero padding into Conv": 1},
        {"Conv": 1},
    ),
    "epilogue-fusion of a bias and Gelu": (
        """agraph (float[2,5,8] x) => (float[2,5,6] y)
        <float[8,6] w, float[6] b, float k = {0.044715}, float c = {0.79788456}, float one = {1}, float half = {0.5}, float three = {3}>
        { m = MatMul(x, w)
          z = Add(m, b)
          h = Mul(z, half)
          p = Pow(z, three)
          q = Mul(p, k)
          r = Add(z, q)
          s = Mul(r, c)
          t = Tanh(s)
          a = Add(t, one)
          y = Mul(h, a) }""",
        {"bias into MatMul": 1, "activation": 1},
        {"mnnx::FusedMatMul": 1},
    ),
    "movement": (
        """agraph (float[2,3,4] x) => (float[6,4] y)
        <int64[3] first = {3, 2, 4}, int64[2] second = {6, -1}>
        { a = Transpose<perm = [1, 0, 2]>(x)
          b = Transpose<perm = [1, 0, 2]>(a)
          c = Reshape(b, first)
          y = Reshape(c, second) }""",
        {"Transpose of Transpose": 1, "Reshape of Reshape": 1},
        {"Reshape": 1},
    ),
    "constant-folding": (
        """agraph (float[2,3] x) => (float[3,2] y)
        <float[3] a, float[3] b>
        { s = Add(a, b)
          h = Shape(x)
          z = Cast<to = 1>(h)
          t = ReduceSum(z)
          u = Mul(s, t)
          v = Add(x, u)
          y = Transpose<perm = [1, 0]>(v) }""",
        {"Add": 1, "Cast": 1, "ReduceSum": 1, "Mul": 1},
        {"Add": 1, "Transpose": 1},
    ),
    "neutral-operands": (
        """agraph (float[2,3] x) => (float[2,3] y)
        <float zero = {0}, float[1] one = {1}, float[3] ones = {1, 1, 1}>
        { a = Mul(one, x)
          b = Sub(a, zero)
          c = Div(b, ones)
          d = Neg(c)
          e = Neg(d)
          f = Cast<to = 11>(e)
          g = Cast<to = 10>(f)
          i = Cast<to = 1>(g)
          y = Exp(i) }""",
        {"neutral operand": 3, "done twice": 1, "Cast of Cast": 1},
        {"Cast": 2, "Exp": 1},
    ),
    "constant-sharing": (
        """agraph (float[2,3] x) => (float[2,3] y)
        <float[2] a = {2, 3}, float[3] b = {1, 2, 3}, float[3] c = {1, 2, 3}, int32[3] d = {1, 2, 3}>
        { e = Add(x, b)
          f = Add(x, c)
          g = Mul(e, f)
          h = Cast<to = 6>(g)
          i = Add(h, d)
          y = Cast<to = 1>(i) }""",
        {"constant": 1},
        {"Add": 2, "Mul": 1, "Cast": 2},
    ),
    "known-branches": (
        """agraph (float[2,3] x) => (float[2,3] y)
        <bool yes = {1}, bool no = {0}>
        { b, a = If(yes) <then_branch = t () => (float[2,3] p, float[2,3] q) { p = Exp(x) q = If(no) <
                            then_branch = tt () => (float[2,3] u) { u = Sqrt(x) }, else_branch = te () => (float[2,3] v) { v = Neg(p) }> },
                          else_branch = e () => (float[2,3] r, float[2,3] s) { r = Neg(x) s = Abs(x) }>
          y = Max(a, b) }""",
        {"If": 2},
        {"Exp": 1, "Neg": 1, "Max": 1},
    ),
    "epilogue-fusion of Elu": (
        """agraph (float[2,8] x) => (float[2,6] y)
        <float[8,6] w>
        { p = MatMul(x, w)
          y = Elu<alpha = 0.7>(p) }""",
        {"activation": 1},
        {"mnnx::FusedMatMul": 1},
    ),
    "movement of what cancels": (
        """agraph (float[2,1,3,4] x) => (float[4,3,2] y)
        <int64[1] one = {1}, int64[1] minus = {1}>
        { a = Squeeze(x, one)
          b = Unsqueeze(a, minus)
          c = Squeeze(b, one)
          d = Transpose<perm = [2, 1, 0]>(c)
          e = Exp(d)
          f = Tanh(e)
          g = Transpose<perm = [2, 1, 0]>(f)
          y = Transpose<perm = [2, 1, 0]>(g) }""",
        {"Squeeze and Unsqueeze": 1, "movement before a function": 4, "Transpose of Transpose": 1},
        {"Squeeze": 1, "Transpose": 1, "Exp": 1, "Tanh": 1},
    ),
    "movement of an argument": (
        """agraph (float[2,3,4] x, float n) => (float[2,3,4] y)
        <float[3] bias = {1, 2, 3}, int64[2] column = {3, 1}>
        { t = Transpose<perm = [1, 0, 2]>(x)
          e = Exp(t)
          a = Mul(e, n)
          u = Transpose<perm = [1, 0, 2]>(a)
          d = Div(bias, n)
          f = Floor(d)
          c = Reshape(f, column)
          y = Add(u, c) }""",
        {"movement before a function": 4, "Transpose of Transpose": 1},
        {"Exp": 1, "Mul": 1, "Div": 1, "Floor": 1, "Add": 1},
    ),
    "movement of Concats": (
        """agraph (float[2,3] x, float[2,1] z) => (float[2,8] y)
        { a = Concat<axis = 1>(x, z)
          b = Concat<axis = 1>(a, a)
          c = Concat<axis = 1>(x, z)
          d = Concat<axis = 1>(c, c)
          y = Add(b, d) }""",
        {},
        {"Concat": 2, "Add": 1},
    ),
    "movement of a Concat": (
        """agraph (float[2,3] x, float[2,1] z) => (float[2,7] y)
        { a = Concat<axis = 1>(x, z)
          y = Concat<axis = 1>(a, x) }""",
        {"Concat of Concat": 1},
        {"Concat": 1},
    ),
    "identity-elimination of data movement": (
        """agraph (float[2,3] x) => (float[2,3] y)
        <int64[2] none = {0, 0}, int64[2] end = {9223372036854775807, 3}, int64[4] pads = {0, 0, 0, 0}, int64[2] ones = {1, 1},
         int64[2] shape = {0, 3}, int64[2] open = {2, -1}>
        { a = Slice(x, none, end)
          b = Pad(a, pads)
          c = Tile(b, ones)
          d = Expand(c, ones)
          e = Reshape(d, shape)
          f = Reshape(e, open)
          g = Concat<axis = 0>(f)
          h = Flatten<axis = 1>(g)
          i = Split<axis = 1, num_outputs = 1>(h)
          y = Exp(i) }""",
        {"Slice": 1, "Pad": 1, "Tile": 1, "Expand": 1, "Reshape": 2, "Concat": 1, "Flatten": 1, "Split": 1},
        {"Exp": 1},
    ),
    "common-subexpressions": (
        """agraph (float[2,3] x) => (float[2,3] y)
        { a = Exp(x)
          b = Exp(x)
          c = Sqrt(a)
          d = Sqrt(b)
          y = Add(c, d) }""",
        {"Exp": 1, "Sqrt": 1},
        {"Exp": 1, "Sqrt": 1, "Add": 1},
    ),
    "identity-elimination": (
        """agraph (float[2,3] x) => (float[2,3] y)
        { a = Identity(x)
          b = Cast<to = 1>(a)
          c = Dropout(b)
          d = Exp(c)
          y = Identity(d) }""",
        {"Identity": 3, "Cast": 1},
        {"Exp": 1},
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_pass_rewrites_what_it_names(name: str, tmp_path: Path) -> None:
    text, counts, left = MODELS[name]
    report = mnnx.convert(filled(text), tmp_path / "model.mnnx")
    done: Counter[str] = Counter()
    for result in report.passes:
        if result.name == name.split(" of ")[0]:
            done.update(result.counts)
    assert (dict(done), dict(report.ops_after)) == (counts, left)


@pytest.mark.parametrize("level", [0, 1, 2, 3])
@pytest.mark.parametrize("name", MODELS)
def test_every_level_gives_the_reference_result(name: str, level: int, session_of) -> None:
    model = filled(MODELS[name][0])
    rng = np.random.default_rng(5)
    feed = {
        info.name: rng.standard_normal([d.dim_value for d in info.type.tensor_type.shape.dim]).astype(np.float32)
        for info in model.graph.input
    }
    (wanted,) = ReferenceEvaluator(model).run(None, feed)
    got = session_of(model, level=level).run(feed)["y"]
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_documentation_has_the_table_of_passes() -> None:
    text = documentation.PAGE.read_text()
    assert documentation.page(text) == text, "run `make docs`"
    assert all(f"| {one.name} | {one.level} | " in text for one in list_passes())


def test_division_by_a_constant_becomes_a_product_at_level_3_only(tmp_path: Path) -> None:
    model = filled("agraph (float[2,3] x) => (float[2,3] y) <float[3] c> { y = Div(x, c) }")
    ops = [dict(mnnx.convert(model, tmp_path / "m.mnnx", level=level).ops_after) for level in (2, 3)]
    assert ops == [{"Div": 1}, {"Mul": 1}]


def test_fused_tensor_is_reported_with_its_pass_and_level(session_of) -> None:
    session = session_of(filled(MODELS["epilogue-fusion"][0]))
    feed = {"x": np.zeros((1, 3, 6, 6), np.float32), "r": np.zeros((1, 4, 6, 6), np.float32)}
    with pytest.raises(mnnx.InputError, match=r"'c' no longer exists: the pass epilogue-fusion took it away.*level=1"):
        session.run(feed, outputs=["c"])


def test_tensor_is_there_at_the_level_that_keeps_it(session_of) -> None:
    session = session_of(filled(MODELS["epilogue-fusion"][0]), level=1)
    feed = {"x": np.ones((1, 3, 6, 6), np.float32), "r": np.zeros((1, 4, 6, 6), np.float32)}
    assert session.run(feed, outputs=["c"])["c"].shape == (1, 4, 6, 6)
