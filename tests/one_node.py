"""An ONNX model of one node, converted and run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

import mnnx


def model(
    opset: int, op_type: str, *inputs: np.ndarray | None, constants: tuple[int, ...] = (), outputs: int = 1, **attributes
) -> onnx.ModelProto:
    """Its inputs are x0, x1, … (None: left out; those whose positions are in `constants` are initializers), its outputs y0, y1, …"""
    names = ["" if x is None else f"x{index}" for index, x in enumerate(inputs)]
    results = [f"y{index}" for index in range(outputs)]
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in fed(inputs, constants).items()]
    graph = helper.make_graph(
        [helper.make_node(op_type, names, results, **attributes)],
        "one",
        infos,
        [onnx.ValueInfoProto(name=name) for name in results],
        [numpy_helper.from_array(inputs[index], f"x{index}") for index in constants],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def fed(inputs: tuple[np.ndarray | None, ...], constants: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {f"x{index}": x for index, x in enumerate(inputs) if x is not None and index not in constants}


def run(
    folder: Path, opset: int, op_type: str, *inputs: np.ndarray | None, constants: tuple[int, ...] = (), outputs: int = 1, **attributes
) -> list[np.ndarray]:
    """The outputs of the model."""
    path = folder / "one.mnnx"
    mnnx.convert(model(opset, op_type, *inputs, constants=constants, outputs=outputs, **attributes), path)
    with mnnx.Interpreter.from_file(path) as interpreter:
        session = interpreter.create_session(mnnx.ScheduleConfig(backend="cpu", num_threads=1))
        made = session.run(fed(inputs, constants))
    return [made[f"y{index}"] for index in range(outputs)]
