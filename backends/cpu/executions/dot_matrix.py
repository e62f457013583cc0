"""Products of matrices of bytes, summed in int32 and finished: the plan of MatMulInteger, QLinearMatMul and what is fused of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mnnx.backends.cpu.arguments import address_of, arguments, round_up
from mnnx.backends.cpu.executions.dot import Weights, Zero, negated_zeros
from mnnx.backends.cpu.kernel import kernel
from mnnx.backends.cpu.kernels.dot_words import DotPack, DotProduct, DotRows
from mnnx.backends.cpu.tiling import Tiling
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.base import Spec
from mnnx.schema.records import Row

_FLOAT32, _INT32 = np.dtype("float32"), np.dtype("int32")
_ONE = np.ones(1, _FLOAT32)


class Finish(Row):
    """What becomes of the sums, as kernels/dot_finish.py has it; factors and addends are scalars or one per column, `multiplier` is the
    address of a computed factor of all (0: none)."""

    target: np.dtype
    rounds: bool = False
    kind: str = ""
    factors: np.ndarray = _ONE
    addends: np.ndarray = np.zeros(1, _FLOAT32)
    multiplier: int = 0
    low: float = 0.0
    high: float = 0.0
    scale: float = 1.0
    out_scale: float = 1.0
    out_zero: float = 0.0
    parameters: tuple[float, float] = (0.0, 0.0)

    @property
    def constants(self) -> np.ndarray:
        return np.array([self.low, self.high, self.scale, self.out_scale, self.out_zero, *self.parameters], _FLOAT32)


class MatrixProduct:
    """a [..., rows, depth] times b [..., depth, columns], both bytes; a constant b is packed once, a computed one at every run."""

    def __init__(self, backend, a: Spec, b: Spec, b_zero: np.ndarray | None):
        self.backend, self.tiling = backend, Tiling.of(backend.target)
        tiling = self.tiling
        a_shape = a.shape if a.rank > 1 else (1, *a.shape)
        self.rows, self.depth = a_shape[-2:]
        self.a_batch, self.b_batch = a_shape[:-2], b.shape[:-2]
        if math.prod(self.b_batch) == 1:  # one b for all: the batch of a is more rows
            self.rows *= math.prod(self.a_batch)
            self.a_batch = self.b_batch = ()
        self.columns, self.words = b.shape[-1], tiling.words(self.depth)
        self.panels = -(-self.columns // tiling.columns)
        self.width, self.b_items = self.panels * tiling.columns, math.prod(self.b_batch)
        self.constant = b.value is not None
        factors = negated_zeros(tiling, b.dtype, b_zero, self.columns)
        self.column_factors = self._per_column(factors, _INT32) if factors.any() else None
        self.in_place = self.column_factors is None and tiling.element_size == 1 and not tiling.flip(a.dtype) and self.depth % 4 == 0
        self.row_bytes = self.depth if self.in_place else 4 * (-(-self.words // 4) * 4)
        self.a_rows = math.prod(self.a_batch) * self.rows
        self.panel_bytes = 4 * self.words * tiling.columns
        self.rows_bytes, self.row_sums_bytes = (
            (0, 0) if self.in_place else (round_up(self.a_rows * self.row_bytes), round_up(4 * self.a_rows))
        )
        packed = not self.constant
        self.panels_bytes = round_up(self.b_items * self.panels * self.panel_bytes) if packed else 0
        self.sums_bytes = 4 * self.b_items * self.width if packed else 0

    @property
    def scratch_bytes(self) -> int:
        return self.rows_bytes + self.row_sums_bytes + self.panels_bytes + self.sums_bytes

    def _per_column(self, values: np.ndarray, dtype: np.dtype) -> np.ndarray:
        """One value per column, up to whole panels."""
        padded = np.zeros(self.width, dtype)
        padded[: self.columns] = values.reshape(-1)
        return padded

    def pack(self, b: np.ndarray) -> Weights:
        tiling = self.tiling
        b = b.reshape(self.b_items, self.depth, self.columns)
        words = tiling.signed_words(np.ascontiguousarray(np.swapaxes(b, -1, -2)))
        sums = np.zeros((self.b_items, self.width), _INT32)
        sums[:, : self.columns] = (b.astype(_INT32) + tiling.signed_zero(np.zeros(1, b.dtype))).sum(1)
        return Weights(tiling.pack_columns(np.ascontiguousarray(np.swapaxes(words, -1, -2))), sums, None)

    def record(
        self,
        a: int,
        zero: Zero,
        b: DeviceTensor,
        c: DeviceTensor,
        scratch: int,
        finish: Finish,
        bias: np.ndarray | None,
    ) -> None:
        """Records the units; `a` and `scratch` are addresses, `bias` int32 per column."""
        if b.constant is None:
            panels = scratch + self.rows_bytes + self.row_sums_bytes
            sums, keep = panels + self.panels_bytes, None
            self._record_packing(b, panels, sums)
        else:
            keep = Weights(*self.backend.packed(("dot product", self.tiling.dot, self.tiling.columns), b.constant, self.pack))
            panels, sums = address_of(keep.panels), address_of(keep.sums)
        self.record_packed(a, zero, panels, sums, address_of(c), scratch, finish, bias, keep)

    def record_packed(
        self, a: int, zero: Zero, panels: int, sums: int, c: int, scratch: int, finish: Finish, bias: np.ndarray | None, keep: Any
    ) -> None:  # fmt: skip
        """The same for a packed b, whose panels and columns' sums `keep` keeps; a, panels, sums, c and scratch are addresses."""
        signed, flip = zero.dtype == np.int8, self.tiling.flip(zero.dtype)
        rows, row_sums = a, 0
        if not self.in_place:
            rows, row_sums = scratch, scratch + self.rows_bytes
            block = DotRows(a, rows, row_sums, self.a_rows, self.depth, self.row_bytes, signed, flip)
            chunks = min(self.a_rows, self.backend.chunks(self.a_rows * self.words / 4))
            self.backend.commands.record(kernel("dot.rows", lanes=self.tiling.lanes, mode=self.tiling.dot), arguments(*block), chunks)
        self._record_product(zero, signed, flip, rows, row_sums, panels, sums, c, finish, bias, keep)

    def _record_packing(self, b: DeviceTensor, panels: int, sums: int) -> None:
        tiling, unsigned = self.tiling, b.dtype == np.uint8
        block = DotPack(
            address_of(b), panels, self.panel_bytes, sums, self.depth, self.columns, self.words, self.b_items, not unsigned,
            unsigned and tiling.dot_group == 4,
        )  # fmt: skip
        chunks = min(self.b_items * self.panels, self.backend.chunks(self.b_items * self.panels * tiling.vectors * self.words))
        pack = kernel("dot_matrix.pack", vectors=tiling.vectors, lanes=tiling.lanes, mode=tiling.dot)
        self.backend.commands.record(pack, arguments(*block), chunks)

    def _record_product(
        self, zero: Zero, signed: bool, flip: bool, rows: int, row_sums: int, panels: int, column_sums: int, c: int,
        finish: Finish, bias: np.ndarray | None, weights: Any,
    ) -> None:  # fmt: skip
        backend, tiling = self.backend, self.tiling
        batch = np.broadcast_shapes(self.a_batch, self.b_batch)
        numbers = (np.broadcast_to(np.arange(math.prod(own)).reshape(own), batch).reshape(-1) for own in (self.a_batch, self.b_batch))
        items = np.ascontiguousarray(np.stack([*numbers], axis=1), np.int64)
        wanted = backend.chunks(len(items) * self.rows * self.panels * tiling.vectors * self.words)
        panel_chunks = min(self.panels, wanted)
        row_chunks = min(-(-self.rows // tiling.rows), -(-wanted // (panel_chunks * len(items))))
        factors, addends = (self._per_column(values, _FLOAT32) for values in (finish.factors, finish.addends))
        biases = None if bias is None else self._per_column(bias, _INT32)
        constants = finish.constants
        block = DotProduct(
            a=rows,
            a_stride=self.row_bytes,
            b=panels,
            panel_bytes=self.panel_bytes,
            column_sums=column_sums,
            column_factors=0 if self.column_factors is None else address_of(self.column_factors),
            row_sums=row_sums,
            bias=0 if biases is None else address_of(biases),
            zero=zero.address,
            signed=signed,
            flip=flip,
            c=c,
            c_stride=self.columns * finish.target.itemsize,
            rows=self.rows,
            columns=self.columns,
            depth=self.depth,
            words=self.words,
            batch=len(items),
            items=address_of(items),
            row_chunks=row_chunks,
            panel_chunks=panel_chunks,
            factors=address_of(factors),
            addends=address_of(addends),
            multiplier=finish.multiplier or address_of(_ONE),
            constants=address_of(constants),
        )
        ending = {"target": finish.target.name, "rounds": finish.rounds, "kind": finish.kind}
        product = kernel("dot_matrix.product", fma=tiling.fma, **ending, **tiling.dot_parameters)
        keep = (weights, self.column_factors, items, factors, addends, biases, constants)
        backend.commands.record(product, arguments(*block), min(wanted, len(items) * row_chunks * panel_chunks), keep)
