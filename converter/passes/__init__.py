"""Graph passes, in the order in which they run. One file per pass; a pass names the lowest level at which it runs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

from mnnx.converter.graph import Graph
from mnnx.converter.passes.base import Pass
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
    from mnnx.converter.passes.dead_code import DeadCode
    from mnnx.converter.passes.epilogue_fusion import EpilogueFusion
    from mnnx.converter.passes.identities import IdentityElimination
    from mnnx.converter.passes.layer_norm_recognition import LayerNormRecognition
    from mnnx.converter.passes.loop_states import LoopStates
    from mnnx.converter.passes.movement import MovementSimplification
    from mnnx.converter.passes.pad_folding import PadFolding
    from mnnx.converter.passes.quantized import QuantizedRecognition
    from mnnx.converter.passes.quantized_epilogue import QuantizedEpilogue
    from mnnx.converter.passes.reciprocals import Reciprocals

    return [
        DeadCode(),
        IdentityElimination(),
        LoopStates(),
        ConstantFolding(),
        CommonSubexpressions(),
        DeadCode(),
        ActivationRecognition(),
        LayerNormRecognition(),
        DeadCode(),
        QuantizedRecognition(),
        QuantizedEpilogue(),
        DeadCode(),
        PadFolding(),
        AffineFolding(),
        MovementSimplification(),
        IdentityElimination(),
        DeadCode(),
        AttentionRecognition(),
        DeadCode(),
        EpilogueFusion(),
        Reciprocals(),
        DeadCode(),
    ]


def run_passes(graph: Graph, level: int) -> tuple[list[PassResult], list[RemovedValue]]:
    """Runs the passes of a level on a graph and its subgraphs; returns what they did and which named values are gone."""
    results: list[PassResult] = []
    removed: dict[str, RemovedValue] = {}
    names = _names(graph)
    for one, result in each_pass(graph, level):
        results.append(result)
        left = _names(graph)
        removed.update({name: RemovedValue(name, one.name, one.level - 1) for name in names - left})
        names = left
    return results, list(removed.values())


def each_pass(graph: Graph, level: int) -> Iterator[tuple[Pass, PassResult]]:
    """Runs the passes of a level one by one; gives each, and what it did, when it has run."""
    for one in all_passes():
        if one.level > level:
            continue
        start = time.perf_counter()
        counts: Counter[str] = Counter()
        for part in [graph, *graph.subgraphs()]:
            try:
                one.run(part, counts)
            except MnnxError:
                raise
            except Exception as error:  # a pass may rely on what holds for every legal graph
                raise ConversionError(f"the graph {part.name!r} is broken: {one.name} fails: {type(error).__name__}: {error}") from error
        yield one, PassResult(one.name, dict(counts), time.perf_counter() - start)


def _names(graph: Graph) -> set[str]:
    return {value.name for value in graph.values() if value.constant is None}
