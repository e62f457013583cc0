"""Records products of matrices, for the executions that are made of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mnnx.backends.gpu.constants import SPLIT_DEPTH
from mnnx.backends.gpu.device import Memory
from mnnx.backends.gpu.epilogue import activation_params
from mnnx.backends.gpu.kernel import Kernel, kernel
from mnnx.backends.matrices import Matrices
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.records import Row

#: Up to so many rows, and from so much depth on, GPUs share the depth among work items.
_SPLIT_ROWS, _SPLIT_FROM = 4, 64
#: Fewer work groups than this leave a GPU idle: smaller tiles make more.
_FEW_GROUPS = 32
#: On CPUs, a computed right operand of more columns is packed for so many rows and more: rows that lie far apart are slow to read.
_COLUMNS_IN_PLACE, _ROWS_WORTH_PACKING = 256, 16

Place = DeviceTensor | Memory


class Right(Row):
    """A right operand in vectors of columns: the steps between vectors from column to column and along the depth, and where items begin,
    all in vectors."""

    place: Place
    items: np.ndarray
    block: int
    step: int


class Product(Row):
    """c = activation(alpha * a b + beta * bias + residual) for every item; c's rows are dense, and the residual lies as c does.

    a_row, a_step: elements from row to row of a, and along the depth; c_row likewise; bias_row and bias_column are 0 where it is
    broadcast. *_items: where the matrices of each item begin, in elements.
    """

    rows: int
    columns: int
    depth: int
    a: Place
    a_items: np.ndarray
    a_row: int
    a_step: int
    b: Right
    c: Place
    c_items: np.ndarray
    c_row: int
    alpha: float = 1.0
    bias: Place | None = None
    bias_items: np.ndarray | None = None
    bias_row: int = 0
    bias_column: int = 1
    beta: float = 1.0
    residual: Place | None = None
    activation: str = ""
    activation_parameters: tuple[float, ...] = ()


def column_vectors(columns: int, block: int) -> int:
    return -(-columns // block)


def strides_of(backend, columns: int, depth: int) -> tuple[int, int]:
    """Vectors from column to column and along the depth in what is packed: work items of a GPU read neighbours, a CPU goes along."""
    return (depth, 1) if backend.device.profile.is_cpu else (1, column_vectors(columns, backend.block_width))


def pack_right(backend, b: np.ndarray) -> np.ndarray:
    """[…, K, N] as vectors of columns, zeros past the last one, in the order of `strides_of`."""
    block, (*batch, depth, columns) = backend.block_width, b.shape
    count = column_vectors(columns, block)
    padded = np.zeros((*batch, depth, count * block), b.dtype)
    padded[..., :columns] = b
    vectors = padded.reshape(*batch, depth, count, block)
    return np.ascontiguousarray(np.moveaxis(vectors, -2, -3)) if backend.device.profile.is_cpu else vectors


def in_place(backend, b: Matrices, rows: int) -> bool:
    """Whether a computed right operand is read where it lies, for so many rows of a."""
    block = backend.block_width
    steps = (b.columns, b.row_stride, b.start, *b.batch_strides)
    if b.column_stride != 1 or any(step % block for step in steps):
        return False
    return not backend.device.profile.is_cpu or rows < _ROWS_WORTH_PACKING or b.columns <= _COLUMNS_IN_PLACE


def packed_bytes(backend, b: Matrices, itemsize: int) -> int:
    """What `record_pack` needs, elements being stored in so many bytes."""
    block = backend.block_width
    return math.prod(b.batch) * column_vectors(b.columns, block) * b.rows * block * itemsize


def record_pack(backend, source: DeviceTensor, b: Matrices, target: DeviceTensor) -> tuple[int, int]:
    """Packs a computed right operand; returns its strides in vectors."""
    block, storage = backend.block_width, backend.storage(source.dtype)
    vectors, steps = column_vectors(b.columns, block), strides_of(backend, b.columns, b.rows)
    items = backend.table(b.items(b.batch, 1).astype(np.int32))
    params = [vectors, b.rows, b.columns, b.row_stride, b.column_stride, *steps]
    size = (vectors, b.rows, math.prod(b.batch))
    if math.prod(size):
        backend.commands.record(kernel("product.pack", storage=storage, block=block), [source, items, target], params, size)
    return steps


def right_of(backend, b: Matrices, source: DeviceTensor, target: DeviceTensor | None, batch: tuple[int, ...]) -> Right:
    """A computed right operand for the items of a batch: where it lies (target None), else packed there."""
    block = backend.block_width
    if target is None:
        return Right(source, b.items(batch, 1) // block, 1, b.row_stride // block)
    return Right(target, packed_items(backend, b, batch), *record_pack(backend, source, b, target))


def packed_items(backend, b: Matrices, batch: tuple[int, ...]) -> np.ndarray:
    """Where the items of a batch begin in a packed right operand, in vectors."""
    size = column_vectors(b.columns, backend.block_width) * b.rows
    return np.broadcast_to(np.arange(math.prod(b.batch)).reshape(b.batch), batch).reshape(-1) * size


def record_product(backend, storage: str, p: Product) -> None:
    """Nothing of c may be empty; the depth may be 0, and where it is more than one work item may go through, its parts are added to c."""
    most = backend.most_steps // SPLIT_DEPTH * SPLIT_DEPTH
    for first in range(0, max(p.depth, 1), most):
        part = p._replace(depth=min(p.depth - first, most))
        if first:
            part = part._replace(a_items=p.a_items + first * p.a_step, b=p.b._replace(items=p.b.items + first * p.b.step))
            part = part._replace(bias=None, bias_items=None, bias_row=0, bias_column=1, residual=p.c)
        _record(backend, storage, part if first + most >= p.depth else part._replace(activation="", activation_parameters=()))


def _record(backend, storage: str, p: Product) -> None:
    block, profile = backend.block_width, backend.device.profile
    count, blocks = len(p.c_items), column_vectors(p.columns, block)
    zeros = np.zeros(count, np.int64)
    bias_items = zeros if p.bias_items is None else p.bias_items
    whole = _divide(block, p.columns, p.c_row, p.c_items) and p.bias_column == 1 and _divide(block, p.bias_row, bias_items)
    steps = _divide(4, p.depth, p.a_row, p.a_items) and p.a_step == 1 and not profile.is_cpu
    split = not profile.is_cpu and p.rows <= _SPLIT_ROWS and p.depth >= _SPLIT_FROM
    step, width = 4 if steps and not split else 1, block if whole else 1
    table = np.stack([p.a_items // step, p.b.items, p.c_items // width, bias_items // width], axis=1)
    buffers = [
        p.a,
        p.b.place,
        p.a if p.bias is None else p.bias,
        p.a if p.residual is None else p.residual,
        backend.table(table.astype(np.int32)),
        p.c,
    ]
    params = [p.rows, p.columns, p.depth, blocks, 0, p.a_row // step, p.a_step, p.b.block, p.b.step, p.c_row // width]
    params += [int(p.bias is not None), p.bias_row // width, p.bias_column, int(p.residual is not None), p.alpha, p.beta]
    params += activation_params(p.activation, p.activation_parameters)
    if split:
        found = kernel("product.split", storage=storage, block=block, whole=whole)
        backend.commands.record(found, buffers, params, (blocks, SPLIT_DEPTH, count * p.rows))
        return
    rows, vectors = _tile(profile, p.rows, blocks * count)
    tiles = (-(-blocks // vectors), -(-p.rows // rows))
    found = kernel("product.tile", storage=storage, rows=rows, vectors=vectors, block=block, whole=whole, step=step)
    turned = profile.is_cpu  # one work item after the other goes through the rows, so that b stays in the cache
    size = (*(tiles[::-1] if turned else tiles), count)
    backend.commands.record(found, buffers, [int(turned), *params], size, profile.tile_group)


def _divide(step: int, *values: int | np.ndarray) -> bool:
    return all(not np.any(value % step) for value in values)


def _tile(profile, rows: int, columns: int) -> tuple[int, int]:
    """Rows and vectors of a tile, for so many rows and vectors of columns in all."""
    if rows == 1:
        return 1, 1
    if rows <= 4:
        return 4, 1
    most, vectors = profile.rows, profile.vectors
    few = not profile.is_cpu and -(-rows // most) * columns // vectors < _FEW_GROUPS * profile.group
    return (4, 1) if few or most == 4 else (most, vectors)


def product_kernels(backend, storage: str) -> Sequence[Kernel]:
    """Those that a product may need where kernels are compiled ahead of time: if one exists, all do."""
    return [kernel("product.pack", storage=storage, block=backend.block_width)]
