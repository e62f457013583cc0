"""Reductions, ArgMax, ArgMin and running sums on GPUs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mnnx.backends.backend import Execution, Layouts, Specs, Tensors
from mnnx.backends.blocked import blocked_shape, can_block
from mnnx.backends.gpu.constants import INT_KINDS
from mnnx.backends.gpu.creators import creator
from mnnx.backends.gpu.execution import GpuExecution
from mnnx.backends.gpu.executions.rows import Rows, around, items, steps_of_sum
from mnnx.backends.gpu.floats import FLOATS, floats_only
from mnnx.backends.gpu.kernel import kernel
from mnnx.backends.gpu.steps import nested
from mnnx.backends.gpu.working_memory import aligned, piece
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops import reduction as ops
from mnnx.schema.ops.base import Op, Spec
from mnnx.schema.records import Row

_FLOAT32, _INT32 = np.dtype("float32"), np.dtype("int32")
#: How kernels compute them: the kind, the term and how it is finished, as in kernels/reduction.py.
_FLOAT_KINDS = {
    ops.ReduceSum: ("sum", 0, 0),
    ops.ReduceMean: ("sum", 0, 0),
    ops.ReduceProd: ("product", 0, 0),
    ops.ReduceMax: ("max", 0, 0),
    ops.ReduceMin: ("max", 0, 0),
    ops.ReduceL1: ("sum", 1, 0),
    ops.ReduceL2: ("sum", 2, 1),
    ops.ReduceSumSquare: ("sum", 2, 0),
    ops.ReduceLogSum: ("sum", 0, 2),
    ops.ReduceLogSumExp: ("sum", 3, 3),
}
_INT_KINDS = {
    ops.ReduceSum: "sum",
    ops.ReduceProd: "product",
    ops.ReduceMax: "max",
    ops.ReduceMin: "min",
    ops.ReduceL1: "absolute",
    ops.ReduceSumSquare: "squares",
}
#: What of blocked images, over all pixels, stays in blocks.
_BLOCKED = (ops.ReduceSum, ops.ReduceMean, ops.ReduceMax, ops.ReduceMin)
#: Rows are cut in parts where there are fewer of them, each of so many vectors at least.
_CPU_ROWS, _GPU_ROWS, _PART = 16, 4096, 16


def stages(shape: tuple[int, ...], axes: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """The axes' groups of neighbours, the last ones first, each as [outer, n, inner] of what the ones before left. At least one."""
    found: list[tuple[int, int, int]] = []
    dims = [(size, axis in axes) for axis, size in enumerate(shape) if size != 1]
    while any(inside for _, inside in dims):
        last = max(i for i, (_, inside) in enumerate(dims) if inside) + 1
        first = last
        while first and dims[first - 1][1]:
            first -= 1
        found.append(tuple(math.prod(size for size, _ in part) for part in (dims[:first], dims[first:last], dims[last:])))
        del dims[first:last]
    return found or [(math.prod(shape), 1, 1)]


def supports(op: Op, inputs: Specs, outputs: Specs) -> str | None:
    if inputs[0].dtype != _INT32:
        return floats_only(op, inputs, outputs)
    if type(op) not in _INT_KINDS:
        return "no kernel for int32"
    return None if len(stages(inputs[0].shape, op.axes(*inputs))) == 1 else "no kernel for int32 over axes that lie apart"


