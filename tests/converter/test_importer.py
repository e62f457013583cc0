"""What the importer accepts, and how it says no."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import mnnx


def _model(nodes, inputs, outputs, initializers=(), opset: int = 20, **kwargs) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=kwargs.pop("opset_imports", None) or [helper.make_opsetid("", opset)], **kwargs)


def _floats(name: str, *shape) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def test_all_unsupported_ops_are_listed_at_once(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], name="first", domain="acme"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Transmogrify", ["b"], ["y"], name="second", domain="acme"),
    ]
    model = _model(nodes, [_floats("x", 2)], [_floats("y", 2)], opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("acme", 3)])
    with pytest.raises(mnnx.UnsupportedOperator) as error:
        mnnx.convert(model, tmp_path / "m.mnnx")
    assert all(word in str(error.value) for word in ("acme::Frobnicate", "'first'", "acme::Transmogrify", "'second'", "opset 3"))
    assert not list(tmp_path.iterdir())


def test_unsupported_op_in_a_subgraph_is_listed(tmp_path: Path) -> None:
    branch = helper.make_graph([helper.make_node("Zap", ["x"], ["r"], domain="acme", name="deep")], "then", [], [_floats("r", 2)])
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["s"])], "else", [], [_floats("s", 2)])
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=other)
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("acme", 1)]
    with pytest.raises(mnnx.UnsupportedOperator, match=r"acme::Zap.*'deep'"):
        mnnx.convert(_model([node], [condition, _floats("x", 2)], [_floats("y", 2)], opset_imports=opsets), tmp_path / "m.mnnx")


def test_nodes_out_of_order_are_sorted(session_of) -> None:
    nodes = [helper.make_node("Neg", ["b"], ["y"]), helper.make_node("Exp", ["a"], ["b"]), helper.make_node("Abs", ["x"], ["a"])]
    x = np.array([-1.0, 2.0], np.float32)
    y = session_of(_model(nodes, [_floats("x", 2)], [_floats("y", 2)])).run({"x": x})["y"]
    np.testing.assert_allclose(y, -np.exp(np.abs(x)), rtol=1e-6)


def test_value_that_nothing_makes_is_named(tmp_path: Path) -> None:
    model = _model([helper.make_node("Neg", ["ghost"], ["y"], name="n")], [_floats("x", 2)], [_floats("y", 2)])
    with pytest.raises(mnnx.ConversionError, match=r"'n'.*'ghost'"):
        mnnx.convert(model, tmp_path / "m.mnnx")


def test_opset_of_the_future_is_refused(tmp_path: Path) -> None:
    model = _model([helper.make_node("Neg", ["x"], ["y"])], [_floats("x", 2)], [_floats("y", 2)], opset=999)
    with pytest.raises(mnnx.ConversionError, match="opset 999"):
        mnnx.convert(model, tmp_path / "m.mnnx")


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x08\x07\x12\xff\xff\xff", bytes(range(256)) * 20])
def test_file_that_is_no_model_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(content)
    with pytest.raises(mnnx.ConversionError, match=r"bad\.onnx"):
        mnnx.convert(tmp_path / "bad.onnx", tmp_path / "m.mnnx")
    assert [p.name for p in tmp_path.iterdir()] == ["bad.onnx"]


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(mnnx.ConversionError, match=r"nowhere\.onnx is not a file"):
        mnnx.convert(tmp_path / "nowhere.onnx", tmp_path / "m.mnnx")


def test_wrong_level_is_refused(tmp_path: Path) -> None:
    with pytest.raises(mnnx.ConversionError, match="level must be one of 0, 1, 2, 3"):
        mnnx.convert(tmp_path / "x.onnx", tmp_path / "m.mnnx", level=7)


def test_external_data_is_read_from_beside_the_model(tmp_path: Path) -> None:
    weight = np.arange(4096, dtype=np.float32).reshape(64, 64)
    model = _model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [_floats("x", 2, 64)],
        [_floats("y", 2, 64)],
        [numpy_helper.from_array(weight, "w")],
    )
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    mnnx.convert(tmp_path / "m.onnx", tmp_path / "m.mnnx")
    x = np.ones((2, 64), np.float32)
    y = mnnx.Interpreter.from_file(tmp_path / "m.mnnx").create_session().run({"x": x})["y"]
    np.testing.assert_allclose(y, x @ weight, rtol=1e-5)


def test_missing_external_data_is_named(tmp_path: Path) -> None:
    model = _model(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        [_floats("x", 64)],
        [_floats("y", 64)],
        [numpy_helper.from_array(np.zeros(64, np.float32), "w")],
    )
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(mnnx.ConversionError, match="'w'"):
        mnnx.convert(tmp_path / "m.onnx", tmp_path / "m.mnnx")


def test_initializer_listed_as_input_is_a_constant(session_of) -> None:
    weight = np.array([2.0, 3.0], np.float32)
    model = _model(
        [helper.make_node("Mul", ["x", "w"], ["y"])],
        [_floats("x", 2), _floats("w", 2)],
        [_floats("y", 2)],
        [numpy_helper.from_array(weight, "w")],
    )
    session = session_of(model)
    assert list(session.inputs) == ["x"]
    np.testing.assert_array_equal(session.run({"x": np.ones(2, np.float32)})["y"], weight)


def test_metadata_and_names_survive(tmp_path: Path) -> None:
    model = _model([helper.make_node("Neg", ["in put:0"], ["out/put"])], [_floats("in put:0", 2)], [_floats("out/put", 2)])
    model.metadata_props.add(key="character", value="äöü\n字")
    mnnx.convert(model, tmp_path / "m.mnnx")
    interpreter = mnnx.Interpreter.from_file(tmp_path / "m.mnnx")
    session = interpreter.create_session()
    assert (interpreter.metadata, list(session.inputs), list(session.outputs)) == ({"character": "äöü\n字"}, ["in put:0"], ["out/put"])


def test_model_function_is_expanded(session_of) -> None:
    text = """<ir_version: 9, opset_import: ["" : 20, "local" : 1]>
    main (float[3] x) => (float[3] y) { y = local.twice_plus<k = 5.0>(x) }
    <domain: "local", opset_import: ["" : 20]>
    twice_plus <k> (a) => (b) {
        two = Constant<value_float = 2.0>()
        d = Mul(a, two)
        c = Constant<value_float : float = @k>()
        b = Add(d, c)
    }"""
    y = session_of(text).run({"x": np.arange(3, dtype=np.float32)})["y"]
    np.testing.assert_array_equal(y, [5, 7, 9])


def test_op_with_a_function_body_only_is_expanded(session_of) -> None:
    model = _model(
        [helper.make_node("MeanVarianceNormalization", ["x"], ["y"])], [_floats("x", 1, 2, 3, 3)], [_floats("y", 1, 2, 3, 3)], opset=13
    )
    x = np.random.default_rng(0).standard_normal((1, 2, 3, 3)).astype(np.float32)
    y = session_of(model).run({"x": x})["y"]
    mean, deviation = x.mean((0, 2, 3), keepdims=True), x.std((0, 2, 3), keepdims=True)
    np.testing.assert_allclose(y, (x - mean) / deviation, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("version", "wanted"), [(2, ["b", "_Unused"]), (4, ["b", "n"])])
def test_keys_that_are_no_numbers_match_from_the_opset_on_that_says_so(version: int, wanted: list[str], session_of) -> None:
    keys = {"keys_floats": [1.0, float("nan"), 2.0], "values_strings": ["a", "n", "b"]}
    node = helper.make_node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", **keys)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", version)]
    text = helper.make_tensor_value_info("y", TensorProto.STRING, [2])
    session = session_of(_model([node], [_floats("x", 2)], [text], opset_imports=opsets))
    assert session.run({"x": np.array([2, np.nan], np.float32)})["y"].tolist() == wanted
