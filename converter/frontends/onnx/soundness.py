"""Tells a damaged model by what no importer could make sense of: names that are no text, unknown element types, negative sizes."""

from __future__ import annotations

import difflib
import functools
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import onnx

from mnnx.converter.frontends.onnx.contrib_schemas import CONTRIB_ATTRIBUTES
from mnnx.errors import ConversionError
from mnnx.schema import dtypes

#: What names of attributes begin with that onnx's checker lets pass at any op.
_UNCHECKED = "__"


def check(model: onnx.ModelProto) -> None:
    """Raises ConversionError naming what is damaged."""
    _check_names(opset.domain for opset in model.opset_import)
    if not model.opset_import and model.ir_version >= 3:
        raise ConversionError("the model is broken: it doesn't say which opset it uses (opset_import is empty)")
    _check_opsets(model.opset_import)
    _check_unique("output", (value.name for value in model.graph.output))
    for graph in graphs(model.graph):
        _check_names([graph.name, *(tensor.name for tensor in graph.initializer)])
        _check_unique("input", (value.name for value in graph.input))
        _check_unique("weight", [*(t.name for t in graph.initializer), *(s.values.name for s in graph.sparse_initializer)])
        for node in graph.node:
            _check_node(node)
        for info in [*graph.input, *graph.output, *graph.value_info]:
            _check_names([info.name, *(dim.dim_param for dim in info.type.tensor_type.shape.dim)])
            _check_type(info.name, info.type)
        for tensor in graph.initializer:
            _check_code(tensor.name, tensor.data_type)
            _check_shape(tensor.name, tensor.dims)
        for sparse in graph.sparse_initializer:
            _check_code(sparse.values.name, sparse.values.data_type)
            _check_shape(sparse.values.name, sparse.dims)


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph and its subgraphs."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from graphs(attribute.g)


def check_node(proto: onnx.NodeProto, opset: int, name: str) -> None:
    """Raises ConversionError where a node has more inputs or outputs than its op has at all, or attributes that the op doesn't have. (Of
    too few its importer tells.)"""
    schema, wrong = _schema(proto.op_type, "" if proto.domain == "ai.onnx" else proto.domain, opset), ""
    for what, given, most in (("inputs", proto.input, schema.most_inputs), ("outputs", proto.output, schema.most_outputs)):
        if len(given) > most and (count := max((place for place, value in enumerate(given, 1) if value), default=0)) > most:
            wrong = f"{count} {what}, the op has {most}"
    for attribute in proto.attribute if schema.attributes is not None else ():
        if attribute.name not in schema.attributes and not attribute.name.startswith(_UNCHECKED):
            wrong = f"the attribute {attribute.name!r}, which the op doesn't have{_advice(attribute.name, proto, schema.attributes)}"
    if wrong:
        raise ConversionError(f"node {name!r} ({proto.op_type}, opset {opset}) has {wrong}")


class _Schema(NamedTuple):
    """What an op has at most; `attributes` None: any, as of ops that onnx doesn't know."""

    most_inputs: float = math.inf
    most_outputs: float = math.inf
    attributes: frozenset[str] | None = None


@functools.cache
def _schema(op_type: str, domain: str, opset: int) -> _Schema:
    if domain == "com.microsoft":
        return _Schema(attributes=CONTRIB_ATTRIBUTES.get(op_type))
    try:
        schema = onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return _Schema()
    anything = (domain, op_type) == ("", "Constant")  # onnxruntime looks at its first attribute only
    return _Schema(schema.max_input, schema.max_output, None if anything else frozenset(schema.attributes))


def _advice(name: str, proto: onnx.NodeProto, attributes: frozenset[str]) -> str:
    if near := difflib.get_close_matches(name, attributes, 1):
        return f"; did you mean {near[0]!r}?"
    domain = "" if proto.domain == "ai.onnx" else proto.domain
    history = [s for s in onnx.defs.get_all_schemas_with_history() if (s.domain, s.name) == (domain, proto.op_type)]
    if versions := [schema.since_version for schema in history if name in schema.attributes]:
        return f"; {proto.op_type}-{max(versions)} has it, of another opset"
    return f"; it has {', '.join(map(repr, sorted(attributes))) or 'none'}"


def _check_opsets(opsets: Iterable[onnx.OperatorSetIdProto]) -> None:
    versions: dict[str, int] = {}
    for opset in opsets:
        domain = "" if opset.domain == "ai.onnx" else opset.domain
        if versions.setdefault(domain, opset.version) != opset.version:
            raise ConversionError(
                f"the model is broken: it uses two opsets of the domain {domain or 'ai.onnx'!r}, {versions[domain]} and {opset.version}"
            )


def _check_node(node: onnx.NodeProto) -> None:
    names = [attribute.name for attribute in node.attribute]
    _check_names([node.name, node.domain, node.op_type, *node.input, *node.output, *names])
    where = f"the model is broken: node {node.name!r} ({node.op_type})"
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConversionError(f"{where} has the attribute {twice!r} twice")
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            raise ConversionError(f"{where} takes its attribute {attribute.name!r} from a function, but stands in none")


def _check_unique(what: str, names: Iterable[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise ConversionError(f"the model is broken: it has {count} {what}s of the name {name!r}")


def _check_names(names: Iterable[str]) -> None:
    for name in names:
        if isinstance(name, bytes):  # what protobuf gives for a string that isn't UTF-8
            raise ConversionError(f"the model is broken: the name {name!r} is not UTF-8")


def _check_type(name: str, proto: onnx.TypeProto) -> None:
    while (kind := proto.WhichOneof("value")) in ("sequence_type", "optional_type"):
        proto = getattr(proto, kind).elem_type
    _check_code(name, proto.tensor_type.elem_type)


def _check_code(name: str, code: int) -> None:
    try:
        dtypes.from_code(code)
    except KeyError:
        raise ConversionError(f"the model is broken: the value {name!r} has the unknown element type {code}") from None


def _check_shape(name: str, dims: list[int]) -> None:
    if min(dims, default=0) < 0:
        raise ConversionError(f"the tensor {name!r} is damaged: its shape is {list(dims)}")
