"""Attention and rotary position embeddings of float32.

Attention goes over the keys in one pass: the scores of a block of queries stay in the cache and are never stored as a whole.
"""

from __future__ import annotations

import math

import numpy as np

from mnnx.backends.attention import Problem, fused_problem, packed_problem, plain_problem
from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.cpu.arguments import address_of, arguments, float32_bits, round_up
from mnnx.backends.cpu.creators import creator
from mnnx.backends.cpu.kernel import kernel
from mnnx.backends.cpu.kernels.attention_words import AttentionRows, slot_parts
from mnnx.backends.cpu.kernels.blocks import Pack
from mnnx.backends.cpu.tiling import Tiling
from mnnx.backends.matrices import Matrices
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.attention import Attention, FusedAttention, PackedAttention, RotaryEmbedding
from mnnx.schema.ops.base import Op

_FLOAT32, _BOOL = np.dtype("float32"), np.dtype(bool)
#: Queries that go through the keys together, and keys at a time, at most: more of them gain nothing where caches are larger.
_BLOCK_ROWS, _BLOCK_KEYS = 32, 384
#: More keys than this have v packed: rows that lie far apart push each other out of the L1 cache.
_KEYS_IN_PLACE = 256
#: So few queries are not padded to a whole tile.
_SINGLE_ROWS = 2


def _reason_against_fused(op: FusedAttention, inputs: Specs, outputs: Specs) -> str | None:
    if inputs[0].dtype != _FLOAT32:
        return "only float32 is native"
    p = fused_problem(op, inputs, outputs)
    if p.mask is not None and (p.mask.columns != p.k.columns or p.mask.rows not in (1, p.q.rows)):
        return "the mask must have a number for each key"
    rows_dense = all(m.column_stride == 1 or m.columns == 1 for m in (p.q, p.v, p.y))
    return None if rows_dense and 1 in (p.k.row_stride, p.k.column_stride) else "rows of q, k, v and y must be dense"


@creator(FusedAttention, supports=_reason_against_fused)
def create_fused(op: FusedAttention, backend, inputs: Specs, outputs: Specs) -> Execution:
    return AttentionExecution(op, backend, fused_problem(op, inputs, outputs))


def _reason_against_plain(op: Attention, inputs: Specs, outputs: Specs) -> str | None:
    if any(spec.dtype != _FLOAT32 for spec in inputs[:3]):
        return "only float32 is native"
    if any(spec is not None for spec in (*inputs[4:], *outputs[1:])):
        return "with past keys, lengths or further results it isn't native"
    if op.softcap > 0 or op.softmax_precision not in (None, _FLOAT32):
        return "softcap and softmax_precision aren't native"
    mask, keys = inputs[3] if len(inputs) > 3 else None, inputs[1].shape[-2] if inputs[1].rank == 4 else inputs[1].shape[1]
    if mask is not None and (mask.dtype not in (_FLOAT32, _BOOL) or mask.shape[-1] != keys):
        return "the mask must be float32 or bool, with a number for each key"
    return None


@creator(Attention, supports=_reason_against_plain)
def create(op: Attention, backend, inputs: Specs, outputs: Specs) -> Execution:
    return AttentionExecution(op, backend, plain_problem(op, inputs))


def _reason_against_packed(op: PackedAttention, inputs: Specs, outputs: Specs) -> str | None:
    foreign = inputs[0].dtype != _FLOAT32 or any(spec is not None and spec.dtype not in (_FLOAT32, _BOOL) for spec in inputs[1:])
    return "only float32 is native" if foreign else None


@creator(PackedAttention, supports=_reason_against_packed)
def create_packed(op: PackedAttention, backend, inputs: Specs, outputs: Specs) -> Execution:
    return PackedAttentionExecution(op, backend, packed_problem(op, inputs, outputs))


