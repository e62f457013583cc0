"""Source models and paths that nobody should give: each ends in a ConversionError that says what is wrong, and leaves nothing behind."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import mnnx

OPSETS = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]


def _function(name: str, *nodes: onnx.NodeProto) -> onnx.FunctionProto:
    return helper.make_function("own", name, ["a"], ["b"], list(nodes), OPSETS)


def _call(name: str, source: str = "a", target: str = "b") -> onnx.NodeProto:
    return helper.make_node(name, [source], [target], domain="own")


def _model(node: onnx.NodeProto, functions: tuple[onnx.FunctionProto, ...] = ()) -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    return helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=OPSETS, functions=functions, ir_version=10)


def _doubling(depth: int) -> tuple[onnx.FunctionProto, ...]:
    """Functions that each call the next one twice."""
    calls = (_function(f"F{i}", _call(f"F{i + 1}", "a", "t"), _call(f"F{i + 1}", "t", "b")) for i in range(depth))
    return (*calls, _function(f"F{depth}", helper.make_node("Neg", ["a"], ["b"])))


NEG = helper.make_node("Neg", ["a"], ["b"])


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (_model(_call("F", "x", "y"), (_function("F", _call("F")),)), "own functions are broken: .*[Cc]ycle"),
        (_model(_call("F", "x", "y"), (_function("F", NEG), _function("F", NEG))), "own functions are broken: .*F"),
        (_model(helper.make_node("F", ["x", "x"], ["y"], domain="own"), (_function("F", NEG),)), "own functions are broken"),
        (_model(_call("F0", "x", "y"), _doubling(40)), r"own functions would make \d{13} nodes of it; the limit is 1048576"),
    ],
    ids=["recursive", "twice", "too many inputs", "doubling"],
)
def test_broken_functions(model: onnx.ModelProto, message: str, tmp_path: Path) -> None:
    with pytest.raises(mnnx.ConversionError, match=message):
        mnnx.convert(model, tmp_path / "m.mnnx")
    assert not list(tmp_path.iterdir())


def test_functions_that_call_functions(session_of) -> None:
    session = session_of(_model(_call("F0", "x", "y"), _doubling(5)), level=0)
    assert len(session._graph.nodes) == 32


def test_an_unknown_element_type(tmp_path: Path) -> None:
    model = _model(helper.make_node("Neg", ["x"], ["y"]))
    model.graph.value_info.add(name="y").type.tensor_type.elem_type = 71
    model.graph.output[0].type.tensor_type.elem_type = 71
    with pytest.raises(mnnx.ConversionError, match=r"broken: .*71"):
        mnnx.convert(model, tmp_path / "m.mnnx")


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("said", [TensorProto.STRING, TensorProto.INT64, TensorProto.FLOAT16])
def test_an_output_of_another_element_type_than_the_graph_says(said: int, level: int, tmp_path: Path) -> None:
    model = _model(helper.make_node("Neg", ["x"], ["y"]))
    model.graph.output[0].type.tensor_type.elem_type = said
    name = helper.tensor_dtype_to_np_dtype(said).name if said != TensorProto.STRING else "string"
    with pytest.raises(mnnx.ConversionError, match=f"output 'y' is of float32, and not of {name}, as the graph says"):
        mnnx.convert(model, tmp_path / "m.mnnx", level=level)
    assert not list(tmp_path.iterdir())


def test_a_weight_of_an_unknown_element_type_is_named(tmp_path: Path) -> None:
    model = _model(helper.make_node("Add", ["x", "w"], ["y"]))
    model.graph.initializer.append(numpy_helper.from_array(np.ones(2, np.float32), "w"))
    model.graph.initializer[0].data_type = 200
    with pytest.raises(mnnx.ConversionError, match="value 'w' has the unknown element type 200"):
        mnnx.convert(model, tmp_path / "m.mnnx")


def test_an_op_whose_name_is_no_text(tmp_path: Path) -> None:
    data = _model(helper.make_node("Negation", ["x"], ["y"])).SerializeToString().replace(b"Negation", b"Neg\xff\xfe\xfd\xfcn")
    (tmp_path / "m.onnx").write_bytes(data)
    with pytest.raises(mnnx.ConversionError):
        mnnx.convert(tmp_path / "m.onnx", tmp_path / "m.mnnx")


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("Transpose", [], ["y"]),
        helper.make_node("MatMul", ["x"], ["y"]),
        helper.make_node("Trilu", ["x", "x", "x", "x"], ["y"]),
        helper.make_node("Concat", ["", "x"], ["y"], axis=0),
        helper.make_node("Where", ["", "x", "x"], ["y"]),
        helper.make_node("BatchNormalization", ["x"], ["y"]),
        helper.make_node("Identity", [], ["y"]),
        helper.make_node("LSTM", ["x", "", ""], ["y"], hidden_size=2),
    ],
    ids=lambda node: node.op_type,
)
@pytest.mark.parametrize("level", [0, 2])
def test_a_node_with_wrong_inputs_is_named(node: onnx.NodeProto, level: int, tmp_path: Path) -> None:
    def use() -> None:
        mnnx.convert(_model(node), tmp_path / "m.mnnx", level=level)
        mnnx.Interpreter.from_file(tmp_path / "m.mnnx").create_session()

    with pytest.raises(mnnx.MnnxError, match=f"{node.op_type}_0"):
        use()


def test_negative_dims_are_open_ones(session_of) -> None:
    slices = [numpy_helper.from_array(np.array([value]), name) for name, value in zip("bead", (5, -9, 0, -1), strict=True)]
    model = _model(helper.make_node("Slice", ["x", "b", "e", "a", "d"], ["y"]))
    model.graph.initializer.extend(slices)
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_value = -1
    before = model.SerializeToString()
    session = session_of(model)
    assert session.inputs["x"].shape == (-1,)
    assert session.run({"x": np.arange(3, dtype=np.float32)})["y"].tolist() == [2, 1, 0]
    assert model.SerializeToString() == before


def test_a_weight_of_a_negative_size_is_damaged(tmp_path: Path) -> None:
    model = _model(helper.make_node("Add", ["x", "w"], ["y"]))
    model.graph.initializer.append(numpy_helper.from_array(np.ones(2, np.float32), "w"))
    model.graph.initializer[0].dims[0] = -2
    with pytest.raises(mnnx.ConversionError, match=r"the tensor 'w' is damaged: its shape is \[-2\]"):
        mnnx.convert(model, tmp_path / "m.mnnx")


@pytest.mark.parametrize("source", [None, 5, b"m.onnx", [], onnx.GraphProto(), "a\0b", "x" * 5000])
def test_a_source_that_is_no_path(source: Any, tmp_path: Path) -> None:
    with pytest.raises(mnnx.ConversionError, match=r"source|can't be read"):
        mnnx.convert(source, tmp_path / "m.mnnx")


@pytest.mark.parametrize("target", [None, 5, b"m.mnnx", "a\0b", "x" * 5000])
def test_a_target_that_is_no_path(target: Any) -> None:
    with pytest.raises(mnnx.ConversionError, match=r"target|can't be written"):
        mnnx.convert(_model(helper.make_node("Neg", ["x"], ["y"])), target)


def test_a_pipe_is_neither_read_nor_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(mnnx.ConversionError, match="pipe can't be written: it is a device or a pipe, not a file"):
        mnnx.convert(_model(helper.make_node("Neg", ["x"], ["y"])), pipe)
    with pytest.raises(mnnx.ConversionError, match="pipe is not a file"):
        mnnx.convert(pipe, tmp_path / "m.mnnx")
    with pytest.raises(mnnx.InputError, match="pipe' can't be opened: It is a device or a pipe, not a file"):
        mnnx.Interpreter.from_file(pipe)
    assert pipe.is_fifo()


@pytest.mark.parametrize("buffer", [None, 5, "text", []])
def test_a_model_is_read_from_bytes(buffer: Any) -> None:
    with pytest.raises(mnnx.ModelFormatError, match=f"bytes of a file, not from {type(buffer).__name__}"):
        mnnx.Interpreter.from_bytes(buffer)


def test_progress_must_be_a_function(tmp_path: Path) -> None:
    with pytest.raises(mnnx.ConversionError, match="progress must be a function"):
        mnnx.convert(_model(helper.make_node("Neg", ["x"], ["y"])), tmp_path / "m.mnnx", progress=5)


@pytest.mark.parametrize("wrap", [lambda proto: proto, helper.make_sequence_type_proto, helper.make_optional_type_proto])
def test_a_value_of_an_unknown_type_is_named(wrap: Any, tmp_path: Path) -> None:
    model = _model(helper.make_node("Neg", ["x"], ["y"]))
    model.graph.input.append(helper.make_value_info("odd", wrap(helper.make_tensor_type_proto(99, [2]))))
    with pytest.raises(mnnx.ConversionError, match="value 'odd' has the unknown element type 99"):
        mnnx.convert(model, tmp_path / "m.mnnx")


@pytest.mark.parametrize("name", [b"Negation", b"domain", b"weight", b"result"])
def test_a_name_that_is_no_text(name: bytes, tmp_path: Path) -> None:
    nodes = [helper.make_node("Negation", ["x", "weight"], ["result"], domain="domain"), helper.make_node("Unknown", ["result"], ["y"])]
    model = _model(nodes[0])
    model.graph.node.append(nodes[1])
    model.graph.initializer.append(numpy_helper.from_array(np.ones(2, np.float32), "weight"))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString().replace(name, b"\xff" * len(name)))
    with pytest.raises(mnnx.ConversionError, match=r"the name b'\\xff.*' is not UTF-8"):
        mnnx.convert(tmp_path / "m.onnx", tmp_path / "m.mnnx")


@pytest.mark.parametrize(
    ("dims", "indices", "message"),
    [
        ([2**31, 2**31], [1], r"'w' of shape \[2147483648, 2147483648\] can't be made dense: the limit is 1024 MiB"),
        ([-1], [1], r"'w' is damaged: its shape is \[-1\]"),
        ([2], [5, 0, 1], r"sparse tensor 'w' of shape \[2\] is damaged: index 5 is out of bounds"),
        ([2], [0.5], "sparse tensor 'w' of .* is damaged: "),
        ([2], [0, 1], "sparse tensor 'w' of .* is damaged: shape mismatch"),
        ([2, 2], [[0], [1], [1]], "sparse tensor 'w' of .* is damaged: "),
    ],
)
def test_broken_sparse_tensors(dims: list[int], indices: list[Any], message: str, tmp_path: Path) -> None:
    model = _model(helper.make_node("Neg", ["x"], ["y"]))
    values = numpy_helper.from_array(np.ones(3, np.float32), "w")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, numpy_helper.from_array(np.array(indices)), [3]))
    model.graph.sparse_initializer[0].dims[:] = dims
    with pytest.raises(mnnx.ConversionError, match=message):
        mnnx.convert(model, tmp_path / "m.mnnx")


@pytest.mark.parametrize("outputs", [[], [""]])
def test_a_node_without_outputs_is_named(outputs: list[str], tmp_path: Path) -> None:
    model = _model(helper.make_node("Neg", ["x"], ["y"]))
    model.graph.node.append(helper.make_node("Identity", ["x"], outputs, name="idle"))
    with pytest.raises(mnnx.ConversionError, match=r"node 'idle' \(Identity.*has no outputs"):
        mnnx.convert(model, tmp_path / "m.mnnx")


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (helper.make_node("SequenceMap", [], ["y"]), r"node 'SequenceMap_0' \(SequenceMap.*doesn't fit the op's definition"),
        (helper.make_node("Neg", ["y"], ["y"]), r"'y', which is made from its own result"),
        (helper.make_node("Neg", ["z"], ["y"]), r"'z', which nothing makes"),
    ],
    ids=["function without inputs", "cycle", "missing"],
)
def test_what_is_wrong_with_a_node_is_said(node: onnx.NodeProto, message: str, tmp_path: Path) -> None:
    with pytest.raises(mnnx.ConversionError, match=message):
        mnnx.convert(_model(node), tmp_path / "m.mnnx")


def test_a_function_op_with_too_many_inputs_is_named(tmp_path: Path) -> None:
    model = _model(helper.make_node("FlexAttention", ["q", "q", "q", "q"], ["y"], domain="ai.onnx.preview"))
    model.opset_import.append(helper.make_opsetid("ai.onnx.preview", 1))
    model.graph.input.append(helper.make_tensor_value_info("q", TensorProto.FLOAT, [1, 2, 3, 4]))
    with pytest.raises(mnnx.ConversionError, match=r"node 'FlexAttention_0' .*has 4 inputs, the op has 3"):
        mnnx.convert(model, tmp_path / "m.mnnx")


@pytest.mark.parametrize("op_type", ["SequenceAt", "SequenceInsert", "SequenceErase", "SequenceLength", "ConcatFromSequence"])
def test_a_tensor_where_a_sequence_belongs_is_named(op_type: str, tmp_path: Path) -> None:
    inputs = ["x", "x"] if op_type in ("SequenceAt", "SequenceInsert") else ["x"]
    model = _model(helper.make_node(op_type, inputs, ["y"], **({"axis": 0} if op_type == "ConcatFromSequence" else {})))
    with pytest.raises(mnnx.ConversionError, match=rf"node '{op_type}_0' .*the first input must be a sequence; it is the tensor float32"):
        mnnx.convert(model, tmp_path / "m.mnnx")


def _broken(way: str) -> onnx.ModelProto:
    model = _model(helper.make_node("Softmax", ["x"], ["y"], name="soft", axis=0))
    weight = numpy_helper.from_array(np.ones(2, np.float32), "w")
    node = model.graph.node[0]
    if way == "weights":
        model.graph.initializer.extend([weight, weight])
    elif way == "sparse weight":
        model.graph.initializer.append(weight)
        model.graph.sparse_initializer.append(helper.make_sparse_tensor(weight, numpy_helper.from_array(np.arange(2)), [2]))
    elif way == "attributes":
        node.attribute.append(node.attribute[0])
    elif way == "reference":
        node.attribute[0].ref_attr_name = "axis"
    elif way == "opsets":
        model.opset_import.append(helper.make_opsetid("ai.onnx", 7))
    elif way == "no opset":
        del model.opset_import[:]
    else:
        x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("z", "b"))
        branch = helper.make_graph([helper.make_node("Neg", ["x"], ["b"])], "branch", [x], [y])
        model.graph.initializer.append(numpy_helper.from_array(np.array(True), "c"))
        node.CopyFrom(helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch))
    return model


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ("weights", "it has 2 weights of the name 'w'"),
        ("sparse weight", "it has 2 weights of the name 'w'"),
        ("attributes", r"node 'soft' \(Softmax\) has the attribute 'axis' twice"),
        ("reference", r"node 'soft' \(Softmax\) takes its attribute 'axis' from a function, but stands in none"),
        ("opsets", r"it uses two opsets of the domain 'ai\.onnx', \d+ and 7"),
        ("no opset", "doesn't say which opset it uses"),
        ("branch", r"\(If, opset \d+\): a branch must have no inputs; it has 'z'"),
    ],
)
def test_what_could_be_taken_in_two_ways_is_refused(way: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(mnnx.ConversionError, match=message):
        mnnx.convert(_broken(way), tmp_path / "m.mnnx")


def test_an_attribute_that_a_function_isnt_given_has_its_default(session_of) -> None:
    softmax = helper.make_node("Softmax", ["a"], ["b"])
    softmax.attribute.add(name="axis", type=onnx.AttributeProto.INT, ref_attr_name="way")
    function = helper.make_function("own", "F", ["a"], ["b"], [softmax], OPSETS, ["way"])
    x = np.float32([1, 2])
    result = session_of(_model(_call("F", "x", "y"), (function,))).run({"x": x})["y"]
    np.testing.assert_allclose(result, np.exp(x) / np.exp(x).sum(), rtol=1e-6)


def test_a_folder_is_neither_source_nor_target(tmp_path: Path) -> None:
    model = _model(helper.make_node("Neg", ["x"], ["y"]))
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(mnnx.ConversionError, match=r"the target '.*/new/' names a folder; give the path of a file"):
        mnnx.convert(model, f"{tmp_path}/new/")
    with pytest.raises(mnnx.ConversionError, match=r"the source '.*/m\.onnx/' names a folder; give the path of a file"):
        mnnx.convert(f"{tmp_path}/m.onnx/", tmp_path / "m.mnnx")
    assert os.listdir(tmp_path) == ["m.onnx"]


def test_a_model_too_large_for_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: Any) -> None:
        raise MemoryError("no 12 GiB")

    monkeypatch.setattr("mnnx.converter.frontends.onnx.importer.with_inferred_types", refuse)
    with pytest.raises(mnnx.ConversionError, match="not enough memory to convert ModelProto: no 12 GiB"):
        mnnx.convert(_model(helper.make_node("Neg", ["x"], ["y"])), tmp_path / "m.mnnx")


@pytest.mark.parametrize("level", [None, "2", 1.0, [], np.ones(2), 4])
def test_a_level_that_there_is_not(level: Any, tmp_path: Path) -> None:
    with pytest.raises(mnnx.ConversionError, match="level must be one of 0, 1, 2, 3"):
        mnnx.convert(_model(helper.make_node("Neg", ["x"], ["y"])), tmp_path / "m.mnnx", level=level)


def test_a_resize_without_scales_is_named(tmp_path: Path) -> None:
    model = _model(helper.make_node("Resize", ["x"], ["y"]))
    model.opset_import[0].version = 10
    with pytest.raises(mnnx.ConversionError, match=r"node 'Resize_0' \(Resize, opset 10\): needs the input scales"):
        mnnx.convert(model, tmp_path / "m.mnnx")


def _fixed(op_type: str, shape: list[int], *more: np.ndarray, **attributes: Any) -> onnx.ModelProto:
    names = [f"w{i}" for i in range(len(more))]
    x, y = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape), onnx.ValueInfoProto(name="y")
    weights = [numpy_helper.from_array(array, name) for name, array in zip(names, more, strict=True)]
    graph = helper.make_graph([helper.make_node(op_type, ["x", *names], ["y"], **attributes)], "g", [x], [y], weights)
    return helper.make_model(graph, opset_imports=OPSETS, ir_version=10)


@pytest.mark.parametrize("level", range(4))
@pytest.mark.parametrize(
    ("model", "message"),
    [
        (_fixed("Conv", [2, 3], np.ones((2, 3, 3, 3), np.float32)), r"node 'Conv_0' \(Conv\) can't run on its inputs float32\[2, 3\], "),
        (_fixed("MatMul", [2, 3], np.ones((4, 3), np.float32)), r"\(MatMul\) can't run on its inputs float32\[2, 3\], float32\[4, 3\]: "),
        (_fixed("Add", [2], np.ones(2, np.int64)), r"\(Add\) can't run on its inputs float32\[2\], int64\[2\]: "),
        (_fixed("Softmax", [2, 2], axis=7), r"\(Softmax\) can't run on its inputs float32\[2, 2\]: "),
    ],
    ids=["rank", "size", "dtype", "axis"],
)
def test_a_rule_that_fixed_shapes_break_is_told(model: onnx.ModelProto, message: str, level: int, tmp_path: Path) -> None:
    with pytest.raises(mnnx.ConversionError, match=message):
        mnnx.convert(model, tmp_path / "m.mnnx", level=level)


def test_a_rule_is_checked_behind_shape_arithmetic(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2, 3] x) => (float[A, B] y) <int64[1] five = {5}>
        { s = Shape(x) t = Add(s, s) r = Concat<axis = 0>(t, five) y = Reshape(x, r) }"""
    with pytest.raises(mnnx.ConversionError, match=r"\(Reshape\) can't run on its inputs float32\[2, 3\], int64\[3\]"):
        mnnx.convert(onnx.parser.parse_model(text), tmp_path / "m.mnnx", level=0)


