"""Reading and writing elements at indices on GPUs. Indices that are known are checked when shapes are planned, others by the kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.gpu.constants import DIGITS, REDUCTIONS
from mnnx.backends.gpu.creators import creator
from mnnx.backends.gpu.device import Memory
from mnnx.backends.gpu.execution import GpuExecution
from mnnx.backends.gpu.executions.rows import Rows, around, items
from mnnx.backends.gpu.kernel import kernel
from mnnx.backends.gpu.steps import nested
from mnnx.backends.gpu.working_memory import bytes_of, cut
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.dtypes import STRING
from mnnx.schema.ops.base import Op, Spec
from mnnx.schema.ops.indexing import Gather, GatherElements, GatherND, OneHot, ScatterElements, ScatterND, TensorScatter, TopK
from mnnx.schema.records import Row

#: More updates than this aren't reduced one after the other by one work item.
_MOST_IN_LINE = 1 << 16
#: TopK ranks rows up to this long as they are; of longer ones the first k are selected before.
_SHORT_ROW = 256
#: TopK ranks by comparing each with each, so many pairs at most.
_MOST_COMPARED = 1 << 30
#: How often top_k.select goes through a row beside once per digit of a key.
_MORE_WALKS = 2
_REDUCIBLE = _ORDERED = frozenset(np.dtype(t) for t in ("float32", "float16", "int32"))


def unmovable(spec: Spec) -> str | None:
    return f"no movement of {spec.dtype}" if spec.dtype == STRING or spec.dtype.itemsize > 8 else None


def words_of(spec: Spec) -> int:
    """The ints that make up an element of int32 or int64."""
    return spec.dtype.itemsize // 4


def strides_of(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


@creator(Gather, GatherElements, GatherND, supports=lambda op, inputs, outputs: unmovable(inputs[0]))
def create_gather(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return {Gather: GatherExecution, GatherElements: GatherElementsExecution, GatherND: GatherNDExecution}[type(op)](op, backend)


class GatherExecution(GpuExecution):
    """A work item per element of the result, or per 16 bytes of a row."""

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        x, indices = inputs
        axis = self.op.axis % x.spec.rank
        outer, rows, inner = math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])
        count = indices.spec.size
        if outer * count * inner == 0:
            return
        storage, width, several = self.backend.raw_storage(x.dtype, inner)
        inner //= several
        faults, slot = self.backend.commands.fault(
            f"Gather's index {{}} is outside [-{rows}, {rows}), the range of axis {axis} of {x.spec}"
        )
        found, total = kernel("indexing.gather", storage=storage, width=width), outer * count * inner
        params = [total, rows, count, inner, words_of(indices.spec), slot]
        self.backend.commands.record(found, [x, indices, outputs[0], faults], params, (total,))


class GatherElementsExecution(GpuExecution):
    """A work item per element."""

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        x, indices = inputs
        if indices.spec.size:
            record_elements(self.backend, "indexing.gather_elements", x, indices, self.op, x.shape, outputs[0])


def record_elements(
    backend, name: str, source: DeviceTensor, indices: DeviceTensor, op: Op, shape: tuple[int, ...], y: DeviceTensor
) -> None:
    """Gathers or scatters the elements that `indices` names in a tensor of this shape."""
    axis = op.axis % len(shape)
    table = elements_table(backend, indices.shape, shape, axis)
    storage, width, _ = backend.raw_storage(source.dtype)
    faults, slot = _element_fault(backend, op, shape, axis)
    total = indices.spec.size
    params = [total, len(shape), shape[axis], strides_of(shape)[axis], words_of(indices.spec), slot]
    backend.commands.record(kernel(name, storage=storage, width=width), [source, indices, table, y, faults], params, (total,))


def _element_fault(backend, op: Op, shape: tuple[int, ...], axis: int) -> tuple[Memory, int]:
    rows = shape[axis]
    return backend.commands.fault(f"{op.name}'s index {{}} is outside [-{rows}, {rows}), the range of axis {axis} of {list(shape)}")


def elements_table(backend, sizes: Sequence[int], shape: Sequence[int], axis: int, without_axis: bool = False) -> Memory:
    """The dims of `sizes`, innermost first, with their steps in a tensor of `shape` (0 along the axis) and in one of `sizes`."""
    rows = [
        (size, 0 if place == axis else stride, own)
        for place, (size, stride, own) in enumerate(zip(sizes, strides_of(shape), strides_of(sizes), strict=True))
        if not (without_axis and place == axis)
    ]
    return backend.table(np.array([*reversed(rows), (1, 0, 0)], np.int32))


class GatherNDExecution(GpuExecution):
    """A work item per element, or per 16 bytes of a slice."""

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        (x, indices), y, b = inputs, outputs[0], self.op.batch_dims
        if y.spec.size == 0:
            return
        depth, dims = indices.shape[-1], x.shape[b:]
        inner = math.prod(dims[depth:])
        storage, width, several = self.backend.raw_storage(x.dtype, inner)
        table, (faults, slot) = tuples_table(self.backend, dims, depth, several), tuple_fault(self.backend, self.op, dims[:depth])
        found, total = kernel("indexing.gather_nd", storage=storage, width=width), y.spec.size // several
        tuples = math.prod(indices.shape[b:-1])
        params = [total, tuples, math.prod(dims) // several, inner // several, depth, words_of(indices.spec), slot]
        self.backend.commands.record(found, [x, indices, table, y, faults], params, (total,))


def tuples_table(backend, dims: Sequence[int], depth: int, several: int) -> Memory:
    """The dims that index tuples name, each with its stride."""
    rows = [(size, stride // several) for size, stride in zip(dims, strides_of(dims), strict=True)][:depth]
    return backend.table(np.array([*rows, (1, 0)], np.int32))


def tuple_fault(backend, op: Op, dims: Sequence[int]) -> tuple[Memory, int]:
    return backend.commands.fault(f"{op.name}'s index {{}} is outside its dim's range, [-n, n) with n of {list(dims)}")


def supports_scatter(op: Op, inputs: Specs, outputs: Specs) -> str | None:
    data, indices, _ = inputs
    if op.reduction == "none":
        return unmovable(data)
    if data.dtype not in _REDUCIBLE:
        return f"no kernels that reduce {data.dtype}"
    in_line = indices.shape[op.axis] if isinstance(op, ScatterElements) and indices.rank else math.prod(indices.shape[:-1])
    return f"{in_line} updates would be reduced one after the other" if in_line > _MOST_IN_LINE else None


@creator(ScatterElements, ScatterND, supports=supports_scatter)
def create_scatter(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return (ScatterElementsExecution if isinstance(op, ScatterElements) else ScatterNDExecution)(op, backend)


class ScatterExecution(GpuExecution):
    """The data, copied unless the result lies in its place, and then written to."""

    in_place = (0,)

    def copy(self, x: DeviceTensor, y: DeviceTensor) -> None:
        if x.memory is None or x.memory is not y.memory or x.offset != y.offset:
            storage, width, several = self.backend.raw_storage(x.dtype, x.spec.size)
            total = x.spec.size // several
            self.backend.commands.record(kernel("indexing.copy", storage=storage, width=width), [x, y], [total], (total,))


class ScatterElementsExecution(ScatterExecution):
    """A work item per update; where they are reduced, per line along the axis."""

    def loop_steps(self, inputs: Specs, outputs: Specs) -> int:
        indices = inputs[1]
        return 0 if self.op.reduction == "none" or not indices.rank else nested(indices.shape[self.op.axis])

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        (x, indices, updates), y = inputs, outputs[0]
        if x.spec.size == 0:
            return
        self.copy(x, y)
        if indices.spec.size == 0:
            return
        if self.op.reduction == "none":
            record_elements(self.backend, "indexing.scatter_elements", updates, indices, self.op, x.shape, y)
            return
        axis = self.op.axis % x.spec.rank
        table = elements_table(self.backend, indices.shape, x.shape, axis, without_axis=True)
        count = indices.shape[axis]
        found, total = kernel("indexing.reduce_elements", storage=self.backend.storage(x.dtype)), indices.spec.size // count
        faults, slot = _element_fault(self.backend, self.op, x.shape, axis)
        params = [total, x.spec.rank - 1, x.shape[axis], strides_of(x.shape)[axis], count, strides_of(indices.shape)[axis]]
        params += [1 + REDUCTIONS.index(self.op.reduction), words_of(indices.spec), slot]
        self.backend.commands.record(found, [updates, indices, table, y, faults], params, (total,))


class ScatterNDExecution(ScatterExecution):
    """A work item per element of the updates; where they are reduced, per element of a slice."""

    def loop_steps(self, inputs: Specs, outputs: Specs) -> int:
        *tuples, depth = inputs[1].shape
        return 0 if self.op.reduction == "none" else nested(math.prod(tuples), depth)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        (x, indices, updates), y = inputs, outputs[0]
        if x.spec.size == 0:
            return
        self.copy(x, y)
        if updates.spec.size == 0:
            return
        depth = indices.shape[-1]
        inner, commands = math.prod(x.shape[depth:]), self.backend.commands
        if self.op.reduction == "none":
            storage, width, several = self.backend.raw_storage(x.dtype, inner)
            table, (faults, slot) = tuples_table(self.backend, x.shape, depth, several), tuple_fault(self.backend, self.op, x.shape[:depth])
            found, total = kernel("indexing.scatter_nd", storage=storage, width=width), updates.spec.size // several
            params = [total, inner // several, depth, words_of(indices.spec), slot]
            commands.record(found, [updates, indices, table, y, faults], params, (total,))
            return
        table, (faults, slot) = tuples_table(self.backend, x.shape, depth, 1), tuple_fault(self.backend, self.op, x.shape[:depth])
        found = kernel("indexing.reduce_nd", storage=self.backend.storage(x.dtype))
        params = [inner, math.prod(indices.shape[:-1]), depth, 1 + REDUCTIONS.index(self.op.reduction), words_of(indices.spec), slot]
        commands.record(found, [updates, indices, table, y, faults], params, (inner,))


@creator(TensorScatter, supports=lambda op, inputs, outputs: unmovable(inputs[0]))
def create_tensor_scatter(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return TensorScatterExecution(op, backend)


class TensorScatterExecution(ScatterExecution):
    """A work item per element of the update, or per 16 bytes."""

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        (x, updates, indices), y = (*inputs, None)[:3], outputs[0]
        if x.spec.size == 0:
            return
        self.copy(x, y)
        if updates.spec.size == 0:
            return
        axis = self.op.axis % x.spec.rank
        inner, outer = math.prod(x.shape[axis + 1 :]), math.prod(x.shape[1:axis])
        storage, width, several = self.backend.raw_storage(x.dtype, inner)
        rows, count, total = x.shape[axis], updates.shape[axis], updates.spec.size // several
        words = 1 if indices is None else words_of(indices.spec)
        if indices is None:
            indices = self.backend.table(np.zeros(x.shape[0], np.int32))
        faults, slot = self.backend.commands.fault(f"an update of {count} at {{}} doesn't fit in {rows}")
        found = kernel("indexing.tensor_scatter", storage=storage, width=width)
        params = [total, outer, rows, count, inner // several, int(self.op.mode == "circular"), words, slot]
        self.backend.commands.record(found, [updates, indices, y, faults], params, (total,))


def supports_one_hot(op: OneHot, inputs: Specs, outputs: Specs) -> str | None:
    if inputs[0].dtype not in {np.dtype(t) for t in ("int32", "int64", "float32", "float16")}:
        return f"no kernels for classes of {inputs[0].dtype}"
    return unmovable(outputs[0])


@creator(OneHot, supports=supports_one_hot)
def create_one_hot(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return OneHotExecution(op, backend)


class OneHotExecution(GpuExecution):
    """A work item per element of the result."""

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        (classes, _, values), y = inputs, outputs[0]
        total, axis = y.spec.size, self.op.axis % y.spec.rank
        if total == 0:
            return
        storage, width, _ = self.backend.raw_storage(y.dtype)
        whole = classes.dtype.kind == "i"
        found = kernel("indexing.one_hot", storage=storage, width=width, classes="int" if whole else self.backend.storage(classes.dtype))
        params = [total, y.shape[axis], math.prod(y.shape[axis + 1 :]), words_of(classes.spec) if whole else 1]
        self.backend.commands.record(found, [classes, values, y], params, (total,))


class _TopRows(Row):
    """TopK's rows [outer, count, inner], of which k are wanted, and how many of each are ranked."""

    outer: int
    count: int
    inner: int
    k: int
    ranked: int

    @classmethod
    def of(cls, op: TopK, inputs: Specs) -> _TopRows:
        outer, count, inner = around(inputs[0].shape, op.axis)
        (k,) = inputs[1].ints()
        return cls(outer, count, inner, k, count if count <= _SHORT_ROW else k)

    @property
    def rows(self) -> int:
        return self.outer * self.inner


