"""What `run` gives: which outputs, of which values, and to whom they belong."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import mnnx
from mnnx import InputError

HEAD = '<ir_version: 8, opset_import: ["" : 18]>'
CHAIN = HEAD + "g (float[n,2] x) => (float[n,2] y, float[n,2] z) { a = Relu(x) b = Neg(a) y = Exp(b) z = Sqrt(a) }"
X = np.array([[-1, 4]], np.float32)


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_any_outputs_and_tensors_that_still_exist(session_of, level):
    session = session_of(CHAIN, level=level)
    assert list(session.run({"x": X})) == ["y", "z"]
    assert session.run({"x": X}, outputs=["z"])["z"].tolist() == [[0, 2]]
    assert list(session.run({"x": X}, outputs=["z", "y"])) == ["z", "y"]
    assert session.run({"x": X}, outputs=[]) == {}


def test_only_what_the_outputs_need_runs(session_of):
    session = session_of(CHAIN, level=0)
    session.run({"x": X}, outputs=["b"])
    assert [row.op_type for row in session.placement()] == ["Relu", "Neg"]
    session.run({"x": X}, outputs=["x"])
    assert session.placement() == []


def test_tensors_inside_the_model_by_their_onnx_names(session_of):
    session = session_of(CHAIN, level=0)
    result = session.run({"x": X}, outputs=["a", "b", "x"])
    np.testing.assert_array_equal(result["a"], [[0, 4]])
    np.testing.assert_array_equal(result["b"], [[-0.0, -4]])
    np.testing.assert_array_equal(result["x"], X)


CONV = (
    HEAD
    + """g (float[1,2,4,4] x) => (float[1,2,4,4] y)
    <float[2,2,1,1] w = {1,2,3,4}, float[2] s = {1,2}, float[2] b = {0,1}, float[2] m = {0,0}, float[2] v = {1,1}>
    { c = Conv(x, w) n = BatchNormalization(c, s, b, m, v) y = Relu(n) }"""
)


def test_a_tensor_that_was_fused_away_names_the_pass_and_the_level_that_keeps_it(session_of):
    feed = {"x": np.ones((1, 2, 4, 4), np.float32)}
    with pytest.raises(InputError, match=r"'c' no longer exists: the pass [\w-]+ took it away; convert with level=\d to keep it") as caught:
        session_of(CONV, level=2).run(feed, outputs=["c"])
    level = int(str(caught.value).partition("level=")[2][0])
    assert session_of(CONV, level=level).run(feed, outputs=["c"])["c"][0, :, 0, 0].tolist() == [3, 7]


def test_a_tensor_that_no_output_needed(session_of):
    session = session_of(HEAD + "g (float[2] x) => (float[2] y) { y = Relu(x) t = Neg(x) }", level=0)
    with pytest.raises(InputError, match=r"'t' no longer exists: the pass [\w-]+ took it away; make it an output to keep it"):
        session.run({"x": np.zeros(2, np.float32)}, outputs=["t"])


def test_unknown_names(session_of):
    session = session_of(CHAIN)
    with pytest.raises(InputError, match="no tensor 'q'; its outputs are 'y', 'z'"):
        session.run({"x": X}, outputs=["q"])
    with pytest.raises(InputError, match="list of names"):
        session.run({"x": X}, outputs="y")


def test_many_choices_of_outputs_keep_few_plans(session_of):
    nodes = "".join(f"t{i} = Add(x, c{i}) " for i in range(20))
    constants = ", ".join(f"float[1] c{i} = {{{i}}}" for i in range(20))
    outputs = ", ".join(f"float[2] t{i}" for i in range(20))
    session = session_of(HEAD + f"g (float[2] x) => ({outputs}) <{constants}> {{ {nodes} }}")
    for i in range(20):
        assert session.run({"x": np.zeros(2, np.float32)}, outputs=[f"t{i}"])[f"t{i}"].tolist() == [i, i]
    assert len(session._runners) <= 8


def test_results_are_the_callers_own(session_of):
    session = session_of(CHAIN)
    first = session.run({"x": X})
    kept = {name: value.copy() for name, value in first.items()}
    session.run({"x": X * 0 + 9})
    for name, value in first.items():
        np.testing.assert_array_equal(value, kept[name])
        value[...] = 0  # writable


def test_feeds_are_neither_kept_nor_written(session_of):
    session = session_of(HEAD + "g (float[n,2] x) => (float[n,2] y, float[n,2] z) { y = Relu(x) z = Identity(x) }")
    x = X.copy()
    x.flags.writeable = False
    result = session.run({"x": x})
    assert not np.shares_memory(result["z"], x)
    session.inputs["x"].copy_from_host(x)
    session.run()
    np.testing.assert_array_equal(session.inputs["x"].copy_to_host(), X)


@pytest.mark.parametrize("level", [0, 2, 3])
def test_outputs_that_are_inputs_constants_or_the_same_value(session_of, level):
    text = (
        HEAD
        + """g (float[2] x) => (float[2] same, float[2] again, float[2] c, float[2] k, float[2] r, float[2] s, float[1,2] v)
        <float[2] w = {5, 6}>
        { same = Identity(x) again = Identity(x) c = Identity(w) k = Constant<value = float[2] {7, 8}>() r = Relu(x) s = Identity(r)
          o = Constant<value = int64[2] {1, 2}>() v = Reshape(r, o) }"""
    )
    result = session_of(text, level=level).run({"x": np.array([-1, 2], np.float32)})
    wanted = {"same": [-1, 2], "again": [-1, 2], "c": [5, 6], "k": [7, 8], "r": [0, 2], "s": [0, 2], "v": [[0, 2]]}
    assert {name: value.tolist() for name, value in result.items()} == wanted
    arrays = list(result.values())
    assert not any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])


@pytest.mark.parametrize("level", [0, 2])
def test_an_input_or_initializer_that_is_itself_an_output(session_of, level):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])
    w = helper.make_tensor("w", TensorProto.FLOAT, [2], [1, 2])
    outputs = [x, helper.make_tensor_value_info("w", TensorProto.FLOAT, [2]), helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])]
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [x], outputs, [w])
    session = session_of(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), level=level)
    result = session.run({"x": np.array([3, 4], np.float32)})
    assert {name: value.tolist() for name, value in result.items()} == {"x": [3, 4], "w": [1, 2], "y": [4, 6]}


def test_a_model_without_inputs(session_of):
    session = session_of(HEAD + "g () => (float[2] y) { k = Constant<value = float[2] {1, 4}>() y = Sqrt(k) }")
    assert session.run()["y"].tolist() == session.run({})["y"].tolist() == [1, 2]


@pytest.mark.parametrize("shape", [(0, 2), (3, 0), (0, 0)])
def test_tensors_without_elements(session_of, shape):
    session = session_of(
        HEAD + "g (float[n,m] x) => (float[n,m] y, float[n] s, float[k,m] c) { a = Relu(x) y = Add(a, x) "
        "o = Constant<value = int64[1] {1}>() s = ReduceSum<keepdims=0>(y, o) c = Concat<axis=0>(a, y) }"
    )
    result = session.run({"x": np.zeros(shape, np.float32)})
    assert result["y"].shape == shape
    assert result["s"].tolist() == [0] * shape[0]
    assert result["c"].shape == (2 * shape[0], shape[1])
    assert session.run({"x": np.ones((1, 2), np.float32)})["s"].tolist() == [4]


def test_scalars(session_of):
    session = session_of(
        HEAD + "g (float x, int64 i) => (float y, int64 j, float[1] u) "
        "{ y = Exp(x) j = Add(i, i) o = Constant<value = int64[1] {0}>() u = Unsqueeze(y, o) }"
    )
    for one, two in ((np.float32(0), np.int64(3)), (np.zeros((), np.float32), np.array(3))):
        result = session.run({"x": one, "i": two})
        assert isinstance(result["y"], np.ndarray)
        assert (result["y"].shape, result["y"].item(), result["j"].item(), result["u"].tolist()) == ((), 1, 6, [1])


def test_text(session_of):
    session = session_of(
        HEAD.replace("18", "20") + "g (string[n] x, string[n] y) => (string[n] z, string[m] w) "
        "{ z = StringConcat(x, y) w = Concat<axis=0>(z, x) }"
    )
    result = session.run({"x": np.array(["a", "é"]), "y": np.array(["b", ""], object)})
    assert result["z"].tolist() == ["ab", "é"]
    assert result["w"].tolist() == ["ab", "é", "a", "é"]
    with pytest.raises(InputError, match="'y' wants text, got an array with int in it"):
        session.run({"x": np.array(["a"]), "y": np.array([1], object)})


def sequence_type(elem=TensorProto.FLOAT):
    return helper.make_sequence_type_proto(helper.make_tensor_type_proto(elem, None))


def value(name, type_proto):
    return onnx.ValueInfoProto(name=name, type=type_proto)


def test_sequences_as_inputs_and_outputs(session_of):
    nodes = [
        helper.make_node("SequenceInsert", ["s", "t"], ["longer"]),
        helper.make_node("SequenceAt", ["longer", "zero"], ["first"]),
        helper.make_node("Relu", ["first"], ["y"]),
    ]
    inputs = [value("s", sequence_type()), helper.make_tensor_value_info("t", TensorProto.FLOAT, ["n"])]
    outputs = [value("longer", sequence_type()), helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    zero = helper.make_tensor("zero", TensorProto.INT64, [], [0])
    model = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, [zero]), opset_imports=[helper.make_opsetid("", 18)])
    session = session_of(model)
    feed = {"s": [np.array([-1, 1], np.float32), np.ones((2, 2), np.float32)], "t": np.array([5], np.float32)}
    result = session.run(feed)
    assert [element.tolist() for element in result["longer"]] == [[-1, 1], [[1, 1], [1, 1]], [5]]
    assert result["y"].tolist() == [0, 1]
    session.inputs["s"].copy_from_host(feed["s"])
    session.inputs["t"].copy_from_host(feed["t"])
    assert session.run()["y"].tolist() == [0, 1]
    with pytest.raises(InputError, match="'s' is a sequence: give a list of arrays, not ndarray"):
        session.run(feed | {"s": np.ones(2, np.float32)})
    with pytest.raises(InputError, match="'s' wants float32, got float64"):
        session.run(feed | {"s": [np.ones(2)]})
    with pytest.raises(InputError, match="'s' is a sequence: it has no shape"):
        session.resize({"s": (1, 2)})


def test_optionals_as_inputs_and_outputs(session_of):
    element = helper.make_tensor_type_proto(TensorProto.FLOAT, ["n"])
    has = helper.make_node("OptionalHasElement", ["o"], ["given"])
    model = helper.make_model(
        helper.make_graph(
            [has, helper.make_node("Identity", ["o"], ["p"])],
            "g",
            [value("o", helper.make_optional_type_proto(element))],
            [helper.make_tensor_value_info("given", TensorProto.BOOL, []), value("p", helper.make_optional_type_proto(element))],
        ),
        opset_imports=[helper.make_opsetid("", 18)],
    )
    session = session_of(model)
    assert session.run({"o": None}) == {"given": False, "p": None}
    assert session.run({}) == session.run() == {"given": False, "p": None}
    result = session.run({"o": np.array([1, 2], np.float32)})
    assert (bool(result["given"]), result["p"].tolist()) == (True, [1, 2])


def test_saved_tensors_are_outputs_too(session_of):
    session = session_of(CHAIN, level=0, save_tensors=("a",))
    assert list(session.run({"x": X})) == ["y", "z", "a"]
    assert session.outputs["a"].copy_to_host().tolist() == [[0, 4]]
    with pytest.raises(InputError, match="no tensor 'q'"):
        session_of(CHAIN, save_tensors=("q",))


def test_metadata_is_the_models(tmp_path):
    model = onnx.parser.parse_model(CHAIN)
    helper.set_model_props(model, {"labels": "cat,dog"})
    mnnx.convert(model, tmp_path / "m.mnnx")
    assert mnnx.Interpreter(tmp_path / "m.mnnx").metadata == {"labels": "cat,dog"}


def test_the_pass_that_fused_a_tensor_away_is_named_and_not_the_one_that_sweeps_it(session_of):
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[2,5,8] q, float[2,8,7] k, float[2,7,4] v) => (float[2,5,4] y)
        { s = MatMul(q, k) p = Softmax<axis = -1>(s) y = MatMul(p, v) }"""
    )
    session = session_of(model)
    feed = {"q": np.ones((2, 5, 8), np.float32), "k": np.ones((2, 8, 7), np.float32), "v": np.ones((2, 7, 4), np.float32)}
    with pytest.raises(
        InputError, match="'s' no longer exists: the pass attention-recognition took it away; convert with level=1 to keep it"
    ):
        session.run(feed, outputs=["s"])


def test_metadata_is_a_copy(session_of):
    interpreter = session_of(
        onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Abs(x) }')
    ).interpreter
    interpreter.metadata["author"] = "nobody"
    assert interpreter.metadata == {}
