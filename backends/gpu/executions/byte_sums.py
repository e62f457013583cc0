"""Records products of bytes in int32, for the executions that are made of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mnnx.backends.gpu.constants import BYTE_ROWS
from mnnx.backends.gpu.device import Memory
from mnnx.backends.gpu.executions.product import column_vectors, in_place, pack_right, strides_of
from mnnx.backends.gpu.kernel import Kernel, kernel
from mnnx.backends.gpu.steps import nested
from mnnx.backends.matrices import Matrices
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.base import Spec

_STORAGES = {np.dtype("int8"): "char", np.dtype("uint8"): "uchar"}


def firsts(a: tuple[int, ...], b: tuple[int, ...], batch: Sequence[int]) -> np.ndarray:
    """The first elements of the matrices a and b of each item of the batch, [items, 2]."""
    return np.stack([Matrices.of(shape).items(tuple(batch), 1) for shape in (a, b)], axis=1)


def zero_or(backend, zero: DeviceTensor | None, matrix: DeviceTensor) -> tuple[DeviceTensor | Memory, int]:
    """A matrix's zero point, 0 where it is None, and the elements from that of a row (or column) to the next one's."""
    return (backend.table(np.zeros(1, matrix.dtype)), 0) if zero is None else (zero, int(zero.spec.size > 1))


def sums_kernel(backend, a: Spec, b: Spec, b_zero: Spec | None) -> Kernel:
    return _kernel(backend, a, b, _would_have_tiles(backend, a, b, b_zero))


def _would_have_tiles(backend, a: Spec, b: Spec, b_zero: Spec | None) -> bool:
    return _has_tiles(backend, a.shape, b.shape, b.value is not None, b_zero is None or b_zero.value is not None)


def steps_of_sums(backend, a: Spec, b: Spec, b_zero: Spec | None) -> int:
    """Of a work item of what `record_sums` records."""
    return nested(a.shape[-1] // (_step(backend) if _would_have_tiles(backend, a, b, b_zero) else 1))


def packed_bytes(backend, b: Spec) -> int:
    """Of a constant b as the kernel reads it."""
    columns = column_vectors(b.shape[-1], backend.block_width) * backend.block_width
    return 0 if b.value is None else math.prod(b.shape[:-1]) * columns


def record_sums(
    backend,
    a: DeviceTensor,
    a_zero: DeviceTensor | None,
    b: DeviceTensor,
    b_zero: DeviceTensor | None,
    y: DeviceTensor,
    shape: tuple[int, ...],
) -> None:
    """y (int32, of that shape, not empty) = (a - a_zero) @ (b - b_zero)."""
    (*batch, rows, columns), depth = shape, a.shape[-1]
    constant = (b.constant is not None, b_zero is None or b_zero.constant is not None)
    tiles = _has_tiles(backend, a.shape, b.shape, *constant)
    found = _kernel(backend, a, b, tiles)
    items, (a_place, a_step) = firsts(a.shape, b.shape, batch), zero_or(backend, a_zero, a)
    if not tiles:
        b_place, b_step = zero_or(backend, b_zero, b)
        buffers = [a, a_place, b, b_place, backend.table(items.astype(np.int32)), y]
        params = [math.prod(shape), rows, columns, depth, a_step, b_step]
        backend.commands.record(found, buffers, params, params[:1])
        return
    block, step, profile = backend.block_width, _step(backend), backend.device.profile
    blocks = column_vectors(columns, block)
    zeros = np.zeros(blocks * block, np.int32)
    zeros[:columns] = 0 if b_zero is None else b_zero.constant.reshape(-1)
    items[:, 0] //= step
    if b.constant is None:
        right, strides = b, (1, columns // block)
        items[:, 1] //= block
    else:
        right, strides = (
            backend.packed("right bytes", b.constant, lambda array: pack_right(backend, array)),
            strides_of(backend, columns, depth),
        )
        items[:, 1] = items[:, 1] // (depth * columns) * blocks * depth
    turned = profile.is_cpu  # as of products of floats
    size = (blocks, -(-rows // BYTE_ROWS), math.prod(batch))
    buffers = [a, a_place, right, backend.table(zeros), backend.table(items.astype(np.int32)), y]
    params = [int(turned), rows, columns, depth, blocks, depth // step, a_step, *strides]
    backend.commands.record(found, buffers, params, (size[1], size[0], size[2]) if turned else size, profile.tile_group)


def _has_tiles(backend, a: tuple[int, ...], b: tuple[int, ...], constant: bool, zero_is_constant: bool) -> bool:
    """Whether a product takes the kernel that makes tiles: of enough rows, with b in vectors of columns."""
    rows, depth = a[-2:]
    if rows < BYTE_ROWS or not depth or depth % _step(backend) or not zero_is_constant:
        return False
    return constant or in_place(backend, Matrices.of(b), 1)


def _kernel(backend, a: Spec | DeviceTensor, b: Spec | DeviceTensor, tiles: bool) -> Kernel:
    a, b = _STORAGES[a.dtype], _STORAGES[b.dtype]
    if tiles:
        return kernel("quantization.tile", a=a, b=b, block=backend.block_width, step=_step(backend))
    return kernel("quantization.product", a=a, b=b, result="int", scale="float")


def _step(backend) -> int:
    """Elements of a vector of a."""
    return 1 if backend.device.profile.is_cpu else 4
