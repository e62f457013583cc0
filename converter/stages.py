"""A conversion step by step: the model as it is imported, and after each pass. What `verify` looks through for the pass that went wrong."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from mnnx.converter.fixed_shapes import FixedShapes
from mnnx.converter.frontends.onnx.importer import import_model
from mnnx.converter.half_weights import store_halves
from mnnx.converter.passes import all_passes, each_pass
from mnnx.converter.writer import lower
from mnnx.schema.model import Dim, Graph, Model
from mnnx.schema.records import Row

if TYPE_CHECKING:
    import onnx


class Stage(Row):
    """The model after the pass at `position` among all passes (0: before any), and how often each rewrite of the pass was applied."""

    position: int
    by_pass: str
    counts: Mapping[str, int]
    graphs: list[Graph]

    def model(self) -> Model:
        """The model, to be written to a file."""
        return Model(self.graphs)


def stages(
    source: str | os.PathLike | onnx.ModelProto,
    level: int,
    weights: str = "float32",
    input_shapes: Mapping[str, Sequence[Dim]] | None = None,
    dims: Mapping[str, int] | None = None,
    disable_passes: Iterable[str] = (),
) -> Iterator[Stage]:
    """What a conversion with these options of `convert` goes through: the model before the first pass, and after each that changed
    something."""
    graph = import_model(source, FixedShapes(input_shapes, dims)).graph
    yield Stage(0, "", {}, lower(graph))
    for position, one, result in each_pass(graph, level, frozenset(disable_passes)):
        if result.total:
            yield Stage(position, one.name, result.counts, lower(graph))
    if halves := store_halves(graph, weights):
        yield Stage(len(all_passes()) + 1, halves.name, halves.counts, lower(graph))
