"""Merges nodes that compute the same: equal ops with equal attributes on the same inputs. Constants of equal bytes count as the same."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.passes.base import Pass, is_pure

#: Constants up to this many bytes are compared by content, larger ones by identity.
COMPARED_BYTES = 4096


class CommonSubexpressions(Pass):
    name = "common-subexpressions"

    def run(self, graph: Graph, counts: Counter[str]) -> None:
        seen: dict[Any, Node] = {}
        kept = []
        for node in graph.nodes:
            first = seen.setdefault(_key(node), node)
            if first is node or any(v is not None and graph.is_output(v) for v in node.outputs) or not _covers(first, node):
                kept.append(node)
                continue
            for old, new in zip(node.outputs, first.outputs, strict=False):
                if old is not None:
                    graph.replace_value(old, new)
            node.detach()
            counts[node.op.name] += 1
        graph.nodes = kept


def _covers(first: Node, node: Node) -> bool:
    """Whether `first` makes every output that `node` makes."""
    return all(v is None or (i < len(first.outputs) and first.outputs[i] is not None) for i, v in enumerate(node.outputs))


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
