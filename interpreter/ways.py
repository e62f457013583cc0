"""The ways in which a step can run: plain, or with blocked tensors; and what each costs, counted in bytes of memory traffic."""

from __future__ import annotations

from collections.abc import Iterator

from mnnx.backends.backend import Layouts
from mnnx.backends.blocked import blocked_bytes, same_bytes, tensor_bytes
from mnnx.interpreter.geometry.blocked import rewrite_blocked
from mnnx.interpreter.step import Step
from mnnx.interpreter.values import Values
from mnnx.schema.ops.base import Spec
from mnnx.schema.records import Row

#: What it costs to have one more unit.
_UNIT = 8192


class Way(Row):
    """Layouts, the step that runs with them (another one in a movement's place), and the cost of that, repacking left aside."""

    layouts: Layouts
    step: Step
    cost: float

    def inputs(self) -> Iterator[tuple[int, int]]:
        """Each input with its layout."""
        return ((i, layout) for i, layout in zip(self.step.inputs, self.layouts.inputs, strict=True) if i >= 0)

    def outputs(self) -> Iterator[tuple[int, int]]:
        """Each output with its layout."""
        return ((i, layout) for i, layout in zip(self.step.outputs, self.layouts.outputs, strict=True) if i >= 0)


def ways_of(values: Values, step: Step) -> list[Way]:
    """All ways, the plain one first."""
    plain = Layouts((0,) * len(step.inputs), (0,) * len(step.outputs))
    found = [(plain, step), *(way for way in _blocked(values, step) if _can_run(values, *way))]
    return [Way(layouts, step, _cost(values, step, layouts)) for layouts, step in found]


def _can_run(values: Values, layouts: Layouts, step: Step) -> bool:
    specs, results = ([values.spec(i) for i in indices] for indices in (step.inputs, step.outputs))
    return step.backend.can_run(step.op, specs, results, layouts)


def repacking_cost(spec: Spec, lanes: int) -> int:
    """Of a tensor, from or to blocks."""
    return 0 if same_bytes(spec.shape, lanes) else _UNIT + spec.nbytes + blocked_bytes(spec.shape, lanes)


def _cost(values: Values, step: Step, layouts: Layouts) -> float:
    inputs = [(i, layout) for i, layout in zip(step.inputs, layouts.inputs, strict=True) if i >= 0 and not values.is_static(i)]
    outputs = [(i, layout) for i, layout in zip(step.outputs, layouts.outputs, strict=True) if i >= 0]
    return sum(tensor_bytes(values.specs[i], layout) for i, layout in [*inputs, *outputs]) - layouts.saves


def _blocked(values: Values, step: Step) -> Iterator[tuple[Layouts, Step]]:
    lanes = step.backend.block_width
    if not lanes or any(values.specs[i].size == 0 for i in (*step.inputs, *step.outputs) if i >= 0):
        return
    if step.movement is not None:
        yield from _blocked_movement(step, lanes)
        return
    specs, results = ([values.spec(i) for i in indices] for indices in (step.inputs, step.outputs))
    yield from ((layouts, step) for layouts in step.execution.layouts(specs, results, lanes))


def _blocked_movement(step: Step, lanes: int) -> Iterator[tuple[Layouts, Step]]:
    """A Raster over blocked memory; or the execution of the op itself, where that has a way with blocks."""
    movement, backend = step.movement, step.backend
    raster = rewrite_blocked(movement.op, movement.inputs, movement.outputs, movement.slot, lanes)
    if raster is not None:
        inputs = [i if position in raster.sources else -1 for position, i in enumerate(step.node.inputs)]
        execution = backend.create(raster, movement.inputs, [movement.outputs[movement.slot]])
        layouts = Layouts(tuple(lanes if i >= 0 else 0 for i in inputs), (lanes,))
        yield layouts, Step(step.node, raster, inputs, step.outputs, backend, step.reason, execution)
    elif len(movement.outputs) == 1 and backend.supports(movement.op, movement.inputs, movement.outputs) is None:
        execution = backend.create(movement.op, movement.inputs, movement.outputs)
        for layouts in execution.layouts(movement.inputs, movement.outputs, lanes):
            yield layouts, Step(step.node, movement.op, step.node.inputs, step.outputs, backend, step.reason, execution)
