"""Merges nodes that compute the same: equal ops with equal attributes on the same inputs. Constants of equal bytes count as the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.passes.base import Pass, is_pure

#: Constants up to this many bytes are compared by content, larger ones by identity.
COMPARED_BYTES = 4096


class CommonSubexpressions(Pass):
    """Merges nodes that compute the same."""

    name = "common-subexpressions"

    def run(self, graph: Graph, counts: Counter[str]) -> None:
        seen: dict[Any, Node] = {}
        kept = []
        for node in graph.nodes:
            first = seen.setdefault(_key(node), node)
            if _obstacle(first, node, graph):
                kept.append(node)
                continue
            for old, new in zip(node.outputs, first.outputs, strict=False):
                if old is not None:
                    graph.replace_value(old, new)
            node.detach()
            counts[node.op.name] += 1
        graph.nodes = kept

    def reasons(self, node: Node, graph: Graph) -> Iterator[tuple[str, str]]:
        key = _key(node)
        yield "merge", _obstacle(next(other for other in graph.nodes if _key(other) == key), node, graph)


def _obstacle(first: Node, node: Node, graph: Graph) -> str:
    """Why the results of `first`, the earliest node that computes the same as `node`, can't stand for those of `node`."""
    if first is node:
        return "no node before it computes the same" if is_pure(node.op) else "it is random, or control flow"
    if any(v is not None and graph.is_output(v) for v in node.outputs):
        return "its result is an output of the graph"
    covers = all(v is None or (i < len(first.outputs) and first.outputs[i] is not None) for i, v in enumerate(node.outputs))
    return "" if covers else f"the node {first.name!r}, which computes the same, has fewer results"


def _key(node: Node) -> Any:
    op = node.op
    if not is_pure(op):
        return id(node)
    attributes = tuple((k, _content(v) if isinstance(v, np.ndarray) else v) for k, v in op.attributes().items())
    return op.name, attributes, tuple(_identity(v) for v in node.inputs)


def _identity(value: Value | None) -> Any:
    if value is not None and value.constant is not None and value.constant.dtype != object and value.constant.nbytes <= COMPARED_BYTES:
        return _content(value.constant)
    return id(value)


def _content(array: np.ndarray) -> Any:
    return array.dtype.str, array.shape, array.tobytes() if array.dtype != object else tuple(array.reshape(-1))
