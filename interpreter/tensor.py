"""The Tensor that scripts hold: a session's inputs and outputs, and host tensors in PyMNN's way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mnnx.errors import InputError, SessionStateError
from mnnx.schema import dtypes
from mnnx.schema.model import Dim, Value


class Tensor:
    """A named tensor with host data. `shape` has -1 where a dim is still open; `dims` has the model's own dims, names included."""

    def __init__(self, value: Value, read: Callable[[], Any] | None = None):
        """`read` gets the data of an output; an input holds what was copied into it."""
        self.name = value.name
        self.dtype = value.dtype
        self.kind = value.kind
        self.dims: tuple[Dim, ...] | None = value.shape
        self._shape: tuple[int, ...] | None = None
        self._data: Any = None
        self._filled = False
        self._read = read

    @property
    def shape(self) -> tuple[int, ...]:
        """The fixed dims of the model, or those of the last resize or run; -1 for an open dim, () where even the rank is open."""
        if self._shape is not None:
            return self._shape
        return tuple(d if isinstance(d, int) else -1 for d in self.dims or ())

    @property
    def filled(self) -> bool:
        return self._filled

    @property
    def is_input(self) -> bool:
        return self._read is None

    def set_shape(self, shape: Sequence[int]) -> None:
        """Fixes the open dims of an input; raises InputError where a fixed dim differs. Other data than of this shape is forgotten."""
        shape = tuple(int(d) for d in shape)
        self.check_shape(shape)
        if self._filled and self._data.shape != shape:
            self._data, self._filled = None, False
        self._shape = shape

    def note_shape(self, shape: tuple[int, ...] | None) -> None:
        """Records the shape that a resize or run gave."""
        self._shape = shape

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Raises InputError where the model can't take this shape."""
        if any(d < 0 for d in shape):
            raise InputError(f"input {self.name!r}: dims must not be negative, got {list(shape)}")
        if self.dims is None:
            return
        wanted = "[" + ", ".join("?" if d is None else str(d) for d in self.dims) + "]"
        if len(shape) != len(self.dims):
            raise InputError(f"input {self.name!r} wants the shape {wanted} (rank {len(self.dims)}), got {list(shape)} (rank {len(shape)})")
        for axis, (got, dim) in enumerate(zip(shape, self.dims, strict=True)):
            if isinstance(dim, int) and got != dim:
                raise InputError(f"input {self.name!r} wants the shape {wanted}, got {list(shape)}: dim {axis} must be {dim}")

    def check(self, value: Any) -> Any:
        """`value` as this input takes it; raises InputError where kind, dtype, rank or a fixed dim differ. Nothing is cast."""
        if self.kind != "tensor":
            if value is None and self.kind == "optional":
                return None
            if self.kind == "sequence" and not isinstance(value, list):
                raise InputError(f"input {self.name!r} is a sequence: give a list of arrays, not {type(value).__name__}")
            return value
        if not isinstance(value, (np.ndarray, np.generic)):
            raise InputError(
                f"input {self.name!r} wants a NumPy array of {dtypes.name(self.dtype)}, got {type(value).__name__}; "
                f"use numpy.asarray(value, dtype)"
            )
        array = np.asarray(value)
        if array.dtype.kind in "SUT":
            array = _as_text(array)
        if self.dtype is not None and array.dtype != self.dtype:
            raise InputError(
                f"input {self.name!r} wants {dtypes.name(self.dtype)}, got {array.dtype.name}; convert it with .astype(), nothing is cast silently"
            )
        self.check_shape(array.shape)
        return array

    def copy_from_host(self, value: Any) -> None:
        """Fills an input with a copy of `value`, checked as `Session.run` does."""
        if not self.is_input:
            raise SessionStateError(f"{self.name!r} is an output; only inputs can be filled")
        checked = self.check(value)
        self._data = np.array(checked) if isinstance(checked, np.ndarray) else checked
        self._filled = True
        if isinstance(checked, np.ndarray):
            self._shape = checked.shape

    def host_array(self) -> np.ndarray:
        """An input's own memory, of its present shape, for whoever fills it in place: it counts as filled from here on.

        Raises SessionStateError for an output, InputError where dims are still open.
        """
        if not self.is_input:
            raise SessionStateError(f"{self.name!r} is an output; only inputs can be filled")
        if self.kind != "tensor" or self.dtype is None or -1 in self.shape:
            raise InputError(
                f"input {self.name!r} of {dtypes.name(self.dtype)} {list(self.shape)} has no memory yet: resize the session first"
            )
        if not self._filled:
            self._data, self._filled, self._shape = np.empty(self.shape, self.dtype), True, self.shape
        return self._data

    def copy_to_host(self) -> Any:
        """The data: a fresh array that the caller owns. Raises SessionStateError where there is none yet."""
        value = self.data()
        return value.copy() if isinstance(value, np.ndarray) else value

    def data(self) -> Any:
        """The data without a copy; not to be written to."""
        if self._read is not None:
            return self._read()
        if not self._filled:
            raise SessionStateError(f"input {self.name!r} was never filled; feed it, or call copy_from_host")
        return self._data

    def __repr__(self) -> str:
        return f"Tensor({self.name!r}, {dtypes.name(self.dtype)}, {list(self.shape)})"


def _as_text(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    return array.astype(object)
