"""The values of a graph as the planner knows them: their Specs, what is known or constant, and what lies in whose memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mnnx.backends.backend import Backend
from mnnx.backends.blocked import tensor_bytes
from mnnx.backends.expansion import ExpandedSpec, find
from mnnx.backends.tensor import DeviceTensor
from mnnx.interpreter.runtime import Runtime
from mnnx.schema.model import Graph
from mnnx.schema.ops.base import Spec

if TYPE_CHECKING:
    from mnnx.interpreter.plan import Plan


class Values:
    """Values are the graph's, by index; `add_copy` gives further indices, for what lies in another layout beside the original.

    specs: of what is at hand; None for a value without one (a sequence, text, …).  fed: what comes from the host.
    known: arrays computed while planning.  constants: the graph's, and those computed from them.
    tensors: where values lie, the rest of them once memory is planned.  layouts: of the values that aren't plain.
    views: a view → the value in whose memory it lies, and its first byte there.
    """

    def __init__(self, graph: Graph, runtime: Runtime, live: dict[int, Spec | None], previous: Plan | None):
        self.graph = graph
        self.runtime = runtime
        self.fed = set(live)
        self.specs: dict[int, Spec | None] = dict(live)
        self.known: dict[int, np.ndarray] = dict(previous.known) if previous else {}
        self.constants: set[int] = set()
        self.tensors: dict[int, DeviceTensor] = dict(previous.tensors) if previous else {}
        self.layouts: dict[int, int] = {}
        self.views: dict[int, tuple[int, int]] = {}
        self._originals: list[int] = []  # of copies
        self._held: list[np.ndarray] = []  # expanded weights stay while a plan is made, so that they are expanded once for it
        self.specs.update((i, tensor.spec) for i, tensor in self.tensors.items())
        self.specs.update((i, Spec.of(array)) for i, array in self.known.items())

    def spec(self, index: int) -> Spec | None:
        """Spec of a value that is at hand, None for -1; raises KeyError for one that isn't."""
        if index < 0:
            return None
        if index not in self.specs:
            constant = self.runtime.constant(self.graph, index)
            if constant is None:
                raise KeyError(index)
            self.constants.add(index)
            expansion = find(constant)
            self._held.append(constant)
            self.specs[index] = Spec.of(constant) if expansion is None else ExpandedSpec(expansion)
        return self.specs[index]

    def add_copy(self, index: int, layout: int) -> int:
        """A further value: this one in another layout."""
        copy = len(self.graph.values) + len(self._originals)
        self._originals.append(index)
        self.specs[copy] = self.specs[index]
        self.layouts[copy] = layout
        return copy

    def name(self, index: int) -> str:
        count = len(self.graph.values)
        return self.graph.values[index].name if index < count else self.name(self._originals[index - count])

    def layout(self, index: int) -> int:
        return self.layouts.get(index, 0)

    def nbytes(self, index: int) -> int:
        """What it takes in its layout."""
        return tensor_bytes(self.specs[index], self.layout(index))

    def stored_bytes(self, index: int, backend: Backend) -> int:
        """What it takes in its layout on a backend."""
        return backend.stored_bytes(self.specs[index], self.layout(index))

    def root(self, index: int) -> int:
        """The value in whose memory it lies, itself where it is no view."""
        while index in self.views:
            index = self.views[index][0]
        return index

    def roots(self, indices: Sequence[int]) -> set[int]:
        """The roots of those that aren't left out."""
        return {self.root(i) for i in indices if i >= 0}

    def is_static(self, index: int) -> bool:
        """Whether it is a constant, or known from planning."""
        return index in self.known or self.root(index) in self.constants

    def on_device(self, index: int) -> bool:
        """Whether a backend computes it, or gets it from the host."""
        return self.specs.get(index) is not None and not self.is_static(index)

    def tensor(self, index: int, backend: Backend) -> DeviceTensor:
        """Where it lies, on its own device; constants on `backend`."""
        if index in self.tensors:
            return self.tensors[index]
        spec = self.specs[index]
        if index in self.views:
            source, offset = self.views[index]
            base = self.tensor(source, backend)
            place = base.offset + base.backend.stored(offset, spec.dtype)
            tensor = DeviceTensor(self.name(index), spec, base.backend, base.memory, place, layout=self.layout(index))
            self.tensors[index] = tensor
            return tensor
        name = f"{self.graph.name}/{self.name(index)}" if index in self.constants else ""
        return backend.constant(name, self.known[index] if index in self.known else self.runtime.constant(self.graph, index))
