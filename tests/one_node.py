"""An ONNX model of one node, converted and run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

import mnnx


def run(
    folder: Path, opset: int, op_type: str, *inputs: np.ndarray | None, constants: tuple[int, ...] = (), outputs: int = 1, **attributes
) -> list[np.ndarray]:
    """Its outputs. None: an input left out; those whose positions are in `constants` are initializers."""
    names = ["" if x is None else f"x{index}" for index, x in enumerate(inputs)]
    results = [f"y{index}" for index in range(outputs)]
    fed = {name: x for index, (name, x) in enumerate(zip(names, inputs, strict=True)) if name and index not in constants}
    infos = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for name, x in fed.items()]
    graph = helper.make_graph(
        [helper.make_node(op_type, names, results, **attributes)],
        "one",
        infos,
        [onnx.ValueInfoProto(name=name) for name in results],
        [numpy_helper.from_array(inputs[index], f"x{index}") for index in constants],
    )
    path = folder / "one.mnnx"
    mnnx.convert(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]), path)
    with mnnx.Interpreter.from_file(path) as interpreter:
        session = interpreter.create_session(mnnx.ScheduleConfig(backend="cpu", num_threads=1))
        made = session.run(fed)
    return [made[name] for name in results]
