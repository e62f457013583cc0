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

    with pytest.raises(mnnx.MnnxError, match=f"{node.op_type}_0|identity-elimination fails"):
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
