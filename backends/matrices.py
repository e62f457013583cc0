"""Batches of matrices in strided tensors."""

from __future__ import annotations

import math

import numpy as np

from mnnx.schema.records import Row


class Matrices(Row):
    """The matrices of a tensor: the dims of their batch, rows and columns, the strides of all of them and where the first begins, in
    elements."""

    batch: tuple[int, ...]
    batch_strides: tuple[int, ...]
    rows: int
    columns: int
    row_stride: int
    column_stride: int
    start: int = 0

    @classmethod
    def of(cls, shape: tuple[int, ...], perm: tuple[int, ...] = ()) -> Matrices:
        """Those of a dense tensor whose dims are taken in the order of `perm`."""
        strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        dims = [(shape[axis], strides[axis]) for axis in perm or range(len(shape))]
        batch, ((rows, row_stride), (columns, column_stride)) = dims[:-2], dims[-2:]
        return cls(tuple(n for n, _ in batch), tuple(s for _, s in batch), rows, columns, row_stride, column_stride)

    @property
    def transposed(self) -> Matrices:
        """With rows for columns."""
        return self._replace(rows=self.columns, columns=self.rows, row_stride=self.column_stride, column_stride=self.row_stride)

    def grouped(self, count: int) -> Matrices:
        """With the last dim of the batch, which is a multiple of `count` or 1, as two: that many groups, and the members of one."""
        size, stride = self.batch[-1], self.batch_strides[-1]
        groups = count if size > 1 else 1
        members = size // max(1, groups)
        return self._replace(batch=(*self.batch[:-1], groups, members), batch_strides=(*self.batch_strides[:-1], stride * members, stride))

    def part(self, first: int, count: int) -> Matrices:
        """So many of them along the last dim of the batch, from `first` on."""
        return self._replace(batch=(*self.batch[:-1], count), start=self.start + first * self.batch_strides[-1])

    def items(self, batch: tuple[int, ...], itemsize: int = 4) -> np.ndarray:
        """The byte offset of each matrix of a batch to which this one broadcasts."""
        return (self.start + _spread(self.batch, self.batch_strides, batch)) * itemsize


def _spread(dims: tuple[int, ...], strides: tuple[int, ...], batch: tuple[int, ...]) -> np.ndarray:
    """Where each item of a broadcast batch lies, by the strides of the dims."""
    offsets = np.zeros(dims, np.int64)
    for axis, (count, stride) in enumerate(zip(dims, strides, strict=True)):
        offsets += (np.arange(count) * stride).reshape(-1, *(1,) * (len(dims) - axis - 1))
    return np.broadcast_to(offsets, batch).reshape(-1)
