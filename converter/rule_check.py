"""Finds what can't run, whatever is fed: a node whose inputs break a rule of its op.

Only shapes that hold at every run are looked at: what follows from constants, and from inputs of which every dim is fixed, which a session
insists on. Hints of the shapes in between may be wrong, and an open dim may become anything, so that the rest is left to the run.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mnnx.backends import host
from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.inference import spec_of
from mnnx.converter.passes.base import is_pure
from mnnx.errors import ConversionError
from mnnx.schema import dtypes
from mnnx.schema.ops.base import DataDependent, RuleError, Spec

#: What is computed in advance, as planning does it too: shape arithmetic.
MOST_ELEMENTS = 1 << 12


def check_rules(graph: Graph) -> None:
    """Raises ConversionError naming the first node that can't run, of those that outputs of the graph depend on."""
    known: dict[Value, Spec] = {}
    for value in graph.inputs:
        if (spec := spec_of(value)) is not None:
            known[value] = spec
    for node in _needed(graph):
        inputs = [None if v is None else Spec.of(v.constant) if v.constant is not None else known.get(v) for v in node.inputs]
        if any(spec is None and value is not None for spec, value in zip(inputs, node.inputs, strict=True)) or not is_pure(node.op):
            continue
        try:
            results = _results(node, inputs)
        except DataDependent:
            continue
        except RuleError as error:
            given = ", ".join("none" if spec is None else str(spec) for spec in inputs)
            raise ConversionError(f"node {node.name!r} ({node.op.name}) can't run on its inputs {given}: {error}") from error
        except Exception as error:  # more or fewer inputs than the op has, values that fit no input
            raise ConversionError(f"node {node.name!r} ({node.op.name}) is broken: {error or type(error).__name__}") from error
        if (missing := len(node.outputs) - len(results)) > 0 and any(v is not None for v in node.outputs[-missing:]):
            raise ConversionError(f"node {node.name!r} ({node.op.name}) has {len(node.outputs)} outputs, the op has {len(results)}")
        known.update((v, spec) for v, spec in zip(node.outputs, results, strict=False) if v is not None and spec is not None)


def _results(node: Node, inputs: Sequence[Spec | None]) -> Sequence[Spec | None]:
    """The Specs of a node's outputs, with their values where those are known and small."""
    results = node.op.infer_all(*inputs)
    unknown = any(spec is None or spec.value is None for spec in results)
    small = sum(spec.size for spec in results if spec is not None) <= MOST_ELEMENTS
    computable = all(spec is None or (spec.value is not None and spec.dtype != dtypes.STRING) for spec in inputs)  # text may grow
    if not unknown or not small or not computable or not host.supports(node.op):
        return results
    with np.errstate(all="ignore"):
        values = host.run(node.op, [None if spec is None else spec.value for spec in inputs])
    return [Spec.of(value) if isinstance(value, np.ndarray) else None for value in values]


def _needed(graph: Graph) -> list[Node]:
    """The nodes that outputs depend on, in order."""
    wanted = set(graph.outputs)
    nodes = []
    for node in reversed(graph.nodes):
        if not wanted.isdisjoint(node.outputs):
            nodes.append(node)
            wanted.update(v for v in node.inputs if v is not None)
    return nodes[::-1]
