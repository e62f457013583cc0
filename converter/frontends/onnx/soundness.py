"""Tells a damaged model by what no importer could make sense of: names that are no text, unknown element types, negative sizes."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from mnnx.errors import ConversionError
from mnnx.schema import dtypes


def check(model: onnx.ModelProto) -> None:
    """Raises ConversionError naming what is damaged."""
    _check_names(opset.domain for opset in model.opset_import)
    for graph in graphs(model.graph):
        _check_names(_names(graph))
        for info in [*graph.input, *graph.output, *graph.value_info]:
            _check_type(info.name, info.type)
        for tensor in graph.initializer:
            _check_shape(tensor.name, tensor.dims)
        for sparse in graph.sparse_initializer:
            _check_shape(sparse.values.name, sparse.dims)


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph and its subgraphs."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from graphs(attribute.g)


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    """What a graph calls things."""
    yield graph.name
    yield from (tensor.name for tensor in graph.initializer)
    for info in [*graph.input, *graph.output, *graph.value_info]:
        yield info.name
        yield from (dim.dim_param for dim in info.type.tensor_type.shape.dim)
    for node in graph.node:
        yield from (node.name, node.domain, node.op_type, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)


def _check_names(names: Iterator[str]) -> None:
    for name in names:
        if isinstance(name, bytes):  # what protobuf gives for a string that isn't UTF-8
            raise ConversionError(f"the model is broken: the name {name!r} is not UTF-8")


def _check_type(name: str, proto: onnx.TypeProto) -> None:
    while (kind := proto.WhichOneof("value")) in ("sequence_type", "optional_type"):
        proto = getattr(proto, kind).elem_type
    code = proto.tensor_type.elem_type
    try:
        dtypes.from_code(code)
    except KeyError:
        raise ConversionError(f"the model is broken: the value {name!r} has the unknown element type {code}") from None


def _check_shape(name: str, dims: list[int]) -> None:
    if min(dims, default=0) < 0:
        raise ConversionError(f"the tensor {name!r} is damaged: its shape is {list(dims)}")
