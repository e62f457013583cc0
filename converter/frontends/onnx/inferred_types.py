"""Types and shapes of a model's values, as onnx infers them; they are hints to importers and passes.

onnx's inference is C++ that can end or block its process on models with illegal shapes, so it runs in one of its own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator

import onnx
from google.protobuf.message import DecodeError, EncodeError

from mnnx.converter.frontends.onnx.soundness import graphs
from mnnx.converter.isolation import Lost, run_apart
from mnnx.schema.log import log

#: What inference may take; it is a matter of milliseconds for sound models of common size.
SECONDS = 20
MEMORY_BYTES = 2 << 30

#: What exporters call dims of which nothing is known.
_NO_NAMES = ("?", "*", "-1", "none", "unk", "unknown", "undefined", "dynamic")

#: A tensor of more elements is no shape that inference would look at.
MAX_SHAPE_VALUES = 1 << 10

#: Ops whose attributes hold weights.
_HOLDERS = ("Constant", "If", "Loop", "Scan")


def with_inferred_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, to which all that onnx can infer of it is added. Without hints where inference fails."""
    declared = {o.domain for o in model.opset_import}
    missing = {node.domain for node in model.graph.node} - declared - {"", "ai.onnx"}
    model.opset_import.extend(onnx.helper.make_opsetid(domain, 1) for domain in sorted(missing))
    parts = list(graphs(model.graph))
    for dim in [*_nameless_dims(parts), *_unproved_dims(model.graph)]:
        dim.Clear()
    try:
        bare = _without_weights(model).SerializeToString()  # not in the child, which copies every page of memory that it touches
        inferred = onnx.ModelProto.FromString(run_apart(lambda: _infer(bare), SECONDS, MEMORY_BYTES))
    except (Lost, DecodeError, EncodeError) as lost:  # odd but runnable models, models over 2 GiB, and broken ones: the import will tell
        say = log().info if isinstance(lost, Lost) and not lost.died else log().warning
        say("onnx can't infer the shapes of this model: %s", lost)
        return model
    _take_types(parts, inferred.graph)
    return model


def _infer(model: bytes) -> bytes:
    """The types that onnx infers of a model, as one of which nothing else is left but the nodes that have subgraphs."""
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    _keep_types(inferred.graph)
    return inferred.SerializeToString()


def _without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy whose large tensors have types only, for inference would copy them twice more."""
    return onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, graph=_small_graph(model.graph))


def _small_graph(graph: onnx.GraphProto) -> onnx.GraphProto:
    copy = onnx.GraphProto(name=graph.name)
    for field in ("input", "output", "value_info", "sparse_initializer"):
        getattr(copy, field).extend(getattr(graph, field))
    copy.initializer.extend(_small(tensor) for tensor in graph.initializer)
    copy.node.extend(_small_node(node) if node.op_type in _HOLDERS else node for node in graph.node)
    return copy


def _small_node(node: onnx.NodeProto) -> onnx.NodeProto:
    """The node itself, or one with small attributes."""
    if not any(a.HasField("g") or (a.HasField("t") and _is_large(a.t)) for a in node.attribute):
        return node
    copy = onnx.NodeProto(op_type=node.op_type, domain=node.domain, name=node.name, input=node.input, output=node.output)
    for attribute in node.attribute:
        if attribute.HasField("g"):
            copy.attribute.add(name=attribute.name, type=attribute.type, g=_small_graph(attribute.g))
        elif attribute.HasField("t"):
            copy.attribute.add(name=attribute.name, type=attribute.type, t=_small(attribute.t))
        else:
            copy.attribute.append(attribute)
    return copy


def _small(tensor: onnx.TensorProto) -> onnx.TensorProto:
    """The tensor itself, or one that has its type alone where that is large."""
    if not _is_large(tensor):
        return tensor
    return onnx.TensorProto(name=tensor.name, dims=tensor.dims, data_type=tensor.data_type)


def _is_large(tensor: onnx.TensorProto) -> bool:
    return math.prod(tensor.dims) > MAX_SHAPE_VALUES


def _keep_types(graph: onnx.GraphProto) -> None:
    del graph.initializer[:], graph.sparse_initializer[:], graph.input[:]
    parents = [node for node in graph.node if any(attribute.HasField("g") for attribute in node.attribute)]
    for node in parents:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _keep_types(attribute.g)
    kept = [onnx.NodeProto(attribute=[a for a in node.attribute if a.HasField("g")]) for node in parents]
    del graph.node[:]
    graph.node.extend(kept)


def _take_types(model: Iterable[onnx.GraphProto], inferred: onnx.GraphProto) -> None:
    """Copies the types of values and outputs into the graphs of a model, the main one first, from one of the same nodes."""
    for mine, its in zip(model, graphs(inferred), strict=True):
        del mine.value_info[:]
        mine.value_info.extend(its.value_info)
        for output, other in zip(mine.output, its.output, strict=True):
            output.CopyFrom(other)


def _nameless_dims(parts: Iterable[onnx.GraphProto]) -> Iterator[onnx.TensorShapeProto.Dimension]:
    """Declared dims that are open without a name, though some exporters write them as -1, at which onnx's inference stops, or "?", which
    would make them equal."""
    for graph in parts:
        for info in [*graph.input, *graph.output, *graph.value_info]:
            yield from (d for d in info.type.tensor_type.shape.dim if d.dim_value < 0 or d.dim_param.casefold() in _NO_NAMES)


def _unproved_dims(main: onnx.GraphProto) -> Iterator[onnx.TensorShapeProto.Dimension]:
    """Dims of a model's outputs that are declared to be equal to others. Exporters take names from their callers, who may give one to sizes
    that differ, and nothing checks those of outputs; what is true of them is inferred."""
    given, made = ([dim for info in infos for dim in info.type.tensor_type.shape.dim] for infos in (main.input, main.output))
    places = Counter(dim.dim_param for dim in (*given, *made))
    yield from (dim for dim in made if dim.dim_param and places[dim.dim_param] > 1)
