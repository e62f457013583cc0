"""The hints of onnx's inference: those of a whole model, though it gets no weights."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mnnx.converter.frontends.onnx import inferred_types
from tests import networks


def _shapes(graph: onnx.GraphProto) -> dict[str, list[int]]:
    return {info.name: [dim.dim_value for dim in info.type.tensor_type.shape.dim] for info in [*graph.value_info, *graph.output]}


def _tensor(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.ones(shape, np.float32), name)


def test_large_tensors_give_their_types_and_stay() -> None:
    branch = helper.make_graph(
        [helper.make_node("MatMul", ["y", "inner"], ["z"])],
        "branch",
        [],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
        [_tensor("inner", 60, 70)],
    )
    nodes = [
        helper.make_node("Constant", [], ["held"], value=_tensor("held", 50, 60)),
        helper.make_node("MatMul", ["x", "weights"], ["h"]),
        helper.make_node("MatMul", ["h", "held"], ["y"]),
        helper.make_node("If", ["chosen"], ["out"], then_branch=branch, else_branch=branch),
        helper.make_node("Reshape", ["out", "shape"], ["flat"]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 40]),
        helper.make_tensor_value_info("chosen", TensorProto.BOOL, []),
    ]
    shape = numpy_helper.from_array(np.array([7, -1]), "shape")
    graph = helper.make_graph(
        nodes, "g", inputs, [helper.make_tensor_value_info("flat", TensorProto.FLOAT, None)], [_tensor("weights", 40, 50), shape]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    before = [tensor.SerializeToString() for tensor in model.graph.initializer]
    typed = inferred_types.with_inferred_types(model).graph
    expected = {"held": [50, 60], "h": [3, 50], "y": [3, 60], "out": [3, 70], "flat": [7, 30]}
    assert _shapes(typed) == expected
    assert _shapes(typed.node[3].attribute[0].g) == {"z": [3, 70]}
    assert [tensor.SerializeToString() for tensor in typed.initializer] == before
    assert numpy_helper.to_array(typed.node[0].attribute[0].t).shape == (50, 60)


def test_conversions_of_one_model_write_equal_files(tmp_path: Path) -> None:
    onnx.save(networks.transformer_like(), tmp_path / "m.onnx")
    files = []
    for seed in ("1", "2"):
        target = tmp_path / f"{seed}.mnnx"
        script = f"import mnnx; mnnx.convert({str(tmp_path / 'm.onnx')!r}, {str(target)!r})"
        subprocess.run([sys.executable, "-c", script], env=os.environ | {"PYTHONHASHSEED": seed}, check=True)
        files.append(target.read_bytes())
    assert files[0] == files[1]
