"""`extract`: the part of a model between named tensors, as a model of its own."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import mnnx
from mnnx.converter.arguments import as_path, check_apart, check_level, check_target, is_proto, name_of, require_onnx
from mnnx.converter.fixed_shapes import FixedShapes
from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.lift import lift
from mnnx.converter.passes import run_passes
from mnnx.converter.report import ExtractionReport, count_ops
from mnnx.converter.rule_check import check_rules
from mnnx.converter.writer import lower
from mnnx.errors import ConversionError, InputError
from mnnx.schema.files import sidecar_name
from mnnx.schema.graph_text import type_text
from mnnx.schema.model import Dim, Model, Range, RemovedValue
from mnnx.schema.ops.shape import Identity
from mnnx.schema.reader import read_model
from mnnx.schema.writer import write_model

if TYPE_CHECKING:
    import onnx


def extract(
    source: str | os.PathLike | onnx.ModelProto,
    target: str | os.PathLike,
    *,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    level: int = 2,
    input_shapes: Mapping[str, Sequence[Dim | Range]] | None = None,
    dims: Mapping[str, int | Range] | None = None,
) -> ExtractionReport:
    """Writes a model to `target` that computes the tensors `outputs` of the model `source` from the tensors `inputs`.

    source: an .mnnx file, whose part is taken as it is, or an .onnx file or ModelProto, whose part is optimized at `level`. inputs,
    outputs: names of tensors of the main graph; left out: those of the model, as far as they are needed. Constants come along.
    input_shapes, dims: what to fix of the whole ONNX model's own inputs first, as in `convert`.

    Raises ConversionError for an unknown tensor (with the pass that took it away, or the subgraph that it is in), for inputs without which
    the outputs can't be computed, for inputs that no output depends on, for shapes that don't fit the model, and for a target that can't be
    written; ModelFormatError for a damaged file.
    """
    check_level(level)
    fixed = FixedShapes(input_shapes, dims)
    check_target(as_path(target, "target"))
    path = None if is_proto(source) else as_path(source, "source")
    if path is not None and Path(target).exists() and path.exists() and path.samefile(target):
        raise ConversionError(f"{target} is the source itself, which the result would overwrite; give the target another name")
    if path is None or path.suffix.lower() == ".onnx":
        require_onnx()
        from mnnx.converter.frontends.onnx.importer import import_model

        imported = import_model(source, fixed)
        check_apart(Path(target), imported.external_files)
        graph, opset, metadata, removed, ranges = imported.graph, imported.opset, imported.metadata, [], imported.ranges
        check_rules(graph)
    else:
        if fixed:
            raise ConversionError(f"the shapes of {path} were settled when it was converted; give the .onnx model to fix others")
        try:
            model = read_model(path)
        except OSError as error:
            raise InputError(f"the model file {os.fspath(path)!r} can't be opened: {error.strerror or error}") from error
        check_apart(Path(target), [sidecar_name(path)])
        graph, opset, metadata, removed, ranges = lift(model.graphs[0]), model.opset, model.metadata, model.removed, model.ranges
        level = 0
    cut(graph, inputs, outputs, removed)
    removed = [*removed, *run_passes(graph, level)[1]]
    graphs = lower(graph)
    main = graphs[0]
    names = {dim for i in main.inputs for dim in main.values[i].shape or ()}
    ranges = {name: limits for name, limits in ranges.items() if name in names}
    write_model(Model(graphs, f"mnnx {mnnx.__version__}", opset, metadata, removed, ranges=ranges), target)
    return ExtractionReport(
        source=name_of(source),
        target=os.fspath(target),
        ops=count_ops(graph),
        inputs={main.values[i].name: type_text(main.values[i]) for i in main.inputs},
        outputs={main.values[i].name: type_text(main.values[i]) for i in main.outputs},
        target_bytes=os.path.getsize(target),
    )


def cut(graph: Graph, inputs: Sequence[str] | None, outputs: Sequence[str] | None, removed: Iterable[RemovedValue] = ()) -> None:
    """Leaves of a graph what computes `outputs` from `inputs`; None: its own. Raises ConversionError: see `extract`."""
    values = {value.name: value for value in graph.values()}
    results = graph.outputs if outputs is None else [_find(name, graph, values, removed) for name in _names(outputs, "outputs")]
    given = None if inputs is None else [_find(name, graph, values, removed) for name in _names(inputs, "inputs")]
    if given is not None and (both := set(given).intersection(results)):
        raise ConversionError(f"the tensor {next(iter(both)).name!r} can't be an input and an output of the same model")
    needed, reached = _behind(graph, results, set(given or ()))
    sources = [value for value in graph.inputs if value in reached]
    if given is None:
        given = sources
    elif missing := [value.name for value in sources if value not in given]:
        names = ", ".join(repr(value.name) for value in results)
        more = ", ".join(map(repr, missing))
        raise ConversionError(
            f"the outputs {names} also depend on the model's inputs {more}; add them, or tensors behind them, to the inputs"
        )
    if unused := [value.name for value in given if value not in reached]:
        raise ConversionError(f"no output depends on the inputs {', '.join(map(repr, unused))}; leave them out")
    for node in [node for node in graph.nodes if node not in needed]:
        node.detach()
    graph.nodes = [node for node in graph.nodes if node in needed]
    graph.inputs = [_as_input(graph, value) for value in given]
    graph.outputs = [value if value.producer in needed else _copied(graph, value) for value in results]


def _names(names: Sequence[str], what: str) -> list[str]:
    if isinstance(names, str):
        return [names]
    if not isinstance(names, Iterable):
        raise ConversionError(f"the {what} must be a list of names of tensors, not {names!r}")
    found = list(names)
    twice = [name for name in found if found.count(name) > 1]
    if not found or twice or not all(isinstance(name, str) for name in found):
        raise ConversionError(f"the {what} must be names of tensors, at least one, each once; they are {found!r}")
    return found


def _find(name: str, graph: Graph, values: dict[str, Value], removed: Iterable[RemovedValue]) -> Value:
    if name in values:
        return values[name]
    for node in graph.nodes:
        for key in node.op.fields:
            inner = getattr(node.op, key)
            if isinstance(inner, Graph) and any(value.name == name for part in [inner, *inner.subgraphs()] for value in part.values()):
                raise ConversionError(
                    f"the tensor {name!r} is inside of {key} of the node {node.name!r} ({node.op.name}); only tensors of the main graph "
                    "can be inputs and outputs of a part, such as the inputs and outputs of that node"
                )
    for gone in removed:
        if gone.name == name:
            advice = f"; convert with level={gone.keep_level} to keep it" if gone.keep_level >= 0 else ""
            raise ConversionError(f"the tensor {name!r} no longer exists: the pass {gone.by_pass} took it away{advice}")
    near = difflib.get_close_matches(name, values, 3)
    hint = f"; there are {', '.join(map(repr, near))}" if near else " (mnnx inspect --text lists all)"
    raise ConversionError(f"the model has no tensor {name!r}{hint}")


def _behind(graph: Graph, results: Iterable[Value], stop: set[Value]) -> tuple[set[Node], set[Value]]:
    """The nodes that `results` depend on as far as the values `stop`, and the values that were reached."""
    nodes: set[Node] = set()
    reached = set(results)
    waiting = list(reached)
    made = {value: node for node in graph.nodes for value in node.outputs if value is not None}
    while waiting:
        value = waiting.pop()
        node = None if value in stop else made.get(value)
        if node is not None and node not in nodes:
            nodes.add(node)
            fresh = {v for v in node.inputs if v is not None} - reached
            reached |= fresh
            waiting += fresh
    return nodes, reached


def _as_input(graph: Graph, value: Value) -> Value:
    """The value that stands for this one as an input: a new one of its name where a node that stays makes it, or it is a constant."""
    if value.producer is None and value.constant is None:
        return value
    new = Value(value.name, value.dtype, value.shape, kind=value.kind)
    graph.replace_value(value, new)
    if value.producer is not None:
        value.name = f"{value.name}/made"
    return new


def _copied(graph: Graph, value: Value) -> Value:
    """A constant or an input as an output: what a node makes of it."""
    copy = Value(value.name, value.dtype, value.shape, kind=value.kind)
    value.name = f"{value.name}/source"
    graph.nodes.append(Node(Identity(), [value], [copy], f"output/{copy.name}"))
    return copy
