"""What `mnnx verify` compares with: onnxruntime, or onnx's own reference evaluator."""

from __future__ import annotations

import functools
import importlib.util
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import onnx

from mnnx.errors import ConversionError, MnnxError


class ReferenceFailed(MnnxError):
    """The reference can't load or run the model."""


def choose_references(name: str, path: str) -> list[Reference]:
    """The reference `name` (onnxruntime or onnx) on the ONNX file `path`; auto: those that are installed, the one to prefer first."""
    installed = importlib.util.find_spec("onnxruntime") is not None
    if name == "auto":
        return [*([_OnnxRuntime(path)] if installed else []), _Onnx(path)]
    if name == "onnx":
        return [_Onnx(path)]
    if not installed:
        raise ReferenceFailed("onnxruntime isn't installed: pip install onnxruntime, or use --reference onnx")
    return [_OnnxRuntime(path)]


class Reference(ABC):
    """Another runtime on an ONNX file. `proto` is the model, with weights of external files."""

    name: str

    def __init__(self, path: str):
        self.path = path

    @functools.cached_property
    def proto(self) -> onnx.ModelProto:
        try:
            return onnx.load(self.path)
        except Exception as error:  # protobuf has a zoo of parse errors without a common base
            raise ConversionError(f"{self.path} can't be read with its weights: {error}") from error

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
        import numpy as np
        from onnx.reference import ReferenceEvaluator

        proto = self.proto if names is None else self._with_outputs(names)
        evaluator = ReferenceEvaluator(proto, new_ops=[_inference_batch_normalization()] if _has_old_batch_normalization(proto) else None)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # overflow is what a model may do, and no news of mnnx
            return dict(zip(evaluator.output_names, evaluator.run(None, dict(feed)), strict=True))


def _has_old_batch_normalization(proto: onnx.ModelProto) -> bool:
    """Whether BatchNormalization before opset 14 is there for inference: with no output but the first."""
    opset = next((entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")), 1)
    nodes = [node for node in proto.graph.node if node.op_type == "BatchNormalization"]
    return opset < 14 and bool(nodes) and not any(name for node in nodes for name in node.output[1:])


@functools.cache
def _inference_batch_normalization() -> type:
    """Stands in for onnx's own, which trains wherever `momentum` (opset 9 to 13) is set, as its default is, or `is_test` (before) isn't."""
    from onnx.reference.op_run import OpRun

    class BatchNormalization(OpRun):
        op_domain = ""

        def _run(self, x, scale, bias, mean, variance, epsilon=1e-5, spatial=1, **_others):  # of all opsets
            shape = (1, -1, *[1] * (x.ndim - 2)) if spatial in (1, None) else (1, *x.shape[1:])
            scale, bias, mean, variance = (value.reshape(shape) for value in (scale, bias, mean, variance))
            epsilon = 1e-5 if epsilon is None else epsilon
            return ((scale * (x - mean) / (variance + epsilon) ** 0.5 + bias).astype(x.dtype),)

    return BatchNormalization
