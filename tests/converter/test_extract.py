"""`mnnx.extract`: parts of models compute what the whole does there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import mnnx

MODEL = """<ir_version: 8, opset_import: ["": 17]>
    g (float[N, 3] x, float[3] z) => (float[N, 4] y, float[N, 3] b, float[A, 3] left, float[B, 3] right)
    <float[3, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, float two = {2}>
    { a = Add(x, z)
      b, unused = Dropout(a)
      s = Tanh(a)
      left, right = Split <axis = 0> (s)
      p = MatMul(s, w)
      r = ReduceSum(z)
      t = Mul(r, two)
      d = Cast <to = 9> (t)
      q = If (d) <then_branch = th () => (float[M, 4] u) { u = Mul(p, t) }, else_branch = el () => (float[M, 4] v) { v = Neg(p) }>
      y = Relu(q) }"""
X, Z = np.float32([[1, -2, 3], [0.5, 0, 1]]), np.float32([1, 2, -1])


@pytest.fixture(params=["onnx", "mnnx"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    model = onnx.parser.parse_model(MODEL)
    path = tmp_path / f"model.{request.param}"
    if request.param == "onnx":
        onnx.save(model, path)
    else:
        mnnx.convert(model, path, level=0)
    return path


def _run(path: Path, feed: dict[str, np.ndarray], outputs: list[str] | None = None) -> dict[str, np.ndarray]:
    with mnnx.Interpreter.from_file(path) as interpreter, interpreter.create_session() as session:
        return session.run(feed, outputs)


def _whole(tmp_path: Path, *names: str) -> dict[str, np.ndarray]:
    mnnx.convert(onnx.parser.parse_model(MODEL), tmp_path / "whole.mnnx", level=0)
    return _run(tmp_path / "whole.mnnx", {"x": X, "z": Z}, list(names))


@pytest.mark.parametrize(
    ("inputs", "outputs", "ops"),
    [
        (["x", "z"], ["s"], {"Add", "Tanh"}),
        (["a"], ["p", "left"], {"Tanh", "MatMul", "Split"}),
        (["p", "t"], ["y"], {"Cast", "If", "Relu"}),
        (["s", "t"], ["y"], {"MatMul", "Cast", "If", "Relu"}),
        (["left", "s"], ["p", "left"], None),
        (["s"], ["right"], {"Split"}),
        (["q"], ["y"], {"Relu"}),
        (["a", "w"], ["p"], {"Tanh", "MatMul"}),
        (None, ["s"], {"Add", "Tanh"}),
        (None, ["t", "two"], {"ReduceSum", "Mul", "Identity"}),
    ],
)
def test_a_part_computes_what_the_whole_does_there(source: Path, tmp_path: Path, inputs, outputs, ops) -> None:
    target = tmp_path / "part.mnnx"
    if ops is None:
        with pytest.raises(mnnx.ConversionError, match="'left' can't be an input and an output"):
            mnnx.extract(source, target, inputs=inputs, outputs=outputs)
        return
    mnnx.extract(source, target, inputs=inputs, outputs=outputs, level=0)
    model = mnnx.Interpreter.from_file(target).model
    graph = model.graphs[0]
    assert {node.op.name for node in graph.nodes} == ops
    names = [graph.values[i].name for i in graph.inputs]
    assert inputs is None or names == inputs
    known = {"x": X, "z": Z, "w": np.arange(1, 13, dtype=np.float32).reshape(3, 4)}
    wanted = _whole(tmp_path, *dict.fromkeys([*outputs, *(name for name in names if name not in known)]))
    got = _run(target, {name: known.get(name, wanted.get(name)) for name in names})
    assert list(got) == outputs
    for name in outputs:
        np.testing.assert_allclose(got[name], wanted[name], rtol=1e-6)


def test_a_part_of_an_onnx_file_is_optimized(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
    mnnx.extract(tmp_path / "m.onnx", tmp_path / "part.mnnx", inputs=["p", "z"], outputs=["y"], level=3)
    assert "If" in [node.op.name for node in mnnx.Interpreter.from_file(tmp_path / "part.mnnx").model.graphs[0].nodes]
    mnnx.extract(tmp_path / "m.onnx", tmp_path / "part.mnnx", outputs=["b"])
    with mnnx.Interpreter.from_file(tmp_path / "part.mnnx") as interpreter:
        assert [node.op.name for node in interpreter.model.graphs[0].nodes] == ["Add"]


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        (["a"], ["why"], "the model has no tensor 'why'"),
        (["aa"], ["y"], r"the model has no tensor 'aa'; there are 'a'"),
        (["x"], ["s"], "the outputs 's' also depend on the model's inputs 'z'; add them"),
        (["p"], ["y"], "the outputs 'y' also depend on the model's inputs 'z'"),
        (["s", "x"], ["p"], "no output depends on the inputs 'x'; leave them out"),
        ([], ["y"], "the inputs must be names of tensors, at least one, each once"),
        (["x", "x"], ["y"], "the inputs must be names of tensors, at least one, each once"),
        (["x"], [3], "the outputs must be names of tensors"),
    ],
)
def test_what_cant_be_cut_out_is_named(source: Path, tmp_path: Path, inputs, outputs, message: str) -> None:
    with pytest.raises(mnnx.ConversionError, match=message):
        mnnx.extract(source, tmp_path / "part.mnnx", inputs=inputs, outputs=outputs)
    assert not (tmp_path / "part.mnnx").exists()


def test_a_tensor_that_a_pass_took_away_is_told(tmp_path: Path) -> None:
    mnnx.convert(onnx.parser.parse_model(MODEL), tmp_path / "m.mnnx", level=1)
    with pytest.raises(mnnx.ConversionError, match="the tensor 'unused' no longer exists: the pass "):
        mnnx.extract(tmp_path / "m.mnnx", tmp_path / "part.mnnx", inputs=["unused"])


def test_the_source_isnt_overwritten(source: Path) -> None:
    before = source.read_bytes()
    with pytest.raises(mnnx.ConversionError, match="is the source itself" if source.suffix == ".mnnx" else "would look like an ONNX model"):
        mnnx.extract(source, source, outputs=["s"])
    assert source.read_bytes() == before


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    for name, error in (("m.mnnx", mnnx.InputError), ("m.onnx", mnnx.ConversionError)):
        with pytest.raises(error, match=name):
            mnnx.extract(tmp_path / name, tmp_path / "part.mnnx", outputs=["s"])


def test_metadata_comes_along(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(MODEL)
    model.metadata_props.add(key="labels", value="cat")
    onnx.save(model, tmp_path / "m.onnx")
    mnnx.extract(tmp_path / "m.onnx", tmp_path / "part.mnnx", outputs=["s"])
    assert mnnx.Interpreter.from_file(tmp_path / "part.mnnx").metadata == {"labels": "cat"}


def test_it_reports_what_was_made(source: Path, tmp_path: Path) -> None:
    report = mnnx.extract(source, tmp_path / "part.mnnx", inputs=["z", "x"], outputs=["p"])
    assert (report.source, report.target) == (str(source), str(tmp_path / "part.mnnx"))
    assert (list(report.inputs), list(report.outputs)) == (["z", "x"], ["p"])
    assert report.inputs["x"].startswith("float32[")
    assert report.target_bytes == (tmp_path / "part.mnnx").stat().st_size
    graph = mnnx.Interpreter.from_file(tmp_path / "part.mnnx").model.graphs[0]
    assert report.ops.total() == len(graph.nodes)
    assert f"input   x {report.inputs['x']}" in str(report)


def test_the_source_may_be_a_model_in_memory(tmp_path: Path) -> None:
    report = mnnx.extract(onnx.parser.parse_model(MODEL), tmp_path / "part.mnnx", outputs=["s"])
    assert (report.source, list(report.outputs)) == ("ModelProto", ["s"])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"source": None}, "the source must be the path of a file"),
        ({"target": None}, "the target must be the path of a file"),
        ({"target": "no/such/part.mnnx"}, "there is no folder no/such"),
        ({"inputs": 3}, "the inputs must be a list of names of tensors, not 3"),
        ({"level": 7}, "level must be one of 0, 1, 2, 3"),
    ],
)
def test_arguments_of_a_wrong_kind_are_an_error(source: Path, tmp_path: Path, changed: dict, message: str) -> None:
    with pytest.raises(mnnx.ConversionError, match=message):
        mnnx.extract(**{"source": source, "target": tmp_path / "part.mnnx", "outputs": ["s"]} | changed)


@pytest.mark.parametrize("name", ["u", "v"])
@pytest.mark.parametrize("side", ["inputs", "outputs"])
def test_a_tensor_inside_of_a_subgraph_is_told_of(source: Path, tmp_path: Path, name: str, side: str) -> None:
    branch = {"u": "then_branch", "v": "else_branch"}[name]
    with pytest.raises(
        mnnx.ConversionError, match=rf"'{name}' is inside of {branch} of the node 'If_\d+' \(If\); only tensors of the main"
    ):
        mnnx.extract(source, tmp_path / "part.mnnx", **{side: [name]})


@pytest.mark.parametrize(
    ("options", "shape", "ranges"),
    [
        ({"dims": {"N": 2}}, (2, 3), {}),
        ({"input_shapes": {"x": (5, 3)}}, (5, 3), {}),
        ({"dims": {"N": (1, 8)}}, ("N", 3), {"N": (1, 8)}),
    ],
)
def test_shapes_of_the_whole_model_are_fixed_before_the_part_is_cut_out(tmp_path: Path, options, shape, ranges) -> None:
    mnnx.extract(onnx.parser.parse_model(MODEL), tmp_path / "part.mnnx", inputs=["a"], outputs=["p"], **options)
    model = mnnx.Interpreter.from_file(tmp_path / "part.mnnx").model
    graph = model.graphs[0]
    assert [graph.values[i].shape for i in graph.inputs] == [shape]
    assert model.ranges == ranges


def test_shapes_that_break_a_rule_are_an_error(tmp_path: Path) -> None:
    model = """<ir_version: 8, opset_import: ["": 17]> g (float[A, B] x, float[D, C] y) => (float[A, C] z)
        { z = MatMul(x, y) }"""
    with pytest.raises(mnnx.ConversionError, match="MatMul"):
        mnnx.extract(onnx.parser.parse_model(model), tmp_path / "part.mnnx", dims={"A": 2, "B": 3, "D": 4, "C": 5})


def test_the_shapes_of_a_converted_model_are_settled(tmp_path: Path) -> None:
    mnnx.convert(onnx.parser.parse_model(MODEL), tmp_path / "m.mnnx")
    with pytest.raises(mnnx.ConversionError, match="were settled when it was converted; give the"):
        mnnx.extract(tmp_path / "m.mnnx", tmp_path / "part.mnnx", dims={"N": 2})


def test_a_target_that_would_be_taken_for_an_onnx_model_is_refused(tmp_path):
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
    for write in (mnnx.convert, mnnx.extract):
        with pytest.raises(mnnx.ConversionError, match=r"part.ONNX would look like an ONNX model.*call it part\.mnnx"):
            write(tmp_path / "m.onnx", tmp_path / "part.ONNX")
    assert not (tmp_path / "part.ONNX").exists()
