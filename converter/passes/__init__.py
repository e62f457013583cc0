"""Graph passes, in the order in which they run. One file per pass; a pass names the lowest level at which it runs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from mnnx.converter import half_weights
from mnnx.converter.graph import Graph
from mnnx.converter.passes.base import Pass, Watcher
from mnnx.converter.report import PassResult
from mnnx.errors import ConversionError, MnnxError
from mnnx.schema.model import RemovedValue


def all_passes() -> list[Pass]:
    """The passes of all levels, in order."""
    from mnnx.converter.passes.activation_recognition import ActivationRecognition
    from mnnx.converter.passes.affine_folding import AffineFolding
    from mnnx.converter.passes.attention_recognition import AttentionRecognition
    from mnnx.converter.passes.common_subexpressions import CommonSubexpressions
    from mnnx.converter.passes.constant_folding import ConstantFolding
    from mnnx.converter.passes.constant_sharing import ConstantSharing
    from mnnx.converter.passes.dead_code import DeadCode
    from mnnx.converter.passes.dynamic_quantization import DynamicQuantization
    from mnnx.converter.passes.einsum_products import EinsumProducts
    from mnnx.converter.passes.epilogue_fusion import EpilogueFusion
    from mnnx.converter.passes.identities import IdentityElimination
    from mnnx.converter.passes.known_branches import KnownBranches
    from mnnx.converter.passes.layer_norm_recognition import LayerNormRecognition
    from mnnx.converter.passes.loop_states import LoopStates
    from mnnx.converter.passes.loop_unrolling import LoopUnrolling
    from mnnx.converter.passes.movement import MovementSimplification
    from mnnx.converter.passes.neutral_operands import NeutralOperands
    from mnnx.converter.passes.pad_folding import PadFolding
    from mnnx.converter.passes.quantized import QuantizedRecognition
    from mnnx.converter.passes.quantized_epilogue import QuantizedEpilogue
    from mnnx.converter.passes.reciprocals import Reciprocals
    from mnnx.converter.passes.rotary_recognition import RotaryRecognition
    from mnnx.converter.passes.shape_arithmetic import ShapeArithmetic
    from mnnx.converter.passes.skip_norm_fusion import SkipNormFusion

    return [
        DeadCode(),
        IdentityElimination(),
        LoopStates(),
        ShapeArithmetic(),
        ConstantFolding(),
        KnownBranches(),
        LoopUnrolling(),
        ShapeArithmetic(),
        ConstantFolding(),
        KnownBranches(),
        NeutralOperands(),
        IdentityElimination(),
        ConstantSharing(),
        CommonSubexpressions(),
        DeadCode(),
        EinsumProducts(),
        ActivationRecognition(),
        LayerNormRecognition(),
        RotaryRecognition(),
        ConstantSharing(),
        CommonSubexpressions(),
        DeadCode(),
        QuantizedRecognition(),
        QuantizedEpilogue(),
        DynamicQuantization(),
        DeadCode(),
        PadFolding(),
        AffineFolding(),
        MovementSimplification(),
        ConstantFolding(),
        IdentityElimination(),
        DeadCode(),
        AttentionRecognition(),
        DeadCode(),
        EpilogueFusion(),
        SkipNormFusion(),
        Reciprocals(),
        DeadCode(),
    ]


def list_passes() -> list[type[Pass]]:
    """Each pass once, in the order in which they run first."""
    return list(dict.fromkeys(type(one) for one in all_passes()))


def check_names(names: Any) -> frozenset[str]:
    """The names of passes, as a set. Raises ConversionError for what is none, listing all."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ConversionError(f"the passes to disable must be a list of names, not {names!r}")
    given, known = list(names), [one.name for one in list_passes()]
    for name in given:
        if name == half_weights.NAME:
            raise ConversionError(f"{name} runs only where weights are to have 16 bits: leave weights= (--weights, --fp16) out")
        if name not in known:
            raise ConversionError(f"there is no pass {name!r}; the passes are {', '.join(known)}")
    return frozenset(given)


def run_passes(
    graph: Graph, level: int, disabled: Collection[str] = (), watchers: Sequence[Watcher] = ()
) -> tuple[list[PassResult], list[RemovedValue]]:
    """Runs the passes of a level on a graph and its subgraphs, but for the `disabled` ones.

    Returns what they did and which named values are gone.
    """
    results: list[PassResult] = []
    removed: dict[str, RemovedValue] = {}
    names = _names(graph)
    shapes = [value.shape for value in graph.outputs]
    for _, one, result in each_pass(graph, level, disabled, watchers):
        results.append(result)
        if not result.counts:
            continue
        left = _needed_names(graph)
        removed.update({name: RemovedValue(name, one.name, one.level - 1) for name in names if name not in left})
        names = {name: None for name in _names(graph) if name in left}
    for value, shape in zip(graph.outputs, shapes, strict=True):
        if shape is not None and value.shape is not None and len(shape) == value.rank:  # a caller knows dims by the model's names
            pairs = zip(shape, value.shape, strict=True)
            value.shape = tuple(old if isinstance(old, str) and isinstance(new, str) else new for old, new in pairs)
    return results, list(removed.values())


def each_pass(
    graph: Graph, level: int, disabled: Collection[str] = (), watchers: Sequence[Watcher] = ()
) -> Iterator[tuple[int, Pass, PassResult]]:
    """Runs the passes of a level one by one, but for the `disabled` ones; gives each with its number among all passes, and what it did,
    when it has run."""
    for number, one in enumerate(all_passes(), 1):
        if one.level > level or one.name in disabled:
            why = "it is disabled" if one.name in disabled else f"it runs from level {one.level} on"
            for watcher in watchers:
                watcher.skipped(one, why)
            continue
        for watcher in watchers:
            watcher.before(number, one, graph)
        start = time.perf_counter()
        counts: Counter[str] = Counter()
        for part in [graph, *graph.subgraphs()]:
            try:
                one.run(part, counts)
            except MnnxError:
                raise
            except Exception as error:  # a pass may rely on what holds for every legal graph
                raise ConversionError(f"the graph {part.name!r} is broken: {one.name} fails: {type(error).__name__}: {error}") from error
        result = PassResult(one.name, dict(counts), time.perf_counter() - start)
        for watcher in watchers:
            watcher.after(number, one, graph)
        yield number, one, result


def _names(graph: Graph) -> dict[str, None]:
    """The names of a graph's results, in order: conversions of one model write equal files."""
    return {value.name: None for value in graph.values() if value.constant is None}


def _needed_names(graph: Graph) -> set[str]:
    """The names of the results that its outputs need, and of its inputs. What a pass leaves without users is gone, though dead-code
    sweeps it."""
    needed = {*graph.inputs, *graph.outputs}
    for node in reversed(graph.nodes):
        if not needed.isdisjoint(node.outputs):
            needed.update(node.inputs)
    return {value.name for value in needed if value is not None}
