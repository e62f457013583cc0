"""What passes must leave as it is: near misses of their patterns, weights that are outputs, constants that would grow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import mnnx
from tests.converter.filled import HEADER, filled
from tests.converter.left_alone import LEFT_ALONE


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_near_miss_is_left_alone(name: str, tmp_path: Path) -> None:
    text, left = LEFT_ALONE[name]
    assert dict(mnnx.convert(filled(text), tmp_path / "model.mnnx").ops_after) == left


@pytest.mark.parametrize("sees", [(0, 0, 0, 0, 0), (1, 0, 1, 0, 1)])
def test_queries_that_see_no_key_by_two_masks_have_equal_weights_not_nan(sees: tuple[int, ...], session_of) -> None:
    model = filled("""agraph (float[1,4,8] q, float[1,8,5] k, float[1,5,8] v, bool[4,5] m, bool[5] n, float[4,5] a) => (float[1,4,8] y)
        <float lowest = {-3.4028234e38}>
        { s = MatMul(q, k)
          t = Where(m, s, lowest)
          u = Add(a, t)
          r = Where(n, u, lowest)
          p = Softmax<axis = -1>(r)
          y = MatMul(p, v) }""")
    q, k, v = (np.random.default_rng(1).standard_normal(shape).astype(np.float32) for shape in ((1, 4, 8), (1, 8, 5), (1, 5, 8)))
    causal = np.tril(np.ones((4, 5), bool), -1)
    feed = {"q": q, "k": k, "v": v, "m": causal, "n": np.array(sees, bool), "a": np.zeros((4, 5), np.float32)}
    (wanted,) = ReferenceEvaluator(model).run(None, feed)
    assert np.isfinite(wanted).all()
    np.testing.assert_allclose(session_of(model).run(feed)["y"], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (
            """agraph (float[1,3,6,6] x) => (float[1,4,4,4] y, float[4,3,3,3] w)
            <float[4,3,3,3] w, float[1,4,1,1] s> { c = Conv(x, w) y = Mul(c, s) }""",
            "w",
        ),
        ("agraph (float[2,3] x) => (float[2,4] y, float[1,4] b) <float[3,4] w, float[1,4] b> { p = MatMul(x, w) y = Add(p, b) }", "b"),
        ("agraph (float[2,3] x) => (float[2,4] y, float[1,4] b) <float[3,4] w, float[1,4] b> { y = Gemm(x, w, b) }", "b"),
    ],
)
def test_a_weight_that_is_an_output_too_keeps_its_name_and_value(text: str, name: str, session_of) -> None:
    model = filled(text)
    weight = next(onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer if tensor.name == name)
    session = session_of(model)
    feed = {key: np.ones(tensor.shape, np.float32) for key, tensor in session.inputs.items()}
    results = session.run(feed)
    assert list(results) == ["y", name]
    np.testing.assert_array_equal(results[name], weight)
    with pytest.raises(mnnx.InputError, match="has no tensor"):
        session.run(feed, outputs=[f"{name}_2"])


def test_a_changed_weight_doesnt_pass_for_the_models_own(session_of) -> None:
    text = "agraph (float[1,3,6,6] x) => (float[1,4,4,4] y) <float[4,3,3,3] w, float[1,4,1,1] s> { c = Conv(x, w) y = Mul(c, s) }"
    with pytest.raises(mnnx.InputError, match="no tensor 'w'"):
        session_of(filled(text)).run({"x": np.ones((1, 3, 6, 6), np.float32)}, outputs=["w"])


@pytest.mark.parametrize("body", ["Concat<axis=0>(v{0}, v{0})", "Tile(v{0}, two)"])
def test_folding_doesnt_double_constants_again_and_again(body: str, tmp_path: Path) -> None:
    chain = " ".join(f"v{i + 1} = {body.format(i)}" for i in range(40))
    model = onnx.parser.parse_model(HEADER + f"agraph () => (float[n] y) <float[8] v0, int64[1] two = {{2}}> {{ {chain} y = Neg(v40) }}")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(8, np.float32), "v0"))
    report = mnnx.convert(model, tmp_path / "m.mnnx")
    assert report.target_bytes < 100_000
    with pytest.raises(mnnx.LimitExceeded):
        mnnx.Interpreter.from_file(tmp_path / "m.mnnx").create_session()


def test_folding_doesnt_double_strings_again_and_again(tmp_path: Path) -> None:
    chain = " ".join(f"v{i + 1} = StringConcat(v{i}, v{i})" for i in range(40))
    model = onnx.parser.parse_model(HEADER + f"agraph () => (string[1] y) {{ {chain} y = Identity(v40) }}")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(["abc"], object), "v0"))
    assert mnnx.convert(model, tmp_path / "m.mnnx").target_bytes < 100_000
    session = mnnx.Interpreter.from_file(tmp_path / "m.mnnx").create_session(mnnx.ScheduleConfig(limits=mnnx.Limits(tensor_bytes=1 << 20)))
    with pytest.raises(mnnx.LimitExceeded, match="made strings of more than 1 MiB"):
        session.run()
