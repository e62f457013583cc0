"""A model as text: one line for each node, the same for the same graph, so that two of them can be compared line by line.

graph main
dim     N: 1..8
input   x: float32[N, 3, 8, 8]
constant w: float32[4, 3, 3, 3] #5f2c1a90
constant three: float32[] = 3.0
c: float32[N, 4, 8, 8] = Conv(x, w) {pads=(1, 1, 1, 1)}  # node conv_1
output  c
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from mnnx.schema import dtypes
from mnnx.schema.hashing import blake2b
from mnnx.schema.model import Graph, Node, Range, Value, dims_text, range_text
from mnnx.schema.text import shown

#: Constants of up to so many elements are written out.
WRITTEN_OUT = 8


class GraphText:
    """Writes graphs as text. One writer for several states of a graph computes the hash of a constant once."""

    def __init__(self) -> None:
        self._hashes: dict[tuple, tuple[np.ndarray, str]] = {}  # by where the array lies, which is kept so that it stays there

    def of(self, graph: Graph, ranges: Mapping[str, Range] | None = None) -> str:
        """The text of a graph and its subgraphs, which stand indented behind their node. ranges: of names of dims."""
        return "\n".join(self._lines(graph, ranges or {})) + "\n"

    def _lines(self, graph: Graph, ranges: Mapping[str, Range]) -> Iterator[str]:
        values = graph.values
        yield f"graph {shown(graph.name)}"
        for name, limits in ranges.items():
            yield f"dim     {shown(name)}: {range_text(*limits)}"
        for index in graph.inputs:
            yield f"input   {shown(values[index].name)}: {type_text(values[index])}"
        for value in values:
            if value.constant is not None:
                yield f"constant {shown(value.name)}: {type_text(value)} {self._content(value.constant)}"
        for node in graph.nodes:
            yield self._line(node, values)
            for key in node.op.fields:
                if isinstance(inner := getattr(node.op, key), Graph):
                    yield f"    {key}:"
                    yield from (f"    {line}" for line in self._lines(inner, {}))
        for index in graph.outputs:
            yield f"output  {shown(values[index].name)}"

    def _line(self, node: Node, values: list[Value]) -> str:
        results = ", ".join("_" if i < 0 else f"{shown(values[i].name)}: {type_text(values[i])}" for i in node.outputs)
        operands = ", ".join("_" if i < 0 else shown(values[i].name) for i in node.inputs)
        attributes = ", ".join(f"{key}={self._attribute(value)}" for key, value in node.op.attributes().items())
        return f"{results} = {node.op.name}({operands}){f' {{{attributes}}}' if attributes else ''}  # node {shown(node.name)}"

    def _attribute(self, value: Any) -> str:
        if isinstance(value, Graph):
            return f"graph {shown(value.name)}"
        if isinstance(value, np.ndarray):
            return f"{dtypes.name(value.dtype)}{list(value.shape)} {self._content(value)}"
        return dtypes.name(value) if isinstance(value, np.dtype) else repr(value)

    def _content(self, array: np.ndarray) -> str:
        if array.size <= WRITTEN_OUT:
            return f"= {array.tolist()!r}"
        where = (array.__array_interface__["data"][0], array.shape, array.strides, array.dtype)
        if where not in self._hashes:
            text = array.dtype == dtypes.STRING
            content = repr(array.tolist()).encode() if text else np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            self._hashes[where] = array, blake2b(content, digest_size=4).hexdigest()
        return f"#{self._hashes[where][1]}"


def type_text(value: Value) -> str:
    """What is known of a value's type, as `float32[N, 3]`; `?` for what isn't."""
    dtype = "?" if value.dtype is None else dtypes.name(value.dtype)
    if value.kind != "tensor":
        return f"{value.kind}({dtype})"
    return f"{dtype}[…]" if value.shape is None else f"{dtype}{shown(dims_text(value.shape))}"
