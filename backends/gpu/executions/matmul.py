"""Products of matrices of floats: MatMul, Gemm and FusedMatMul."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.gpu.creators import creator
from mnnx.backends.gpu.execution import GpuExecution
from mnnx.backends.gpu.executions.product import (
    Product,
    Right,
    in_place,
    pack_right,
    packed_bytes,
    packed_items,
    product_kernels,
    record_product,
    right_of,
    strides_of,
)
from mnnx.backends.gpu.floats import floats_only
from mnnx.backends.gpu.kernel import Kernel
from mnnx.backends.matrices import Matrices
from mnnx.backends.products import Operands, operands_of
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.base import Op
from mnnx.schema.ops.matmul import Gemm, MatMul


@creator(MatMul, Gemm, supports=floats_only)
def create(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return ProductExecution(op, backend, operands_of(op, inputs), inputs, outputs)


class ProductExecution(GpuExecution):
    """c = activation(alpha * a' b' + beta * bias + residual); a constant b is packed once, a computed one at every run."""

    def __init__(self, op: Op, backend, operands: Operands, inputs: Specs, outputs: Specs):
        super().__init__(op, backend)
        self.operands = operands
        self.in_place = () if operands.residual is None else (operands.residual,)
        a, b = inputs[0].shape, inputs[1].shape
        self.a = _matrices(a if len(a) > 1 else (1, *a), operands.transpose_a)
        self.b = _matrices(b if len(b) > 1 else (*b, 1), operands.transpose_b)
        if math.prod(self.b.batch) == 1 and not operands.transpose_a:  # one b for all: the batch of a is more rows
            self.a = Matrices.of((math.prod(self.a.batch) * self.a.rows, self.a.columns))
            self.b = self.b._replace(batch=(), batch_strides=())
        self.batch = np.broadcast_shapes(self.a.batch, self.b.batch)
        self.storage = backend.storage(inputs[0].dtype)
        constant = inputs[1].value is not None
        self.packed_inputs = (1,) if constant else ()
        self.packs = not constant and not in_place(backend, self.b, self.a.rows)
        self.itemsize = backend.stored(inputs[1].dtype.itemsize, inputs[1].dtype)

    def kernels(self, inputs: Specs, outputs: Specs) -> Sequence[Kernel]:
        return product_kernels(self.backend, self.storage)

    def _parts(self) -> list[tuple[int, int]]:
        """The first and the last + 1 of the columns that are computed together: all, unless a constant b is larger than an argument."""
        columns, block = self.b.columns, self.backend.block_width
        vector = packed_bytes(self.backend, self.b._replace(columns=1), self.itemsize)
        most = max(1, self.backend.device.largest // max(1, vector)) * block if self.packed_inputs else columns
        return [(first, min(first + most, columns)) for first in range(0, columns, most)]

    def largest_piece(self, inputs: Specs, outputs: Specs) -> int:
        if not outputs[0].size or not (self.packs or self.packed_inputs):
            return 0
        first, last = self._parts()[0]
        return packed_bytes(self.backend, self.b._replace(columns=last - first), self.itemsize)

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        return packed_bytes(self.backend, self.b, self.itemsize) if self.packs and outputs[0].size else 0

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        if outputs[0].spec.size == 0:
            return
        operands, a = self.operands, self.a
        c = Matrices.of((*self.batch, a.rows, self.b.columns))
        bias, bias_row, bias_column = self._bias(inputs)
        for first, last in self._parts():
            product = Product(
                rows=a.rows,
                columns=last - first,
                depth=a.columns,
                a=inputs[0],
                a_items=a.items(self.batch, 1),
                a_row=a.row_stride,
                a_step=a.column_stride,
                b=self._right(inputs[1], scratch, first, last),
                c=outputs[0],
                c_items=c.items(self.batch, 1) + first,
                c_row=c.row_stride,
                alpha=operands.alpha,
                bias=bias,
                bias_items=np.full(math.prod(self.batch), first * bias_column),
                bias_row=bias_row,
                bias_column=bias_column,
                beta=operands.beta,
                residual=None if operands.residual is None else inputs[operands.residual],
                activation=operands.activation,
                activation_parameters=operands.activation_parameters,
            )
            record_product(self.backend, self.storage, product)

    def _right(self, b: DeviceTensor, scratch: DeviceTensor | None, first: int, last: int) -> Right:
        backend = self.backend
        if b.constant is None:
            return right_of(backend, self.b, b, scratch, self.batch)
        part, transposed = self.b._replace(columns=last - first), self.operands.transpose_b
        pack = functools.partial(_packed, backend=backend, transposed=transposed, columns=slice(first, last))
        memory = backend.packed(("right", transposed, first, last), b.constant, pack)
        return Right(memory, packed_items(backend, part, self.batch), *strides_of(backend, part.columns, part.rows))

    def _bias(self, inputs: Tensors):
        """The bias with its elements from row to row and from column to column."""
        operands, columns = self.operands, self.b.columns
        bias = None if operands.bias is None else inputs[operands.bias]
        if bias is None:
            return None, 0, 1
        shape = (1,) * (2 - len(bias.shape)) + bias.shape
        if bias.constant is None:
            row = shape[1] if shape[0] > 1 else 0
            return bias, row, int(shape[1] > 1 or columns == 1)
        width = columns if shape[0] > 1 else -(-columns // self.backend.block_width) * self.backend.block_width
        pack = functools.partial(_spread, shape=shape, columns=columns, width=width)
        return self.backend.packed(("bias", columns, width), bias.constant, pack), width if shape[0] > 1 else 0, 1


def _matrices(shape: tuple[int, ...], transposed: bool) -> Matrices:
    perm = tuple(range(len(shape)))
    return Matrices.of(shape, (*perm[:-2], perm[-1], perm[-2]) if transposed else perm)


def _packed(b: np.ndarray, backend, transposed: bool, columns: slice) -> np.ndarray:
    b = b.reshape(-1, 1) if b.ndim == 1 else b
    return pack_right(backend, (np.swapaxes(b, -1, -2) if transposed else b)[..., columns])


def _spread(bias: np.ndarray, shape: tuple[int, ...], columns: int, width: int) -> np.ndarray:
    """[1 or M, columns], each row with zeros up to `width`."""
    padded = np.zeros((shape[0], width), bias.dtype)
    padded[:, :columns] = bias.reshape(shape)
    return padded
