"""An op of ours as a model of its own, and as an ONNX model for the reference implementation."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from mnnx.schema import dtypes
from mnnx.schema.model import Graph, Model, Node, Value
from mnnx.schema.ops import Op


def model_of(op: Op, inputs: tuple[Any, ...], outputs: int, constant: frozenset[int] = frozenset()) -> Model:
    """A model of one node; the inputs whose positions are in `constant` stand in it as constants, the others are fed as i0, i1, …"""
    values: list[Value] = []
    indices = []
    fed = []
    for position, value in enumerate(inputs):
        if value is None:
            indices.append(-1)
            continue
        indices.append(len(values))
        if isinstance(value, list):
            values.append(Value(f"i{position}", value[0].dtype if value else None, None, "sequence"))
            fed.append(indices[-1])
        elif isinstance(value, dict):
            values.append(Value(f"i{position}", None, None, "map"))
            fed.append(indices[-1])
        elif position in constant:
            values.append(Value(f"i{position}", value.dtype, value.shape, "tensor", value))
        else:
            values.append(Value(f"i{position}", value.dtype, value.shape))
            fed.append(indices[-1])
    results = tuple(range(len(values), len(values) + outputs))
    values += [Value(f"o{i}") for i in range(outputs)]
    node = Node("op", op, tuple(indices), results)
    return Model([Graph("main", values, tuple(fed), results, [node])])


def reference(op: Op, inputs: tuple[Any, ...], outputs: int) -> list[Any]:
    """What ONNX's reference implementation gives for the op of the same name in the newest opset."""
    attributes = {key: _attribute(value) for key, value in op.attributes().items() if value is not None}
    domain, _, op_type = op.name.rpartition("::")
    names = ["" if value is None else f"i{i}" for i, value in enumerate(inputs)]
    node = helper.make_node(op_type, names, [f"o{i}" for i in range(outputs)], domain=domain, **attributes)
    infos = [_info(name, value) for name, value in zip(names, inputs, strict=True) if name]
    results = [helper.make_value_info(f"o{i}", onnx.TypeProto()) for i in range(outputs)]
    opsets = [helper.make_opsetid("", onnx.defs.onnx_opset_version())]
    if domain:
        opsets.append(helper.make_opsetid(domain, 5 if domain == "ai.onnx.ml" else 1))
    model = helper.make_model(helper.make_graph([node], "op", infos, results), opset_imports=opsets)
    return ReferenceEvaluator(model).run(None, {name: value for name, value in zip(names, inputs, strict=True) if name})


def _attribute(value: Any) -> Any:
    if isinstance(value, np.dtype):
        return dtypes.to_code(value)
    if isinstance(value, np.ndarray):
        return numpy_helper.from_array(value)
    return int(value) if isinstance(value, bool) else value


def _info(name: str, value: Any) -> onnx.ValueInfoProto:
    if isinstance(value, list):
        return helper.make_tensor_sequence_value_info(name, dtypes.to_code(value[0].dtype) if value else 1, None)
    return helper.make_tensor_value_info(name, dtypes.to_code(value.dtype), value.shape)
