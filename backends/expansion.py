"""Weights that a file stores as float16 or bfloat16, and executions read as float32.

The float32 array is there while somebody holds it: a session that is being planned, an execution that reads it as it is. Packed weights
are found by the half array they came from, so that the float32 one goes where all executions pack it.
"""

from __future__ import annotations

import weakref

import numpy as np

from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.base import Spec

#: Address of a float32 array that is there → what it was expanded from.
_LIVING: dict[int, weakref.ref[Expansion]] = {}


class Expansion:
    """A half array of a model's file, to be read as float32."""

    def __init__(self, half: np.ndarray):
        self.half = half
        self._array: weakref.ref[np.ndarray] | None = None

    def array(self) -> np.ndarray:
        """The float32 array: the one that is there, or a new one."""
        array = None if self._array is None else self._array()
        if array is None:
            array = self.half.astype(np.float32)
            array.flags.writeable = False
            address = array.__array_interface__["data"][0]
            self._array = weakref.ref(array)
            _LIVING[address] = weakref.ref(self)
            weakref.finalize(array, _LIVING.pop, address, None).atexit = False
        return array


def find(array: np.ndarray) -> Expansion | None:
    """What `array`, the whole of it in any shape, was expanded from; None where it is no expansion."""
    known = _LIVING.get(array.__array_interface__["data"][0])
    expansion = None if known is None else known()
    whole = expansion is not None and array.dtype == np.float32 and array.size == expansion.half.size and array.flags.c_contiguous
    return expansion if whole and array.size else None


def origin(array: np.ndarray) -> np.ndarray:
    """The half array, in the shape of `array`, that it was expanded from; the array itself where it is no expansion."""
    expansion = find(array)
    return array if expansion is None else expansion.half.reshape(array.shape)


class ExpandedSpec(Spec):
    """The Spec of an expansion, which doesn't keep the float32 array alive."""

    __slots__ = ("_expansion",)

    def __init__(self, expansion: Expansion):
        self._expansion = expansion
        self.dtype, self.shape = np.dtype(np.float32), expansion.half.shape

    @property
    def value(self) -> np.ndarray:
        return self._expansion.array()


class ExpandedTensor(DeviceTensor):
    """A constant of a host's memory that is expanded when it is asked for, and stays from then on where its memory is."""

    __slots__ = ("_expansion", "_pinned")

    def __init__(self, name: str, spec: Spec, backend, expansion: Expansion):
        self._expansion = expansion
        self._pinned: np.ndarray | None = None
        self.name, self.spec, self.backend, self.offset, self.layout, self.array = name, spec, backend, 0, 0, None

    @property
    def constant(self) -> np.ndarray:
        array = self._expansion.array() if self._pinned is None else self._pinned
        return array.reshape(self.spec.shape)

    @property
    def memory(self) -> np.ndarray:
        if self._pinned is None:
            self._pinned = self._expansion.array()
        return self._pinned.reshape(-1).view(np.uint8)

    def reshaped(self, spec: Spec) -> DeviceTensor:
        return ExpandedTensor(self.name, spec, self.backend, self._expansion)
