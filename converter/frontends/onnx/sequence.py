"""Importers of sequence and optional ops. SequenceMap has none: its ONNX function body, a Loop, is imported."""

from __future__ import annotations

import numpy as np

from mnnx.converter.frontends.onnx.node import OnnxNode
from mnnx.converter.frontends.onnx.registry import direct, importer
from mnnx.converter.graph import Value
from mnnx.schema.ops.base import Op
from mnnx.schema.ops.sequence import (
    ConcatFromSequence,
    Optional,
    OptionalGetElement,
    OptionalHasElement,
    SequenceAt,
    SequenceConstruct,
    SequenceEmpty,
    SequenceErase,
    SequenceInsert,
    SequenceLength,
    SplitToSequence,
)

direct(ConcatFromSequence, SequenceLength)


def _sequence(node: OnnxNode, op: Op, *inputs: Value | None, dtype=None) -> Value:
    result = node.add(op, *inputs)
    result.kind = "sequence"
    result.dtype = dtype
    return result


@importer("SequenceEmpty")
def sequence_empty(node: OnnxNode):
    dtype = node.attribute("dtype", np.dtype, np.dtype(np.float32))
    return _sequence(node, SequenceEmpty(dtype=dtype), dtype=dtype)


@importer("SequenceConstruct")
def sequence_construct(node: OnnxNode, *tensors: Value):
    return _sequence(node, SequenceConstruct(), *tensors, dtype=tensors[0].dtype if tensors else None)


@importer("SequenceAt")
def sequence_at(node: OnnxNode, sequence: Value, position: Value):
    result = node.add(SequenceAt(), sequence, position)
    result.dtype = sequence.dtype
    return result


@importer("SequenceInsert")
def sequence_insert(node: OnnxNode, sequence: Value, tensor: Value, position: Value | None = None):
    return _sequence(node, SequenceInsert(), sequence, tensor, position, dtype=tensor.dtype)


@importer("SequenceErase")
def sequence_erase(node: OnnxNode, sequence: Value, position: Value | None = None):
    return _sequence(node, SequenceErase(), sequence, position, dtype=sequence.dtype)


@importer("SplitToSequence")
def split_to_sequence(node: OnnxNode, x: Value, split: Value | None = None):
    return _sequence(node, node.op(SplitToSequence), x, split, dtype=x.dtype)


@importer("Optional")
def optional(node: OnnxNode, x: Value | None = None):
    result = node.add(Optional(), x)
    result.kind = "optional"
    return result


@importer("OptionalGetElement")
def optional_get_element(node: OnnxNode, x: Value):
    result = node.add(OptionalGetElement(), x)
    if x.kind == "sequence":
        result.kind = "sequence"
    return result


@importer("OptionalHasElement")
def optional_has_element(node: OnnxNode, x: Value | None = None):
    return node.add(OptionalHasElement(), x)
