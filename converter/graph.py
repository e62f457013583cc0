"""The graph that importers build and passes rewrite: values know their producer and their users."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from mnnx.schema.model import Dim
from mnnx.schema.ops.base import Op


class Value:
    """A tensor (or sequence, optional, map) of a graph: an input, a constant, or an output of its `producer`."""

    __slots__ = ("constant", "dtype", "kind", "name", "producer", "shape", "users")

    def __init__(
        self,
        name: str,
        dtype: np.dtype | None = None,
        shape: tuple[Dim, ...] | None = None,
        constant: np.ndarray | None = None,
        kind: str = "tensor",
    ):
        self.name = name
        self.dtype = dtype if constant is None else constant.dtype
        self.shape = shape if constant is None else constant.shape
        self.constant = constant
        self.kind = kind
        self.producer: Node | None = None
        self.users: list[Node] = []  # a node stands here once per use

    @property
    def rank(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    def __repr__(self) -> str:
        dtype = None if self.dtype is None else self.dtype.name
        return f"Value({self.name!r}, {dtype}, {self.shape}{', constant' if self.constant is not None else ''})"


class Node:
    """An op with its inputs and outputs (None: left out). Change its inputs through `set_input`, so that users stay right."""

    __slots__ = ("inferred", "inputs", "name", "op", "outputs")

    def __init__(self, op: Op, inputs: Iterable[Value | None], outputs: Iterable[Value | None], name: str = ""):
        self.op = op
        self.name = name
        self.inputs = tuple(inputs)
        self.outputs = list(outputs)
        self.inferred: Any = None  # what inference was last asked, and its answer
        for value in self.inputs:
            if value is not None:
                value.users.append(self)
        for value in self.outputs:
            if value is not None:
                value.producer = self

    def set_input(self, index: int, value: Value | None) -> None:
        inputs = list(self.inputs)
        if (old := inputs[index]) is not None:
            old.users.remove(self)
        inputs[index] = value
        self.inputs = tuple(inputs)
        if value is not None:
            value.users.append(self)

    def add_input(self, value: Value) -> None:
        """Gives it a further input, after the others."""
        self.inputs = (*self.inputs, value)
        value.users.append(self)

    def drop_input(self, index: int) -> None:
        """Takes an input out; those after it move up."""
        self.set_input(index, None)
        self.inputs = self.inputs[:index] + self.inputs[index + 1 :]

    def detach(self) -> None:
        """Stops using its inputs."""
        for value in self.inputs:
            if value is not None:
                value.users.remove(self)
        self.inputs = ()
        self.inferred = None  # nor does it keep their constants alive

    def __repr__(self) -> str:
        return f"Node({self.name!r}, {self.op!r})"


class Graph:
    """Nodes in topological order. Subgraphs hang on control-flow ops as attributes and see nothing but their own inputs."""

    def __init__(self, name: str = "main"):
        self.name = name
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.nodes: list[Node] = []

    def is_output(self, value: Value) -> bool:
        return value in self.outputs

    def replace_value(self, old: Value, new: Value) -> None:
        """Makes all users of `old`, graph outputs included, use `new`."""
        for node in list(old.users):
            for index, value in enumerate(node.inputs):
                if value is old:
                    node.set_input(index, new)
        self.outputs = [new if value is old else value for value in self.outputs]

    def remove(self, node: Node) -> None:
        """Takes a node out; its outputs must have no users left."""
        node.detach()
        self.nodes.remove(node)

    def values(self) -> Iterator[Value]:
        """Every value once: inputs, then constants and results in order of first use."""
        seen: set[int] = set()
        groups = [self.inputs, *([*node.inputs, *node.outputs] for node in self.nodes), self.outputs]
        for value in (v for group in groups for v in group):
            if value is not None and id(value) not in seen:
                seen.add(id(value))
                yield value

    def subgraphs(self) -> Iterator[Graph]:
        """The graphs that are attributes of this graph's nodes, theirs included."""
        for node in self.nodes:
            for key in node.op.subgraphs:
                graph = getattr(node.op, key)
                yield graph
                yield from graph.subgraphs()


def unique_names(graph: Graph) -> dict[int, str]:
    """A name for each value of a graph, by its id: its own, with a number behind it where another value has that."""
    names: dict[int, str] = {}
    taken: set[str] = set()
    uses: dict[str, int] = {}
    for value in [*graph.inputs, *graph.outputs, *graph.values()]:  # a caller's names come first
        if id(value) in names:
            continue
        name = value.name
        while name in taken:
            uses[value.name] = uses.get(value.name, 1) + 1
            name = f"{value.name}_{uses[value.name]}"
        taken.add(name)
        names[id(value)] = name
    return names