class AttentionExecution(Execution):
    """Packs k (times the scale) and v in panels, then blocks of queries go through them."""

    def __init__(self, op: Op, backend, problem: Problem):
        super().__init__(op, backend)
        self.problem, self.tiling = problem, Tiling.of(backend.target)
        p, columns = problem, self.tiling.columns
        batches = [m.batch for m in (p.q, p.k, p.v, p.mask) if m is not None]
        self.batch = np.broadcast_shapes(*batches)
        self.empty = 0 in (*self.batch, p.q.rows, p.v.columns)
        self.k_bytes, self.v_bytes = (4 * m.rows * round_up(m.columns, columns) for m in (p.k, p.v))  # of an item's panels
        #: Whole vectors of v's rows are read where they lie, unless they are many and read often.
        rare = p.v.rows <= _KEYS_IN_PLACE or p.q.rows <= self.tiling.rows
        self.v_in_place = rare and (p.v.column_stride == 1 or p.v.columns == 1) and p.v.columns % self.tiling.lanes == 0
        self._divide()

    def _divide(self) -> None:
        """Into blocks of queries and of keys: a block's scores and its keys and values fit half of the L2 cache."""
        p, tiling, backend = self.problem, self.tiling, self.backend
        queries, keys, items = max(1, p.q.rows), max(1, p.k.columns), math.prod(self.batch)
        work = items * queries * keys * (p.q.columns + p.v.columns) / tiling.lanes
        self.chunks = backend.chunks(work)
        per_item = -(-self.chunks // max(1, items))
        rows = min(_BLOCK_ROWS, round_up(-(-queries // per_item), tiling.rows))
        self.block_rows = queries if queries <= _SINGLE_ROWS else rows
        half = backend.target.caches[1] // 2
        most = half // (4 * (self.block_rows + p.q.columns + p.v.columns)) // tiling.columns * tiling.columns
        most = max(4 * tiling.columns, min(most, _BLOCK_KEYS // tiling.columns * tiling.columns))
        self.block_keys = min(round_up(keys, tiling.columns), most)
        parts = slot_parts(self.block_rows, self.block_keys, p.q.columns, round_up(p.v.columns, tiling.columns))
        self.slot_bytes = round_up(sum(parts))

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        if self.empty:
            return 0
        return sum(self._packed_bytes()) + self.backend.threads * self.slot_bytes

    def _packed_bytes(self) -> tuple[int, int]:
        p = self.problem
        v_items = 0 if self.v_in_place else math.prod(p.v.batch)
        return round_up(math.prod(p.k.batch) * self.k_bytes), round_up(v_items * self.v_bytes)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        if self.empty:
            return
        p, tiling, backend = self.problem, self.tiling, self.backend
        mask = inputs[3] if p.mask is not None else None
        k = address_of(scratch)
        k_bytes, v_bytes = self._packed_bytes()
        self._pack(address_of(inputs[1]), p.k, k)
        v, v_stride, v_panel = self._values(address_of(inputs[2]), k + k_bytes)
        mask_bytes = 0 if mask is None else mask.dtype.itemsize
        items = self._items(mask_bytes)
        flags, zeros = np.zeros(backend.threads, np.int64), np.zeros(tiling.columns, _FLOAT32)
        block = AttentionRows(
            q=address_of(inputs[0]),
            q_stride=4 * p.q.row_stride,
            k=k,
            v=v,
            v_stride=v_stride,
            v_panel=v_panel,
            mask=0 if mask is None else address_of(mask),
            mask_stride=0 if mask is None or p.mask.rows == 1 else mask_bytes * p.mask.row_stride,
            mask_bytes=mask_bytes,
            y=address_of(outputs[0]),
            y_stride=4 * p.y.row_stride,
            items=address_of(items),
            batch=len(items),
            queries=p.q.rows,
            keys=p.k.columns,
            head=p.q.columns,
            v_head=p.v.columns,
            first=p.first,
            last=p.last,
            block_rows=self.block_rows,
            block_keys=self.block_keys,
            factor=float32_bits(p.scale),
            blind=float32_bits(p.blind),
            zeros=address_of(zeros),
            flags=address_of(flags),
            slots=backend.threads,
            memory=k + k_bytes + v_bytes,
            slot_bytes=self.slot_bytes,
        )
        tasks = len(items) * -(-p.q.rows // self.block_rows)
        keep = (items, flags, zeros)
        backend.commands.record(kernel("attention.rows", **tiling.parameters), arguments(*block), min(tasks, self.chunks), keep)

    def _values(self, source: int, target: int) -> tuple[int, int, int]:
        """Where the kernel reads v, which is packed into `target` where it can't be read as it lies; bytes from row to row and from panel
        to panel."""
        v, columns = self.problem.v, self.tiling.columns
        if self.v_in_place:
            return source, 4 * v.row_stride, 4 * columns
        self._pack(source, v, target)
        return target, 4 * columns, 4 * columns * v.rows

    def _items(self, mask_bytes: int) -> np.ndarray:
        """The byte offsets of each item of the batch in q, k, v, the mask and y, [items, 5]."""
        p, batch = self.problem, self.batch
        items = np.zeros((math.prod(batch), 5), np.int64)
        items[:, 0] = p.q.items(batch)
        items[:, 1] = _packed_items(p.k.batch, batch, self.k_bytes)
        items[:, 2] = p.v.items(batch) if self.v_in_place else _packed_items(p.v.batch, batch, self.v_bytes)
        if mask_bytes:
            items[:, 3] = p.mask.items(batch, mask_bytes)
        items[:, 4] = p.y.items(batch)
        return items

    def _pack(self, source: int, matrices: Matrices, target: int) -> None:
        """Records how the panels of a right operand are made."""
        m, tiling, count = matrices, self.tiling, math.prod(matrices.batch)
        panels = -(-m.columns // tiling.columns)
        if not m.rows or not panels:
            return
        items = m.items(m.batch)
        dense = m.column_stride == 1 or m.columns == 1
        block = Pack(
            b=source,
            depth_stride=4 * m.row_stride,
            column_stride=4 if dense else 4 * m.column_stride,
            panels=target,
            depth=m.rows,
            columns=m.columns,
            batch=count,
            items=address_of(items),
            factor=float32_bits(1.0),
        )
        chunks = min(count * panels, self.backend.chunks(count * m.rows * m.columns / 4))
        self.backend.commands.record(kernel("gemm.pack", vectors=tiling.vectors, lanes=tiling.lanes), arguments(*block), chunks, items)


class PackedAttentionExecution(AttentionExecution):
    """q, k and v are parts of one tensor."""

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        x, *mask = inputs
        super().on_resize([x, x, x, *mask], outputs, scratch)


def _packed_items(dims: tuple[int, ...], batch: tuple[int, ...], nbytes: int) -> np.ndarray:
    """The byte offsets of packed matrices that lie one after another."""
    return np.broadcast_to(np.arange(math.prod(dims)).reshape(dims), batch).reshape(-1) * nbytes


def _reason_against_rotary(op: RotaryEmbedding, inputs: Specs, outputs: Specs) -> str | None:
    return None if all(spec.dtype == _FLOAT32 for spec in inputs[:3]) else "only float32 is native"


@creator(RotaryEmbedding, supports=_reason_against_rotary)
def create_rotary(op: RotaryEmbedding, backend, inputs: Specs, outputs: Specs) -> Execution:
    return RotaryExecution(op, backend)


class RotaryExecution(Execution):
    """Heads of one position one by one; a position that cos and sin don't have ends the run with an InputError."""

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        (x, cos, sin, positions), y = (*inputs, None)[:4], outputs[0]
        if y.spec.size == 0:
            return
        batch, heads, length, size, rotated = self.op.sizes(x.shape)
        heads_inside = x.spec.rank == 3
        dims = (length, heads) if heads_inside else (heads, length)
        rows = math.prod(cos.shape[:-1])
        fault = self.backend.commands.fault(f"position_ids must be in 0 … {rows - 1}, not {{}}") if positions is not None else (0, 0)
        block = arguments(
            *(x, y, cos, sin, 0 if positions is None else positions),
            *(batch * heads * length, *dims, int(heads_inside), size, rotated, rows, *fault),
        )
        self.backend.commands.record(kernel("rotary", interleaved=self.op.interleaved), block, self.backend.chunks(y.spec.size / 2))
