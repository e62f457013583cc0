"""Chooses the layout of every tensor, so that neighbours that like blocks pass them on, and repacks where they meet others.

A walk from the end estimates what it costs later that a value is plain, or blocked. Then one walk over the steps in order lets each run
in the way that costs least: its own traffic, the repacking of inputs that aren't at hand so, and what its outputs' layouts cost later. A
value is repacked at most once, where it is needed first. What outlives the plan, and what another backend reads, is plain.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mnnx.backends.backend import Backend
from mnnx.backends.blocked import is_piece, same_bytes
from mnnx.interpreter.step import Step
from mnnx.interpreter.values import Values
from mnnx.interpreter.ways import Way, repacking_cost, ways_of
from mnnx.schema.model import Node
from mnnx.schema.ops.repack import Repack


def assign_layouts(values: Values, steps: Sequence[Step], kept: Collection[int]) -> tuple[list[Step], dict[int, int]]:
    """The steps with those that repack among them, their executions told their ways; and each kept value → the plain one to keep."""
    ways = [ways_of(values, step) for step in steps]
    if not any(way.layouts.saves > 0 for choice in ways for way in choice):
        return list(steps), {i: i for i in kept}
    assignment = _Assignment(values, _Outlook(values, ways, kept))
    for choice in ways:
        assignment.add(choice)
    return assignment.steps, {i: assignment.placed(i, 0, None) for i in kept}


class _Outlook:
    """What the layouts of values cost later. A difference is never more than repacking, so it doesn't add up where paths meet again."""

    def __init__(self, values: Values, ways: Sequence[list[Way]], kept: Collection[int]):
        self.values = values
        self._owners = {i: choice[0].step.backend for choice in ways for i in choice[0].step.outputs}
        self._costs: dict[int, tuple[float, float]] = {i: (0, self._repacking(i)) for i in kept}  # plain, blocked
        self._views: dict[int, list[int]] = {}
        for view, (source, _) in values.views.items():
            self._views.setdefault(source, []).append(view)
        for choice in reversed(ways):
            for index in {i for way in choice for i, _ in way.inputs() if i in self._owners or i in values.views}:
                self._add(index, *(self._use(choice, index, blocked) for blocked in (False, True)))

    def cost(self, index: int, blocked: bool) -> float:
        """What it costs later that a value is blocked, or isn't."""
        plain, other = self._costs.get(index, (0, 0))
        for view in self._views.get(index, ()):
            costs = self.cost(view, False), self.cost(view, True)
            if not self._is_piece(index, view):
                costs = 0, self._repacking(index)
            plain, other = plain + costs[0], other + costs[1]
        least = min(plain, other)
        return min((other if blocked else plain) - least, self._repacking(index))

    def _use(self, choice: list[Way], index: int, blocked: bool) -> float:
        """The least that a step costs with everything after it, one of its inputs being blocked or not, the others as it likes them."""
        if self._owner(index) is not choice[0].step.backend:
            return self._repacking(index) if blocked else 0
        return min(
            way.cost
            + sum(self.cost(i, layout != 0) for i, layout in way.outputs())
            + sum(self._repacking(i) for i, layout in way.inputs() if i == index and (layout != 0) != blocked)
            for way in choice
        )

    def _add(self, index: int, plain: float, blocked: float) -> None:
        sums = self._costs.get(index, (0, 0))
        self._costs[index] = sums[0] + plain, sums[1] + blocked

    def _owner(self, index: int) -> Backend | None:
        return self._owners.get(self.values.root(index))

    def _repacking(self, index: int) -> float:
        owner, spec = self._owner(index), self.values.specs[index]
        return repacking_cost(spec, owner.block_width) if owner is not None and owner.block_width and spec.rank >= 2 else 0

    def _is_piece(self, index: int, view: int) -> bool:
        owner, values = self._owner(index), self.values
        lanes = owner.block_width if owner else 0
        return lanes > 0 and is_piece(values.specs[index], values.specs[view], values.views[view][1], lanes)


class _Assignment:
    def __init__(self, values: Values, outlook: _Outlook):
        self.values = values
        self.outlook = outlook
        self.steps: list[Step] = []
        self._owners: dict[int, Backend] = {}
        self._copies: dict[tuple[int, int, int], int] = {}  # value, layout, backend

    def add(self, choice: list[Way]) -> None:
        """Adds the step that runs in the best of these ways."""
        way = min(choice, key=self._cost)
        layouts, step, _ = way
        step.inputs = [i if i < 0 else self.placed(i, layout, step.backend) for i, layout in zip(step.inputs, layouts.inputs, strict=True)]
        for index, layout in way.outputs():
            self.values.layouts[index] = layout
            self._owners[index] = step.backend
        step.execution.way = layouts if any((*layouts.inputs, *layouts.outputs)) else None
        self.steps.append(step)

    def _cost(self, way: Way) -> float:
        repacking = sum(self._repacking(i, layout, way.step.backend) for i, layout in way.inputs() if not self.values.is_static(i))
        return way.cost + repacking + sum(self.outlook.cost(i, layout != 0) for i, layout in way.outputs())

    def _repacking(self, index: int, layout: int, backend: Backend) -> int:
        """The cost of having a value in a layout."""
        present = self._layout(index)
        if present == layout or (index, layout, id(backend)) in self._copies:
            return 0
        return repacking_cost(self.values.specs[index], present or layout)

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