@creator(*_FLOAT_KINDS, supports=supports)
def create(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return (IntReductionExecution if inputs[0].dtype == _INT32 else ReductionExecution)(op, backend, op.axes(*inputs))


class Place(Row):
    """Where a pass reads or writes: an offset in the working memory, or (None) the input or the result."""

    offset: int | None
    size: int = 0


class Pass(Row):
    """One dispatch of reduction.rows."""

    kind: str
    rows: Rows
    parts: int
    source: Place
    target: Place
    peak: Place | None
    term: int
    finish: int
    factor: float

    @property
    def loop_steps(self) -> int:
        return steps_of_sum(-(-self.rows.count // self.parts))


class Passes:
    """Plans a reduction: rows that are few, or too long for one work item, are cut in parts, and what these come to is reduced again."""

    def __init__(self, op: Op, backend, groups: Sequence[tuple[int, int, int]]):
        self.passes: list[Pass] = []
        self.nbytes = 0
        self._backend = backend
        kind, term, finish = _FLOAT_KINDS[type(op)]
        factor = -1.0 if isinstance(op, ops.ReduceMin) else 1.0
        if isinstance(op, ops.ReduceMean):
            n = math.prod(n for _, n, _ in groups)
            factor = 1.0 / n if n else math.nan
        source = Place(None)
        for index, (outer, n, inner) in enumerate(groups):
            last = index + 1 == len(groups)
            target = Place(None) if last else self._allocate(outer * inner)
            if term == 3:  # of each group the whole: log of the sum of exponentials of such logarithms
                peak = self._allocate(outer * inner)
                self._add("max", source, target=peak, sizes=(outer, n, inner))
                self._add(kind, source, target, (outer, n, inner), term, finish, 1.0, peak)
            else:
                scale = factor if last or kind == "max" else 1.0
                self._add(kind, source, target, (outer, n, inner), 0 if index else term, finish if last else 0, scale)
            source = target

    def _allocate(self, size: int) -> Place:
        place = Place(self.nbytes, size)
        self.nbytes += aligned(self._backend, 4 * size)
        return place

    def _add(
        self,
        kind: str,
        source: Place,
        target: Place,
        sizes: tuple[int, int, int],
        term: int = 0,
        finish: int = 0,
        factor: float = 1.0,
        peak: Place | None = None,
    ) -> None:
        outer, n, inner = sizes
        rows = Rows.of(self._backend.block_width, outer, n, inner)
        parts = self._parts(rows)
        if parts == 1:
            self.passes.append(Pass(kind, rows, 1, source, target, peak, term, finish, factor))
            return
        middle = self._allocate(outer * parts * inner)
        self.passes.append(Pass(kind, rows, parts, source, middle, peak, term, 0, factor if kind == "max" else 1.0))
        self._add(kind, middle, target, (outer, parts, inner), 0, finish, factor, peak)

    def _parts(self, rows: Rows) -> int:
        wanted = _CPU_ROWS if self._backend.device.profile.is_cpu else _GPU_ROWS
        parts = min(wanted // max(1, rows.rows), rows.count // _PART)
        longest = self._backend.most_steps * 15 // 16  # see steps_of_sum
        return max(parts, -(-rows.count // longest), 1)


class ReductionExecution(GpuExecution):
    """A reduction of floats over any axes."""

    def __init__(self, op: Op, backend, axes: tuple[int, ...]):
        super().__init__(op, backend)
        self.axes = axes

    def layouts(self, inputs: Specs, outputs: Specs, lanes: int) -> Sequence[Layouts]:
        x, rest = inputs[0], (0,) * (len(inputs) - 1)
        if type(self.op) not in _BLOCKED or not can_block(x) or self.axes != tuple(range(2, x.rank)) or 0 in x.shape:
            return ()
        if self.op.keepdims:
            return [Layouts((lanes, *rest), (lanes,))]
        return [Layouts((lanes, *rest), (0,))] if x.shape[1] % lanes == 0 else ()

    def _passes(self, x: Spec) -> Passes:
        lanes = self.way.inputs[0] if self.way else 0
        if lanes:
            batch, blocks, *pixels, _ = blocked_shape(x.shape, lanes)
            return Passes(self.op, self.backend, [(batch * blocks, math.prod(pixels), lanes)])
        return Passes(self.op, self.backend, stages(x.shape, self.axes))

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        return self._passes(inputs[0]).nbytes if outputs[0].size else 0

    def loop_steps(self, inputs: Specs, outputs: Specs) -> int:
        return max(p.loop_steps for p in self._passes(inputs[0]).passes)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        x, y, backend = inputs[0], outputs[0], self.backend
        if y.spec.size == 0:
            return

        def tensor(place: Place, other: DeviceTensor) -> DeviceTensor:
            if place.offset is None:
                return other
            return piece(scratch, place.offset, 4 * place.size)

        def storage(place: Place, other: DeviceTensor) -> str:
            return backend.storage(other.dtype) if place.offset is None else "float"

        for p in self._passes(x.spec).passes:
            found = kernel("reduction.rows", kind=p.kind, source=storage(p.source, x), result=storage(p.target, y), **p.rows.form)
            source, count = tensor(p.source, x), p.rows.count
            if backend.device.profile.is_cpu:
                span = -(-count // p.parts)
                steps = (span, 1, span)
            else:
                steps = (1, p.parts, count)
            params = [p.rows.rows * p.parts, count, p.rows.inner, p.parts, *steps, p.term, p.finish, p.factor]
            buffers = [source, source if p.peak is None else tensor(p.peak, x), tensor(p.target, y)]
            backend.commands.record(found, buffers, params, *items(p.rows.rows * p.parts, 1, backend))


class IntReductionExecution(GpuExecution):
    """A reduction of int32 over neighbouring axes."""

    def __init__(self, op: Op, backend, axes: tuple[int, ...]):
        super().__init__(op, backend)
        self.axes = axes

    def loop_steps(self, inputs: Specs, outputs: Specs) -> int:
        ((_, n, _),) = stages(inputs[0].shape, self.axes)
        return nested(n)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        x, y = inputs[0], outputs[0]
        if y.spec.size == 0:
            return
        ((outer, n, inner),) = stages(x.shape, self.axes)
        params = [outer * inner, n, inner, INT_KINDS.index(_INT_KINDS[type(self.op)])]
        self.backend.commands.record(kernel("reduction.ints"), [x, y], params, *items(outer * inner, 1, self.backend))


@creator(ops.ArgMax, ops.ArgMin, supports=floats_only)
def create_arg(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return ArgReductionExecution(op, backend)


class ArgReductionExecution(GpuExecution):
    def loop_steps(self, inputs: Specs, outputs: Specs) -> int:
        return self._rows(inputs[0]).steps(self.backend, sums=0, walks=1)

    def _rows(self, x: Spec | DeviceTensor) -> Rows:
        return Rows(*around(x.shape, self.op.axis), 1, False)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        x, y, backend = inputs[0], outputs[0], self.backend
        if y.spec.size == 0:
            return
        rows = self._rows(x)
        team = rows.team(backend)
        sign = 1.0 if isinstance(self.op, ops.ArgMax) else -1.0
        found = kernel("reduction.arg", storage=backend.storage(x.dtype), team=team)
        params = [*rows.params, sign, int(self.op.select_last_index)]
        backend.commands.record(found, [x, y], params, *items(rows.rows, team, backend))


def supports_running(op: Op, inputs: Specs, outputs: Specs) -> str | None:
    if inputs[1].value is None:
        return "no kernel for a computed axis"
    return None if inputs[0].dtype in FLOATS | {_INT32} else f"no kernel for {inputs[0].dtype}"


@creator(ops.CumSum, ops.CumProd, supports=supports_running)
def create_running(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return RunningExecution(op, backend, inputs[1].ints()[0])


class RunningExecution(GpuExecution):
    in_place = (0,)

    def __init__(self, op: Op, backend, axis: int):
        super().__init__(op, backend)
        self.axis = axis

    def loop_steps(self, inputs: Specs, outputs: Specs) -> int:
        _, n, _ = around(inputs[0].shape, self.axis)
        return nested(n)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        x, y, op = inputs[0], outputs[0], self.op
        if y.spec.size == 0:
            return
        outer, n, inner = around(x.shape, self.axis)
        found = kernel("reduction.running", storage=self.backend.storage(x.dtype))
        params = [outer * inner, n, inner, int(isinstance(op, ops.CumProd)), int(op.reverse), int(op.exclusive)]
        self.backend.commands.record(found, [x, y], params, *items(outer * inner, 1, self.backend))
