"""`convert`: an ONNX model becomes an optimized .mnnx file."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mnnx
from mnnx.converter.arguments import as_path, check_apart, check_level, check_source, check_target, is_proto, name_of, require_onnx
from mnnx.converter.dump import PassDump
from mnnx.converter.explain import Explainer
from mnnx.converter.fixed_shapes import FixedShapes
from mnnx.converter.frontends import pytorch
from mnnx.converter.half_weights import check_kind, store_halves
from mnnx.converter.passes import check_names, run_passes
from mnnx.converter.report import ConversionReport, count_ops
from mnnx.converter.rule_check import check_rules
from mnnx.converter.writer import lower
from mnnx.errors import ConversionError
from mnnx.schema.collector import no_collections
from mnnx.schema.model import Dim, Model, Range
from mnnx.schema.writer import write_model

if TYPE_CHECKING:
    import onnx
    import torch


def convert(
    source: str | os.PathLike | onnx.ModelProto | torch.nn.Module | torch.export.ExportedProgram,
    target: str | os.PathLike,
    *,
    example_inputs: Any = None,
    dynamic_shapes: Any = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    level: int = 2,
    weights: str = "float32",
    input_shapes: Mapping[str, Sequence[Dim | Range]] | None = None,
    dims: Mapping[str, int | Range] | None = None,
    disable_passes: Iterable[str] = (),
    dump_passes: str | os.PathLike | None = None,
    explain: str | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> ConversionReport:
    """Converts an ONNX model (a path or a ModelProto) or a PyTorch module and writes it to `target`, whole or not at all.

    A module is exported by PyTorch's own ONNX exporter, in evaluation mode. example_inputs is what its `forward` is called with: a tensor,
    a tuple of what it takes by position, or a dict of what it takes by name. dynamic_shapes says which dims stay open, as it does for
    torch.export.export; all others are fixed at the example's. input_names, output_names: other names than the module's, in order.

    level: 0 keeps every op, 1 removes what has no effect and folds constants, 2 also fuses ops, 3 also rewrites that change rounding
    a little. weights: what large float32 weights are stored as, float32, float16 or bfloat16; all is computed in float32 all the same,
    and what 16 bits can't express stays as it is. input_shapes: input name → its shape, and dims: the name of a dim → its size, fix what
    the model leaves open; None, -1 or "?" leave a dim as it is, and what isn't given keeps its name. (1, 8) in the place of a size leaves
    it open, too, but sessions then take no other than 1 to 8; (1, None) has no upper limit. progress(stage, fraction) is called
    as the conversion goes on.

    For finding faults: disable_passes: names of passes that don't run. dump_passes: a folder, made where there is none, for the graph as
    text as it is imported and after each pass. explain: the name of a node or of its result, or an op type; the report's `explanations`
    then say for each pass what it did there, or why nothing.

    Raises UnsupportedOperator listing all ops that mnnx doesn't know, ConversionError for a broken model, shapes that don't fit it, an
    unknown pass, a file of another format, a target that can't be written or is the source, or where memory or the package onnx is missing;
    and with what PyTorch says where it can't export a module.
    """
    options = _Options.of(level, weights, input_shapes, dims, disable_passes, dump_passes, explain, progress)
    check_target(as_path(target, "target"))
    export = pytorch.ExportOptions(example_inputs, dynamic_shapes, input_names, output_names)
    is_module = pytorch.is_module(source, export)
    if not is_module and not is_proto(source):
        check_source(as_path(source, "source"), Path(target))
    require_onnx()
    try:
        if not is_module:
            return _convert(source, target, options)
        start = time.perf_counter()
        options.say("export", 0.0)
        with pytorch.exported(source, export) as path:
            report = _convert(path, target, options)
        return replace(report, source=name_of(source), seconds=time.perf_counter() - start)
    except MemoryError as error:
        detail = f": {error}" if str(error) else ""
        raise ConversionError(f"there is not enough memory to convert {name_of(source)}{detail}") from error


@dataclass(frozen=True)
class _Options:
    """How to convert, checked."""

    level: int
    weights: str
    fixed: FixedShapes
    disabled: frozenset[str]
    dump_passes: str | os.PathLike | None
    explain: str | None
    say: Callable[[str, float], None]

    @classmethod
    def of(
        cls, level: Any, weights: Any, input_shapes: Any, dims: Any, disable_passes: Any, dump_passes: Any, explain: Any, progress: Any
    ) -> _Options:
        """Of what a caller gives to `convert`. Raises ConversionError for what is none of its options."""
        check_level(level)
        check_kind(weights)
        if explain is not None and not isinstance(explain, str):
            raise ConversionError(f"explain must be the name of a node, a result or an op type (a str), not {type(explain).__name__}")
        if dump_passes is not None and not isinstance(dump_passes, str | os.PathLike):
            raise ConversionError(f"dump_passes must be the path of a folder (a str or os.PathLike), not {type(dump_passes).__name__}")
        if progress is not None and not callable(progress):
            raise ConversionError(f"progress must be a function (stage, fraction), not {type(progress).__name__}")
        say = progress or (lambda stage, fraction: None)
        return cls(level, weights, FixedShapes(input_shapes, dims), check_names(disable_passes), dump_passes, explain, say)


@no_collections()
def _convert(source: str | os.PathLike | onnx.ModelProto, target: str | os.PathLike, options: _Options) -> ConversionReport:
    from mnnx.converter.frontends.onnx.importer import import_model

    start = time.perf_counter()
    options.say("import", 0.0)
    imported = import_model(source, options.fixed)
    check_apart(Path(target), imported.external_files)
    graph = imported.graph
    check_rules(graph)
    before = count_ops(graph)
    options.say("optimize", 0.4)
    explainer = None if options.explain is None else Explainer(options.explain, graph)
    dump = None if options.dump_passes is None else PassDump(options.dump_passes, graph)
    watchers = [watcher for watcher in (explainer, dump) if watcher is not None]
    passes, removed = run_passes(graph, options.level, options.disabled, watchers)
    if halves := store_halves(graph, options.weights):
        passes.append(halves)
    options.say("write", 0.8)
    graphs = lower(graph)
    model = Model(graphs, f"mnnx {mnnx.__version__}", imported.opset, imported.metadata, removed, ranges=imported.ranges)
    target_bytes = write_model(model, target)
    options.say("done", 1.0)
    main = graphs[0]
    inputs = {main.values[i].name: main.values[i].shape for i in main.inputs}
    return ConversionReport(
        source=name_of(source),
        target=os.fspath(target),
        level=options.level,
        ops_before=before,
        ops_after=count_ops(graph),
        passes=passes,
        dynamic_dims={name: dims for name, dims in inputs.items() if dims and not all(isinstance(d, int) for d in dims)},
        source_bytes=_size(source) + imported.external_bytes,
        target_bytes=target_bytes,
        seconds=time.perf_counter() - start,
        ranges=imported.ranges,
        explanations=[] if explainer is None else explainer.explanations,
    )


def _size(source: Any) -> int:
    return os.path.getsize(source) if isinstance(source, (str, os.PathLike)) else source.ByteSize()
