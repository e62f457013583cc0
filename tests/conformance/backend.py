"""mnnx behind ONNX's backend interface, so that ONNX's own test cases run on it."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.base import Backend, BackendRep

import mnnx


class PreparedModel(BackendRep):
    """A converted model with a session; inputs and outputs go by position."""

    def __init__(self, interpreter: mnnx.Interpreter, names: list[str]):
        self.interpreter = interpreter
        self.session = interpreter.create_session(mnnx.ScheduleConfig(num_threads=1))
        self.names = names

    def run(self, inputs: Sequence[Any], **_kwargs: Any) -> list[Any]:
        feed = {name: host_value(value) for name, value in zip(self.names, inputs, strict=False)}
        results = self.session.run(feed)
        return [results[name] for name in self.session.outputs]


def host_value(value: Any) -> Any:
    """What the loader gives as protobuf (sequences and optionals), as host values."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, onnx.SequenceProto):
        return numpy_helper.to_list(value)
    if isinstance(value, onnx.OptionalProto):
        return numpy_helper.to_optional(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


class MnnxBackend(Backend):
    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **_kwargs: Any) -> PreparedModel:
        constants = {tensor.name for tensor in model.graph.initializer}
        names = [info.name for info in model.graph.input if info.name not in constants]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.mnnx"
            mnnx.convert(model, path)
            data = path.read_bytes()
        return PreparedModel(mnnx.Interpreter.from_bytes(data), names)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"
