"""Attention of floats: a product makes the scores of some queries, softmax their weights, and a product with the values the result."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mnnx.backends.attention import Problem, fused_problem, packed_problem, plain_problem
from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.gpu.creators import creator
from mnnx.backends.gpu.execution import GpuExecution
from mnnx.backends.gpu.executions.activation import record_softmax, steps_of_softmax
from mnnx.backends.gpu.executions.product import Product, Right, in_place, packed_bytes, product_kernels, record_product, right_of
from mnnx.backends.gpu.executions.raster import RasterExecution
from mnnx.backends.gpu.executions.rows import Rows
from mnnx.backends.gpu.floats import FLOATS, one_float_only
from mnnx.backends.gpu.kernel import Kernel, kernel
from mnnx.backends.gpu.working_memory import bytes_of, cut
from mnnx.backends.matrices import Matrices
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.attention import Attention, FusedAttention, PackedAttention, RotaryEmbedding, illegal_key_counts
from mnnx.schema.ops.base import Op, Spec
from mnnx.schema.ops.raster import Raster, Region
from mnnx.schema.records import Row

_BOOL = np.dtype("bool")
#: Bytes of scores that are there at a time, where a single query's don't need more.
_SCORE_BYTES = 32 << 20
#: Beyond any distance between a query and a key.
_FAR = 1 << 30


def _reason_against_fused(op: FusedAttention, inputs: Specs, outputs: Specs) -> str | None:
    if inputs[0].dtype not in FLOATS:
        return f"no kernel for {inputs[0].dtype}"
    p = fused_problem(op, inputs, outputs)
    if p.mask is not None and (p.mask.columns != p.k.columns or p.mask.rows not in (1, p.q.rows)):
        return "no kernel for a mask without a number for each key"
    return None if p.y.column_stride == 1 or p.y.columns == 1 else "no kernel for a result whose rows aren't dense"


@creator(FusedAttention, supports=_reason_against_fused)
def create_fused(op: FusedAttention, backend, inputs: Specs, outputs: Specs) -> Execution:
    return AttentionExecution(op, backend, fused_problem(op, inputs, outputs), inputs)


def _reason_against_plain(op: Attention, inputs: Specs, outputs: Specs) -> str | None:
    dtypes = {spec.dtype for spec in inputs[:3]}
    if len(dtypes) > 1 or not dtypes <= FLOATS:
        return f"no kernel for {', '.join(sorted(map(str, dtypes)))}"
    if any(spec is not None for spec in outputs[3:]):
        return "no kernel for the scores as a result"
    if any(spec is not None and spec.dtype not in dtypes for spec in inputs[4:6]):
        return "no kernel for past keys and values of another dtype"
    mask = inputs[3] if len(inputs) > 3 else None
    if mask is not None and mask.dtype not in (inputs[0].dtype, _BOOL):
        return "no kernel for a mask that isn't of q's dtype or bool"
    return None


@creator(Attention, supports=_reason_against_plain)
def create(op: Attention, backend, inputs: Specs, outputs: Specs) -> Execution:
    if any(spec is not None for spec in (*inputs[4:6], *outputs[1:])):
        return CachedAttentionExecution(op, backend, inputs, outputs)
    return AttentionExecution(op, backend, plain_problem(op, inputs), inputs)


def _reason_against_packed(op: PackedAttention, inputs: Specs, outputs: Specs) -> str | None:
    x, mask = (*inputs, None)[:2]
    if x.dtype not in FLOATS or (mask is not None and mask.dtype not in (x.dtype, _BOOL)):
        return f"no kernel for {x.dtype}" + (f" and a mask of {mask.dtype}" if mask is not None else "")
    return None


@creator(PackedAttention, supports=_reason_against_packed)
def create_packed(op: PackedAttention, backend, inputs: Specs, outputs: Specs) -> Execution:
    x, *mask = inputs
    return PackedAttentionExecution(op, backend, packed_problem(op, inputs, outputs), [x, x, x, *mask])


class Bias(Row):
    """What is added to the scores of some queries: where it lies, where that of each item of the batch begins, and the elements from row to
    row (0: one row for all)."""

    place: DeviceTensor | None
    items: np.ndarray | None
    row: int


class AttentionExecution(GpuExecution):
    """Goes through the items of the batch, and the queries of an item, in parts whose scores fit `_SCORE_BYTES`."""

    def __init__(self, op: Op, backend, problem: Problem, inputs: Specs):
        super().__init__(op, backend)
        p = self.problem = problem
        self.dtype = inputs[0].dtype
        self.storage = backend.storage(self.dtype)
        self.batch = np.broadcast_shapes(*(m.batch for m in (p.q, p.k, p.v, p.mask) if m is not None))
        self.empty = 0 in (*self.batch, p.q.rows, p.v.columns)
        windowed = p.first > 1 - p.q.rows or p.last < p.k.columns - 1
        #: The bound that scores are bent to stay below; 0: none.
        self.cap = op.softcap if isinstance(op, Attention) else 0.0
        self.has_lengths = isinstance(op, Attention) and len(inputs) > 6 and inputs[6] is not None
        #: Whether the mask is made, rather than taken as it is; and of how many items.
        partial = p.mask is not None and (inputs[3].dtype == _BOOL or p.mask.columns < p.k.columns)
        self.makes_mask = windowed or self.has_lengths or partial
        self.mask_batch = () if p.mask is None else p.mask.batch
        if self.has_lengths:
            self.mask_batch = np.broadcast_shapes(self.mask_batch, (self.batch[0], 1, 1))
        self._divide()

    def _divide(self) -> None:
        p, size = self.problem, self.backend.stored(self.dtype.itemsize, self.dtype)
        row_bytes = max(1, p.k.columns * size)
        mask_items = math.prod(self.mask_batch) if self.makes_mask else 1
        self.part_rows = min(p.q.rows, max(1, _SCORE_BYTES // (row_bytes * max(1, mask_items))))
        self.part_items = min(math.prod(self.batch), max(1, _SCORE_BYTES // (row_bytes * max(1, self.part_rows))))
        packs = [not in_place(self.backend, m, p.q.rows) for m in (p.k, p.v)]
        #: Bytes of working memory: the scores, packed k and v, and the part of the mask that is made.
        self.parts = (
            self.part_items * self.part_rows * row_bytes,
            packed_bytes(self.backend, p.k, size) if packs[0] else 0,
            packed_bytes(self.backend, p.v, size) if packs[1] else 0,
            mask_items * self.part_rows * row_bytes if self.makes_mask else 0,
        )

    def kernels(self, inputs: Specs, outputs: Specs) -> Sequence[Kernel]:
        return product_kernels(self.backend, self.storage)

    def largest_piece(self, inputs: Specs, outputs: Specs) -> int:
        return 0 if self.empty else max(self.parts)

    def loop_steps(self, inputs: Specs, outputs: Specs) -> int:
        return steps_of_softmax(self.backend, self._score_rows(self.part_items * self.part_rows))

    def _score_rows(self, rows: int) -> Rows:
        return Rows.of(self.backend.block_width, rows, self.problem.k.columns, 1)

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        return 0 if self.empty else bytes_of(self.backend, self.parts)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        if self.empty:
            return
        p, count = self.problem, math.prod(self.batch)
        scores, k_place, v_place, mask_place, *_ = cut(scratch, self.parts)
        k = right_of(self.backend, p.k, inputs[1], k_place, self.batch)
        v = right_of(self.backend, p.v, inputs[2], v_place, self.batch)
        for row in range(0, p.q.rows, self.part_rows):
            rows = min(self.part_rows, p.q.rows - row)
            bias = self._bias(inputs, mask_place, row, rows)
            for item in range(0, count, self.part_items):
                part = slice(item, item + self.part_items)
                self._record_part(part, row, rows, inputs[0], k, v, bias, scores, outputs[0])

    def _bias(self, inputs: Tensors, target: DeviceTensor | None, row: int, rows: int) -> Bias:
        """For so many queries from `row` on; made in `target`, if any."""
        p = self.problem
        mask = inputs[3] if p.mask is not None else None
        row_step = 0 if mask is None or p.mask.rows == 1 else p.mask.row_stride
        if not self.makes_mask or target is None:
            return Bias(mask, None if mask is None else p.mask.items(self.batch, 1) + row * row_step, row_step)
        # the windows of queries count from the part's first one
        first, last = max(p.first + row, -_FAR), min(p.last + row, _FAR)
        items, numbers = math.prod(self.mask_batch), np.arange(self.batch[0]).reshape(-1, 1, 1)
        starts = np.zeros(items, np.int64) if mask is None else p.mask.items(self.mask_batch, 1)
        sequences = np.broadcast_to(numbers, self.mask_batch).reshape(-1) if self.has_lengths else np.zeros(items, np.int64)
        table = self.backend.table(np.stack([starts, sequences], axis=1).astype(np.int32))
        mask_keys = 0 if mask is None else p.mask.columns
        params = [rows, p.k.columns, items, first, last, int(mask is not None), mask_keys, row * row_step, row_step]
        faults, slot = self.backend.commands.fault(illegal_key_counts(p.k.columns)) if self.has_lengths else (target, 0)
        params += [int(self.has_lengths), p.q.rows, slot]
        found = kernel("attention.mask", storage=self.storage, mask="bool" if mask is not None and mask.dtype == _BOOL else "same")
        size = (p.k.columns, rows, items)
        buffers = [inputs[0] if mask is None else mask, table, inputs[6] if self.has_lengths else table, target, faults]
        self.backend.commands.record(found, buffers, params, size)
        made = Matrices.of((*self.mask_batch, rows, p.k.columns))
        return Bias(target, made.items(self.batch, 1), made.row_stride if rows > 1 else 0)

    def _bend(self, scores: DeviceTensor, rows: int, bias: Bias, bias_items: np.ndarray | None, count: int) -> None:
        """Keeps the scores of so many items below the cap, and then adds the bias."""
        keys, table = self.problem.k.columns, np.zeros(count, np.int32) if bias_items is None else bias_items.astype(np.int32)
        place = scores if bias.place is None else bias.place
        params = [rows, keys, count, int(bias.place is not None), bias.row, self.cap]
        found = kernel("attention.cap", storage=self.storage)
        self.backend.commands.record(found, [place, self.backend.table(table), scores], params, (keys, rows, count))

    def _record_part(
        self,
        part: slice,
        row: int,
        rows: int,
        q: DeviceTensor,
        k: Right,
        v: Right,
        bias: Bias,
        scores: DeviceTensor | None,
        y: DeviceTensor,
    ) -> None:
        p, backend, keys = self.problem, self.backend, self.problem.k.columns
        q_items = p.q.items(self.batch, 1)[part] + row * p.q.row_stride
        score_items = np.arange(len(q_items)) * rows * keys
        if keys:
            product = Product(
                rows=rows,
                columns=keys,
                depth=p.q.columns,
                a=q,
                a_items=q_items,
                a_row=p.q.row_stride,
                a_step=p.q.column_stride,
                b=k._replace(items=k.items[part]),
                c=scores,
                c_items=score_items,
                c_row=keys,
                alpha=p.scale,
                bias=None if self.cap else bias.place,
                bias_items=None if bias.items is None else bias.items[part],
                bias_row=bias.row,
            )
            record_product(backend, self.storage, product)
            if self.cap:
                self._bend(scores, rows, bias, product.bias_items, len(q_items))
            record_softmax(backend, self.storage, self._score_rows(len(q_items) * rows), scores, scores, blind=p.blind == 0.0)
        product = Product(
            rows=rows,
            columns=p.v.columns,
            depth=keys,
            a=scores if keys else q,
            a_items=score_items,
            a_row=keys,
            a_step=1,
            b=v._replace(items=v.items[part]),
            c=y,
            c_items=p.y.items(self.batch, 1)[part] + row * p.y.row_stride,
            c_row=p.y.row_stride,
        )
        record_product(backend, self.storage, product)


class PackedAttentionExecution(AttentionExecution):
    """q, k and v are parts of one tensor."""

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        x, *mask = inputs
        super().on_resize([x, x, x, *mask], outputs, scratch)


class CachedAttentionExecution(AttentionExecution):
    """Attention to past keys and values and the new ones behind them, which are put together first."""

    def __init__(self, op: Op, backend, inputs: Specs, outputs: Specs):
        super().__init__(op, backend, plain_problem(op, inputs, present=True), inputs)
        self.present = op.infer(*inputs)[1:3]
        wanted = (*outputs, None, None)[1:3]
        # Where there are no keys there is a place for them too: kernels take no missing buffers.
        nbytes = (max(1, backend.stored_bytes(spec, 0)) for spec in self.present)
        self.parts += tuple(0 if given else size for given, size in zip(wanted, nbytes, strict=True))

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        q, *new = inputs[:3]
        past, wanted = (*inputs, None, None, None)[4:6], (*outputs, None, None)[1:3]
        places = [None, None] if self.empty else cut(scratch, self.parts)[4:]
        present = []
        for one, before, spec, place, result in zip(new, past, self.present, places, wanted, strict=True):
            target = place.reshaped(spec) if result is None and place is not None else result
            if target is not None:
                RasterExecution(_together(one.shape, spec), self.backend).on_resize([before, one], [target], None)
            present.append(target)
        super().on_resize([q, *present, *inputs[3:]], outputs, scratch)


def _together(new: tuple[int, ...], present: Spec) -> Raster:
    """Past keys or values and new ones [N, H, L, D] or [N, L, H * D] as the present ones [N, H, past + L, D]."""
    batch, heads, total, size = present.shape
    count = new[1] if len(new) == 3 else new[2]
    past, steps = total - count, (count * heads * size, size, heads * size, 1)
    regions = [
        Region(0, 0, (past * size, 1), 0, (total * size, 1), (batch * heads, past * size)),
        Region(1, 0, steps, past * size, (heads * total * size, total * size, size, 1), (batch, heads, count, size))
        if len(new) == 3
        else Region(1, 0, (count * size, 1), past * size, (total * size, 1), (batch * heads, count * size)),
    ]
    return Raster(present.dtype, present.shape, [region for region in regions if region.count])


@creator(RotaryEmbedding, supports=lambda op, inputs, outputs: one_float_only(op, inputs[:3], outputs))
def create_rotary(op: RotaryEmbedding, backend, inputs: Specs, outputs: Specs) -> Execution:
    return RotaryExecution(op, backend)


class RotaryExecution(GpuExecution):
    """A work item per element."""

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        (x, cos, sin, positions), y = (*inputs, None)[:4], outputs[0]
        if y.spec.size == 0:
            return
        batch, heads, length, size, rotated = self.op.sizes(x.shape)
        if positions is None and len(cos.shape) == 3 and cos.shape[0] < batch:  # all sequences have the same rows
            positions, rows = self.backend.table(np.tile(np.arange(length, dtype=np.int64), batch).view(np.int32)), length
        else:
            rows = cos.shape[0] if positions is not None else 0
        faults, slot = self.backend.commands.fault(f"position_ids must be in 0 … {rows - 1}, not {{}}")
        heads_inside = x.spec.rank == 3
        params = [y.spec.size, *((length, heads) if heads_inside else (heads, length)), int(heads_inside), size, rotated]
        params += [int(self.op.interleaved), rows, slot]
        found = kernel("attention.rotary", storage=self.backend.storage(x.dtype))
        self.backend.commands.record(found, [x, cos, sin, positions or faults, y, faults], params, (y.spec.size,))
