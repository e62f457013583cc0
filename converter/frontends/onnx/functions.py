"""ONNX function ops: an op without an importer is imported as the nodes of its function body."""

from __future__ import annotations

import onnx
import onnx.defs
import onnx.inliner

from mnnx.converter.frontends.onnx.node import OnnxNode
from mnnx.errors import ConversionError
from mnnx.schema import dtypes

#: Nodes that a model may have when its own functions are put in; functions that call others twice double them with each level.
MAX_NODES = 1 << 20


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its own functions put in where they are called. Raises ConversionError where they can't be."""
    _check_size(model)
    try:
        return onnx.inliner.inline_local_functions(model)
    except Exception as error:  # raised by the C++ side
        raise ConversionError(f"the model's own functions are broken: {error}") from error


def _check_size(model: onnx.ModelProto) -> None:
    bodies = {(function.domain, function.name): function.node for function in model.functions}
    sizes: dict[tuple[str, str], int] = {}

    def size(nodes) -> int:
        return sum(
            1 + called((node.domain, node.op_type)) + sum(size(a.g.node) for a in node.attribute if a.HasField("g")) for node in nodes
        )

    def called(key: tuple[str, str]) -> int:
        if key in bodies and key not in sizes:
            sizes[key] = 0  # where it calls itself, onnx says so
            sizes[key] = size(bodies[key])
        return sizes.get(key, 0)

    try:
        count = size(model.graph.node)
    except RecursionError as error:
        raise ConversionError("the model's own functions call each other too deep") from error
    if count > MAX_NODES:
        raise ConversionError(f"the model's own functions would make {count} nodes of it; the limit is {MAX_NODES}")


def body(node: OnnxNode) -> onnx.FunctionProto | None:
    """The function body of a node's op at its opset, or None where it has none. Raises ConversionError where the node breaks its rules."""
    try:
        schema = onnx.defs.get_schema(node.op_type, node.opset, node.domain)
    except (onnx.defs.SchemaError, TypeError):  # an op's name of bytes, as it isn't UTF-8
        return None
    text = None
    if schema.has_function:
        text = schema.get_function_with_opset_version(_version(schema.function_opset_versions, node.opset))
    elif schema.has_context_dependent_function:
        types = [_type(value).SerializeToString() for value in node.inputs]
        version = _version(schema.context_dependent_function_opset_versions, node.opset)
        try:
            text = schema.get_context_dependent_function_with_opset_version(version, node.proto.SerializeToString(), types)
        except Exception as error:  # raised by the C++ side
            node.fail(f"doesn't fit the op's definition: {error}")
    if not text:
        return None
    function = onnx.FunctionProto()
    function.ParseFromString(text)
    return function


def _version(versions: list[int], opset: int) -> int:
    """The newest body that is written for the model's opset or an older one, else the oldest."""
    return max([v for v in versions if v <= opset], default=min(versions))


def bind_attributes(proto: onnx.NodeProto, call: onnx.NodeProto, function: onnx.FunctionProto) -> onnx.NodeProto:
    """A copy of a function's node in which references to the function's attributes are replaced by the call's values."""
    given = {a.name: a for a in function.attribute_proto} | {a.name: a for a in call.attribute}
    bound = onnx.NodeProto()
    bound.CopyFrom(proto)
    del bound.attribute[:]
    for attribute in proto.attribute:
        if attribute.ref_attr_name:
            if attribute.ref_attr_name in given:
                value = bound.attribute.add()
                value.CopyFrom(given[attribute.ref_attr_name])
                value.name = attribute.name
            continue
        value = bound.attribute.add()
        value.CopyFrom(attribute)
        if value.type == onnx.AttributeProto.GRAPH:
            nodes = [bind_attributes(inner, call, function) for inner in attribute.g.node]
            del value.g.node[:]
            value.g.node.extend(nodes)
    return bound


def _type(value) -> onnx.TypeProto:
    if value is None:
        return onnx.TypeProto()
    if value.kind == "sequence":
        element = onnx.helper.make_tensor_type_proto(dtypes.to_code(value.dtype), None)
        return onnx.helper.make_sequence_type_proto(element)
    return onnx.helper.make_tensor_type_proto(dtypes.to_code(value.dtype), value.shape)