def supports_top_k(op: TopK, inputs: Specs, outputs: Specs) -> str | None:
    if inputs[0].dtype not in _ORDERED:
        return f"no kernels for {inputs[0].dtype}"
    top = _TopRows.of(op, inputs)
    return f"each of {top.ranked} elements would be compared with all others" if top.rows * top.ranked**2 > _MOST_COMPARED else None


@creator(TopK, supports=supports_top_k)
def create_top_k(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return TopKExecution(op, backend, _TopRows.of(op, inputs))


class TopKExecution(GpuExecution):
    """A work item for each element that is ranked, which counts those before it."""

    def __init__(self, op: Op, backend, top: _TopRows):
        super().__init__(op, backend)
        self.top = top

    def loop_steps(self, inputs: Specs, outputs: Specs) -> int:
        top = self.top
        if top.ranked == top.count:
            return nested(top.ranked)
        share = -(-top.count // self._team)
        return max(nested(top.ranked), nested(DIGITS, share) + _MORE_WALKS * nested(share))

    @property
    def _team(self) -> int:
        """Work items that select from a row."""
        top = self.top
        return Rows(top.outer, top.count, top.inner, 1, False).team(self.backend, DIGITS + _MORE_WALKS)

    def _pieces(self, outputs: Sequence) -> list[int]:
        """Bytes of working memory: the places of what is ranked, and the results that nobody wants."""
        top = self.top
        size = top.rows * top.k
        places = 4 * size if top.ranked < top.count else 0
        return [places, 0 if outputs[0] is not None else 4 * size, 0 if outputs[1] is not None else 8 * size]

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        return bytes_of(self.backend, self._pieces(outputs))

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        x, top, backend = inputs[0], self.top, self.backend
        if top.rows * top.k == 0:
            return
        places, *unwanted = cut(scratch, self._pieces(outputs))
        storage, flip, listed = backend.storage(x.dtype), 0 if self.op.largest else -1, places is not None
        if listed:
            params = [top.rows, top.count, top.inner, top.k, flip]
            found = kernel("top_k.select", storage=storage, team=self._team)
            backend.commands.record(found, [x, places], params, *items(top.rows, self._team, backend))
        results = [piece if tensor is None else tensor for piece, tensor in zip(unwanted, outputs, strict=True)]
        params = [top.rows, top.count, top.inner, top.ranked, top.k, int(listed), flip]
        found = kernel("top_k.rank", storage=storage)
        backend.commands.record(found, [x, places if listed else x, *results], params, (top.rows * top.ranked,))
