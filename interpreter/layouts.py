"""Chooses the layout of every tensor, so that neighbours that like blocks pass them on, and repacks where they meet others.

One walk over the steps in order: each runs in the way (`Execution.layouts`) that costs least, counted in bytes of memory traffic: what it
reads and writes in these layouts, and the repacking of inputs that aren't at hand so, less what the way saves. A value is repacked at
most once, where it is needed first. What outlives the plan, and what another backend reads, is plain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mnnx.backends.backend import Backend, Layouts
from mnnx.backends.blocked import blocked_bytes, is_piece, same_bytes, tensor_bytes
from mnnx.interpreter.geometry.blocked import rewrite_blocked
from mnnx.interpreter.step import Step
from mnnx.interpreter.values import Values
from mnnx.schema.model import Node
from mnnx.schema.ops.repack import Repack


def assign_layouts(values: Values, steps: Iterable[Step], kept: Iterable[int]) -> tuple[list[Step], dict[int, int]]:
    """The steps with those that repack among them, their executions told their ways; and each kept value → the plain one to keep."""
    assignment = _Assignment(values)
    for step in steps:
        assignment.add(step)
    return assignment.steps, {i: assignment.placed(i, 0, None) for i in kept}


class _Assignment:
    def __init__(self, values: Values):
        self.values = values
        self.steps: list[Step] = []
        self._owners: dict[int, Backend] = {}
        self._copies: dict[tuple[int, int, int], int] = {}  # value, layout, backend

    def add(self, step: Step) -> None:
        plain = Layouts((0,) * len(step.inputs), (0,) * len(step.outputs))
        offers: list[tuple[Layouts, Step]] = [(plain, step), *self._blocked(step)]
        way, step = min(offers, key=lambda offer: self._cost(offer[1], offer[0]))
        step.inputs = [i if i < 0 else self.placed(i, layout, step.backend) for i, layout in zip(step.inputs, way.inputs, strict=True)]
        for index, layout in zip(step.outputs, way.outputs, strict=True):
            if index >= 0:
                self.values.layouts[index] = layout
                self._owners[index] = step.backend
        step.execution.way = None if way == plain else way
        self.steps.append(step)

    def _blocked(self, step: Step) -> Iterator[tuple[Layouts, Step]]:
        """The ways with blocked tensors, each with the step that runs so: this one, or another one in its place."""
        lanes, movement = step.backend.block_width, step.movement
        if not lanes or any(self.values.specs[i].size == 0 for i in (*step.inputs, *step.outputs) if i >= 0):
            return
        if movement is None:
            specs, results = ([self.values.spec(i) for i in indices] for indices in (step.inputs, step.outputs))
            yield from ((way, step) for way in step.execution.layouts(specs, results, lanes))
        elif any(self._layout(i) for i in step.inputs if i >= 0):
            yield from self._blocked_movement(step, lanes)

    def _blocked_movement(self, step: Step, lanes: int) -> Iterator[tuple[Layouts, Step]]:
        """A Raster over blocked memory; or the execution of the op itself, where that has a way with blocks."""
        movement, backend = step.movement, step.backend
        result = movement.outputs[movement.slot]
        raster = rewrite_blocked(movement.op, movement.inputs, movement.outputs, movement.slot, lanes)
        if raster is not None:
            inputs = [i if position in raster.sources else -1 for position, i in enumerate(step.node.inputs)]
            execution = backend.create(raster, movement.inputs, [result])
            way = Layouts(tuple(lanes if i >= 0 else 0 for i in inputs), (lanes,))
            yield way, Step(step.node, raster, inputs, step.outputs, backend, step.reason, execution)
        elif len(movement.outputs) == 1 and backend.supports(movement.op, movement.inputs, movement.outputs) is None:
            execution = backend.create(movement.op, movement.inputs, movement.outputs)
            for way in execution.layouts(movement.inputs, movement.outputs, lanes):
                yield way, Step(step.node, movement.op, step.node.inputs, step.outputs, backend, step.reason, execution)

    # ---- costs
    def _cost(self, step: Step, way: Layouts) -> float:
        values = self.values
        inputs = [(i, layout) for i, layout in zip(step.inputs, way.inputs, strict=True) if i >= 0 and not values.is_static(i)]
        outputs = [(i, layout) for i, layout in zip(step.outputs, way.outputs, strict=True) if i >= 0]
        traffic = sum(tensor_bytes(values.specs[i], layout) for i, layout in [*inputs, *outputs])
        return traffic + sum(self._repacking(i, layout, step.backend) for i, layout in inputs) - way.saves

    def _repacking(self, index: int, layout: int, backend: Backend) -> int:
        """The cost of having a value in a layout."""
        present, spec = self._layout(index), self.values.specs[index]
        if present == layout or (index, layout, id(backend)) in self._copies or same_bytes(spec.shape, present or layout):
            return 0
        return spec.nbytes + blocked_bytes(spec.shape, present or layout)

    # ---- values
    def _layout(self, index: int) -> int:
        """The layout of a value, that of a view being settled when it is asked for first: the same as that of what it is a view of if the
        piece is one there too; else plain, in a plain copy."""
        values = self.values
        if index in values.views and index not in values.layouts:
            source, offset = values.views[index]
            layout = self._layout(source)
            if layout and not is_piece(values.specs[source], values.specs[index], offset, layout):
                values.views[index] = (self.placed(source, 0, None), offset)
                layout = 0
            values.layouts[index] = layout
        return values.layout(index)

    def placed(self, index: int, layout: int, backend: Backend | None) -> int:
        """The value, or a copy of it, in this layout on this backend (None: on its own). A plain one may lie on another backend."""
        values = self.values
        present, owner = self._layout(index), self._owners.get(values.root(index))
        if owner is not None and owner is not backend and present and backend is not None:
            return self.placed(self.placed(index, 0, None), layout, backend)
        if present == layout:
            return index
        where = owner if backend is None else backend
        key = (index, layout, id(where))
        if key not in self._copies:
            self._copies[key] = copy = values.add_copy(index, layout)
            self._owners[copy] = where
            if same_bytes(values.specs[index].shape, present or layout):
                values.views[copy] = (index, 0)
            else:
                self._repack(index, copy, where)
        return self._copies[key]

    def _repack(self, index: int, copy: int, backend: Backend) -> None:
        specs, op = [self.values.specs[index]], Repack()
        node = Node(f"{self.values.name(index)}/repack", op, (index,), (copy,))
        self.steps.append(Step(node, op, (index,), (copy,), backend, "", backend.create(op, specs, specs)))
