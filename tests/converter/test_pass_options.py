"""Passes that are left out, dumped and explained."""

from __future__ import annotations

import errno
from hashlib import blake2b
from pathlib import Path

import numpy as np
import onnx
import pytest

import mnnx
from mnnx.converter.passes import all_passes, list_passes

WEIGHTS = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3, 1, 1)
MODEL = """<ir_version: 9, opset_import: ["" : 20]>
agraph (float[N, 3, 6, 6] x) => (float[N, 4, 6, 6] y, float[N, 4, 6, 6] z)
{
    same = Identity(x)
    [conv] c = Conv(same, w)
    [shift] s = Add(c, three)
    [relu] r = Relu(s)
    y = Sigmoid(r)
    z = Neg(r)
}
"""

#: The text of MODEL after constant folding, but for the hash of its weights.
TEXT = """graph agraph
input   x: float32[N, 3, 6, 6]
constant w: float32[4, 3, 1, 1] #{hash}
constant three: float32[] = 3.0
c: float32[N, 4, 6, 6] = Conv(x, w)  # node conv
s: float32[N, 4, 6, 6] = Add(c, three)  # node shift
r: float32[N, 4, 6, 6] = Relu(s)  # node relu
y: float32[N, 4, 6, 6] = Sigmoid(r)  # node Sigmoid_4
z: float32[N, 4, 6, 6] = Neg(r)  # node Neg_5
output  y
output  z
"""


@pytest.fixture
def model() -> onnx.ModelProto:
    proto = onnx.parser.parse_model(MODEL)
    weights = {"w": WEIGHTS, "three": np.array(3, np.float32)}
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
    return proto


def test_every_pass_is_listed_once_and_says_what_it_does() -> None:
    names = [one.name for one in list_passes()]
    assert len(names) == len(set(names))
    assert set(names) == {one.name for one in all_passes()}
    assert all(0 <= one.level <= 3 and one.description() for one in list_passes())