def test_a_rule_that_only_dead_code_breaks_is_no_error(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2, 3] x) => (float[2, 3] y) { z = MatMul(x, x) y = Neg(x) }"""
    mnnx.convert(onnx.parser.parse_model(text), tmp_path / "m.mnnx")


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (helper.make_node("Neg", ["x"], ["y", "z"]), r"node 'Neg_0' \(Neg, opset 18\) has 2 outputs, the op has 1"),
        (helper.make_node("MatMul", ["x", "x", "x"], ["y"]), r"\(MatMul, opset 18\) has 3 inputs, the op has 2"),
    ],
)
def test_more_inputs_or_outputs_than_the_op_has(node: onnx.NodeProto, message: str, tmp_path: Path) -> None:
    with pytest.raises(mnnx.ConversionError, match=message):
        mnnx.convert(_model(node), tmp_path / "m.mnnx")


def test_inputs_that_are_left_out_behind_the_others_dont_count(session_of) -> None:
    assert session_of(_model(helper.make_node("Neg", ["x", "", ""], ["y", ""]))).run({"x": np.ones(2, np.float32)})["y"][0] == -1


def test_opsets_begin_with_1(tmp_path: Path) -> None:
    model = _model(helper.make_node("Neg", ["x"], ["y"]))
    model.opset_import[0].version = 0
    with pytest.raises(mnnx.ConversionError, match="uses opset 0, which there isn't"):
        mnnx.convert(model, tmp_path / "m.mnnx")


def test_a_split_into_another_number_of_outputs(tmp_path: Path) -> None:
    with pytest.raises(mnnx.ConversionError, match=r"\(Split, opset 18\): num_outputs is 0, but it has 1 outputs"):
        mnnx.convert(_model(helper.make_node("Split", ["x"], ["y"], num_outputs=0)), tmp_path / "m.mnnx")


@pytest.mark.parametrize("what", ["input", "output"])
def test_a_name_is_given_once(what: str, tmp_path: Path) -> None:
    model = _model(helper.make_node("Neg", ["x"], ["y"]))
    values = getattr(model.graph, what)
    values.append(values[0])
    with pytest.raises(mnnx.ConversionError, match=f"it has 2 {what}s of the name"):
        mnnx.convert(model, tmp_path / "m.mnnx")
