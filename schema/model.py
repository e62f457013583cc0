"""A model as it is in memory at run time: what the reader returns, the writer takes and the interpreter runs.

Control flow is closed: a subgraph sees nothing but its own inputs. Whatever the ONNX subgraph captured from outside is passed in as
further inputs of the If, Loop or Scan op, after its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mnnx.schema.ops.base import Op
from mnnx.schema.records import Record

#: What a dim can be: its size, the name of a symbolic size, or None where nothing is known of it.
Dim = int | str | None

#: The smallest and the largest size of a dim; None: there is no limit.
Range = tuple[int, int | None]


def dims_text(dims: Sequence[Dim] | None) -> str:
    """A shape for people: `?` for a dim of which nothing is known."""
    return "any rank" if dims is None else "[" + ", ".join("?" if d is None else str(d) for d in dims) + "]"


def range_text(smallest: int, largest: int | None) -> str:
    """A range of sizes for people, as the command line takes it; `largest` None: there is no limit."""
    return f"{smallest}.." if largest is None else f"{smallest}..{largest}"


class Value(Record):
    """A named tensor (or, by `kind`, a sequence, optional or map) of a graph."""

    name: str
    dtype: np.dtype | None = None
    shape: tuple[Dim, ...] | None = None  # None: not even the rank is known
    kind: str = "tensor"  # tensor | sequence | optional | map
    constant: np.ndarray | None = None  # read-only; numeric ones are views of the mapped file


class Node(Record):
    """One op of a graph; inputs and outputs are indices of its graph's values, -1 where one is left out."""

    name: str
    op: Op
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Graph(Record):
    """Nodes in an order in which every value is made before it is used."""

    name: str
    values: list[Value]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    nodes: list[Node]


class RemovedValue(Record):
    """A tensor of the source model that no longer exists: which pass took it away, and the highest level that keeps it."""

    name: str
    by_pass: str
    keep_level: int


class Model(Record):
    """graphs[0] is the main graph; the others are bodies of its control-flow ops (and of theirs)."""

    graphs: list[Graph]
    producer: str = ""
    opset: int = 0
    metadata: dict[str, str] = dict
    removed: list[RemovedValue] = list
    buffer: Sequence[memoryview] = ()  # the mapped weights: those of the file, those of its sidecar
    ranges: dict[str, Range] = dict  # by the name of a dim; others may have any size
    fingerprint: str = ""  # tells this file from all others, their weights included; empty where it holds no checksum of its weights