@pytest.mark.parametrize("name", [one.name for one in list_passes()])
def test_a_disabled_pass_doesnt_run_and_results_stay_right(name: str, model: onnx.ModelProto, tmp_path: Path) -> None:
    report = mnnx.convert(model, tmp_path / "m.mnnx", level=3, disable_passes=[name])
    assert name not in {result.name for result in report.passes}
    x = np.random.default_rng(1).standard_normal((2, 3, 6, 6)).astype(np.float32)
    results = mnnx.Interpreter.from_file(tmp_path / "m.mnnx").create_session().run({"x": x})
    r = np.maximum(np.einsum("nchw,mc->nmhw", x, WEIGHTS[:, :, 0, 0]) + 3, 0)
    np.testing.assert_allclose(results["y"], 1 / (1 + np.exp(-r)), rtol=1e-5)
    np.testing.assert_allclose(results["z"], -r, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("given", [["movment"], "movement", 3])
def test_what_is_no_list_of_passes_is_an_error(given: object, model: onnx.ModelProto, tmp_path: Path) -> None:
    with pytest.raises(mnnx.ConversionError, match=r"no pass 'movment'; the passes are dead-code, .*movement|must be a list of names"):
        mnnx.convert(model, tmp_path / "m.mnnx", disable_passes=given)


def test_a_dump_has_the_graph_after_each_pass(model: onnx.ModelProto, tmp_path: Path) -> None:
    mnnx.convert(model, tmp_path / "m.mnnx", level=3, dump_passes=tmp_path / "dump")
    found = {path.name for path in (tmp_path / "dump").iterdir()}
    assert found == {"00-import.txt", *(f"{number:02}-{one.name}.txt" for number, one in enumerate(all_passes(), 1))}
    number = next(number for number, one in enumerate(all_passes(), 1) if one.name == "constant-folding")
    assert (tmp_path / "dump" / f"{number:02}-constant-folding.txt").read_text() == TEXT.replace(
        "{hash}", blake2b(WEIGHTS.tobytes(), digest_size=4).hexdigest()
    )


def test_two_dumps_of_a_model_are_equal_and_an_old_one_leaves_nothing(model: onnx.ModelProto, tmp_path: Path) -> None:
    mnnx.convert(model, tmp_path / "m.mnnx", level=2, dump_passes=tmp_path / "a")
    mnnx.convert(model, tmp_path / "m.mnnx", level=3, dump_passes=tmp_path / "b")
    mnnx.convert(model, tmp_path / "m.mnnx", level=2, dump_passes=tmp_path / "b")
    dumps = [{path.name: path.read_text() for path in (tmp_path / name).iterdir()} for name in "ab"]
    assert dumps[0] == dumps[1]


def test_subgraphs_stand_in_a_dump_behind_their_node(tmp_path: Path) -> None:
    model = """<ir_version: 9, opset_import: ["" : 20]> agraph (float[2] x, bool c) => (float[2] y)
        { y = If(c) <then_branch = t () => (float[2] p) { p = Abs(x) }, else_branch = n () => (float[2] q) { q = Neg(x) }> }"""
    mnnx.convert(onnx.parser.parse_model(model), tmp_path / "m.mnnx", dump_passes=tmp_path)
    text = (tmp_path / "00-import.txt").read_text()
    assert "    then_branch:\n    graph t\n    input   x_2: float32[2]\n    p: float32[2] = Abs(x_2)" in text


def test_a_folder_that_cant_be_written_is_an_error(model: onnx.ModelProto, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(mnnx.ConversionError, match=r"the dump of passes can't be written into .*file"):
        mnnx.convert(model, tmp_path / "m.mnnx", dump_passes=tmp_path / "file")


def test_an_explanation_says_why_a_rule_did_nothing(model: onnx.ModelProto, tmp_path: Path) -> None:
    model.graph.output.append(onnx.helper.make_tensor_value_info("s", 1, ["N", 4, 6, 6]))
    report = mnnx.convert(model, tmp_path / "m.mnnx", explain="relu")
    found = {(one.by_pass, one.rule): one.reason for one in report.explanations}
    assert found["epilogue-fusion", "activation"] == "the product is used elsewhere"
    assert found["constant-folding", "folding"] == "'s' is computed"
    assert found["pad-folding", ""] == "nothing in it starts from this op"
    assert "\nnothing starts from Relu in " in report.explanation()
    assert "pad-folding, at Relu" not in report.explanation()
    assert found["reciprocals", ""] == "it doesn't run: it runs from level 3 on"
    assert "epilogue-fusion, at Relu 'relu':\n  activation: the product is used elsewhere" in report.explanation()


def test_an_explanation_says_what_became_of_a_node(model: onnx.ModelProto, tmp_path: Path) -> None:
    report = mnnx.convert(model, tmp_path / "m.mnnx", explain="relu")
    assert next(one.reason for one in report.explanations if one.by_pass == "epilogue-fusion") == "it became the mnnx::FusedConv 'conv'"
    report = mnnx.convert(model, tmp_path / "m.mnnx", explain="same")
    assert "it was taken out" in {one.reason for one in report.explanations if one.by_pass == "identity-elimination"}


@pytest.mark.parametrize(("what", "nodes"), [("relu", {"relu"}), ("r", {"relu"}), ("Neg", {"Neg_5"})])
def test_what_is_explained_may_be_a_node_a_result_or_an_op_type(what: str, nodes: set[str], model: onnx.ModelProto, tmp_path: Path) -> None:
    report = mnnx.convert(model, tmp_path / "m.mnnx", level=1, explain=what)
    assert {one.node for one in report.explanations} - {""} == nodes


def test_what_isnt_there_cant_be_explained(model: onnx.ModelProto, tmp_path: Path) -> None:
    with pytest.raises(mnnx.ConversionError, match="no node, result or op type is called 'relo'; do you mean 'relu'"):
        mnnx.convert(model, tmp_path / "m.mnnx", explain="relo")


@pytest.mark.parametrize(("option", "value"), [("explain", 3), ("dump_passes", 3), ("explain", b"relu")])
def test_options_of_a_wrong_type_are_an_error(option: str, value: object, model: onnx.ModelProto, tmp_path: Path) -> None:
    with pytest.raises(mnnx.ConversionError, match=f"{option} must be the "):
        mnnx.convert(model, tmp_path / "m.mnnx", **{option: value})


@pytest.mark.parametrize("is_new", [True, False])
def test_a_dump_that_fails_leaves_nothing(model: onnx.ModelProto, tmp_path: Path, is_new: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_text(self: Path, text: str, **options: str) -> int:
        if self.name.startswith("03"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return self.write_bytes(text.encode())

    folder = tmp_path / "dump"
    if not is_new:
        folder.mkdir()
        (folder / "mine.txt").touch()
    monkeypatch.setattr(Path, "write_text", write_text)
    with pytest.raises(mnnx.ConversionError, match=r"the dump of passes can't be written into .*dump: No space left on device"):
        mnnx.convert(model, tmp_path / "m.mnnx", dump_passes=folder)
    assert folder.exists() is not is_new
    assert is_new or [path.name for path in folder.iterdir()] == ["mine.txt"]
