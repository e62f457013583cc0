"""Tensors on the CPU as addresses and arrays, and the argument blocks of kernels."""

from __future__ import annotations

import struct

import numpy as np

from mnnx.backends.blocked import blocked_shape
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.dtypes import STRING


def address_of(tensor: DeviceTensor | np.ndarray) -> int:
    """The address of a tensor's (or array's) first byte."""
    if isinstance(tensor, np.ndarray):
        return tensor.__array_interface__["data"][0]
    return tensor.memory.__array_interface__["data"][0] + tensor.offset


def array_of(tensor: DeviceTensor) -> np.ndarray:
    """The tensor's memory as an array of its dtype and shape; of the blocked shape where it is blocked."""
    if tensor.array is None:
        tensor.array = _array_of(tensor)
    return tensor.array


def _array_of(tensor: DeviceTensor) -> np.ndarray:
    if tensor.dtype == STRING:
        return tensor.memory.reshape(tensor.shape)
    shape = blocked_shape(tensor.shape, tensor.layout) if tensor.layout else tensor.shape
    return np.ndarray(shape, tensor.dtype, buffer=tensor.memory, offset=tensor.offset)


def arguments(*values: int | DeviceTensor | np.ndarray) -> np.ndarray:
    """An argument block: int64 numbers, and addresses of tensors and arrays (which the caller keeps alive)."""
    return np.array([address_of(v) if isinstance(v, (DeviceTensor, np.ndarray)) else int(v) for v in values], np.int64)


def float32_bits(value: float) -> int:
    """What stands in an argument block for a float32: kernels read it with `load_f32`."""
    with np.errstate(over="ignore"):
        return int(np.float32(value).view(np.uint32))


def float64_bits(value: float) -> int:
    """What stands in an argument block for a float64: kernels read it with `load_f64`."""
    return struct.unpack("<q", struct.pack("<d", value))[0]


def aligned(nbytes: int, alignment: int = 64) -> np.ndarray:
    """Fresh zeroed memory, as a uint8 array that begins at a multiple of `alignment`."""
    memory = np.zeros(nbytes + alignment, np.uint8)
    start = -address_of(memory) % alignment
    return memory[start : start + nbytes]


def round_up(number: int, step: int = 64) -> int:
    """To a multiple of `step`; pieces of working memory begin at multiples of 64 bytes."""
    return -(-number // step) * step


def aligned_copy(array: np.ndarray) -> np.ndarray:
    """A contiguous copy that begins at a multiple of 64: vectors of packed weights then lie within cache lines."""
    memory = aligned(array.nbytes).view(array.dtype).reshape(array.shape)
    memory[...] = array
    return memory
