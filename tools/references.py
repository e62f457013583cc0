"""What `mnnx verify` compares with: onnxruntime, or onnx's own reference evaluator."""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import onnx

from mnnx.errors import ConversionError, MnnxError


class ReferenceFailed(MnnxError):
    """The reference can't load or run the model."""


def choose_reference(name: str, path: str) -> Reference:
    """The reference `name` (onnxruntime, onnx, or auto: the first that is installed) on the ONNX file `path`."""
    if name == "auto":
        name = "onnxruntime" if importlib.util.find_spec("onnxruntime") else "onnx"
    if name == "onnx":
        return _Onnx(path)
    if not importlib.util.find_spec("onnxruntime"):
        raise ReferenceFailed("onnxruntime isn't installed: pip install onnxruntime, or use --reference onnx")
    return _OnnxRuntime(path)


class Reference(ABC):
    """Another runtime on an ONNX file. `proto` is the model, with weights of external files."""

    name: str

    def __init__(self, path: str):
        self.path = path
        try:
            self.proto = onnx.load(path)
        except Exception as error:  # protobuf has a zoo of parse errors without a common base
            raise ConversionError(f"{path} can't be read with its weights: {error}") from error

    def run(self, feed: Mapping[str, Any], names: Sequence[str] | None = None) -> dict[str, Any]:
        """The model's outputs, or the tensors of its main graph that are named. Raises ReferenceFailed."""
        try:
            return self._run(feed, None if names is None else list(names))
        except Exception as error:  # whatever the other runtime raises
            text = str(error).strip().splitlines()[0]
            raise ReferenceFailed(f"{self.name} can't run this model on these inputs: {text}") from error

    @abstractmethod
    def _run(self, feed: Mapping[str, Any], names: list[str] | None) -> dict[str, Any]: ...

    def _with_outputs(self, names: list[str]) -> onnx.ModelProto:
        model = onnx.ModelProto()
        model.CopyFrom(self.proto)
        known = {value.name: value for value in [*model.graph.output, *model.graph.value_info]}
        outputs = [known.get(name) or onnx.ValueInfoProto(name=name) for name in names]
        outputs = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in outputs]
        del model.graph.output[:]
        model.graph.output.extend(outputs)
        return model


class _OnnxRuntime(Reference):
    name = "onnxruntime"

    def _run(self, feed: Mapping[str, Any], names: list[str] | None) -> dict[str, Any]:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        source: Any = self.path
        if names is not None:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # so that all tensors stay
            source = self._with_outputs(names).SerializeToString()
        session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        return dict(zip([o.name for o in session.get_outputs()], session.run(None, dict(feed)), strict=True))


class _Onnx(Reference):
    name = "onnx's reference evaluator"

    def _run(self, feed: Mapping[str, Any], names: list[str] | None) -> dict[str, Any]:
        from onnx.reference import ReferenceEvaluator

        evaluator = ReferenceEvaluator(self.proto if names is None else self._with_outputs(names))
        return dict(zip(evaluator.output_names, evaluator.run(None, dict(feed)), strict=True))
