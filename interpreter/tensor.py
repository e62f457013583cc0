"""The tensors that scripts hold: a session's inputs and outputs, and host tensors in PyMNN's way."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from mnnx.errors import InputError, LimitExceeded, SessionStateError, UnknownName
from mnnx.interpreter.pymnn_tensor import PyMnnTensor, Tensor_DimensionType_Caffe, host_array
from mnnx.schema import dtypes
from mnnx.schema.model import Dim, Range, Value, dims_text, range_text


class Tensor(PyMnnTensor):
    """Values on the host. A session's inputs and outputs are SessionTensors; one that a script makes is for PyMNN's `copyFrom`."""

    name: str = ""
    kind: str = "tensor"
    filled: bool = True
    is_input: bool = True  # whether scripts may write to it

    def __init__(self, shape: Any, dtype: Any = None, data: Any = None, dimension_type: int | None = None):
        """PyMNN's forms: (shape, dtype, data, dimension type), (shape, dtype, dimension type), (tensor, dimension type).

        dtype: a Halide_Type constant, to which `data` (array, tuple, list or bytes) is converted; without data: zeros. Raises
        InputError where the number of values isn't that of the shape.
        """
        self._data, self.dimension_type = host_array(shape, dtype, data, dimension_type)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._data.shape

    @property
    def dtype(self) -> np.dtype | None:
        return self._data.dtype

    def fill(self, array: np.ndarray) -> None:
        """Overwrites the values with those of an array of this dtype and shape. Scripts use `copy_from_host` or PyMNN's `copyFrom`."""
        if array.shape != self.shape:
            raise InputError(f"a tensor {list(self.shape)} can't take {list(array.shape)}: the numbers of values differ")
        self._data[...] = array

    def host_array(self) -> np.ndarray:
        """The tensor's own memory, for whoever fills it in place."""
        return self._data

    def copy_from(self, source: Tensor) -> None:
        """Fills this tensor with the values of another, as `copyFrom` does: an input with another session's output, say, whatever the
        devices of the two."""
        self.copyFrom(source)

    @contextmanager
    def map(self) -> Iterator[np.ndarray]:
        """The host's own memory of the tensor, within a `with` block: of an input to be filled in place, of which the next run makes no
        copy but that to the device; of an output to be read, until the next run.

        Raises SessionStateError for an output without a value, InputError for what has no array yet.
        """
        yield self.host_array() if self.is_input else self._read_only()

    def _read_only(self) -> np.ndarray:
        value = self.data()
        if not isinstance(value, np.ndarray):
            raise InputError(f"{self.name!r} is a {self.kind}: it has no memory to map; copy_to_host gives its value")
        view = value.view()
        view.flags.writeable = False
        return view

    def copy_to_host(self) -> Any:
        """The data: a fresh array that the caller owns. Raises SessionStateError where there is none yet."""
        return copied(self.data())

    def data(self) -> Any:
        """The data without a copy; not to be written to."""
        return self._data

    def __repr__(self) -> str:
        return f"Tensor({self.name!r}, {dtypes.name(self.dtype)}, {list(self.shape)})"


class SessionTensor(Tensor):
    """An input or output of a session. `shape` has -1 where a dim is still open; `dims` has the model's own dims, names included;
    `ranges`, by such names, the smallest and the largest size that the model was converted for (None: no limit)."""

    dtype: np.dtype | None = None
    dimension_type = Tensor_DimensionType_Caffe

    def __init__(self, value: Value, ranges: Mapping[str, Range] | None = None, *, results: Mapping[str, Any] | None = None):
        """`results` has the data of an output by its name, once there is some; an input holds what was copied into it."""
        self.name = value.name
        self.dtype = value.dtype
        self.kind = value.kind
        self.dims: tuple[Dim, ...] | None = value.shape
        self._shape: tuple[int, ...] | None = None
        self._data: Any = None
        self._filled = False
        self._results = results
        self.ranges = {} if ranges is None else ranges

    @property
    def shape(self) -> tuple[int, ...]:
        """The fixed dims of the model, or those of the last resize or run; -1 for an open dim, () where even the rank is open."""
        if self._shape is not None:
            return self._shape
        return tuple(d if isinstance(d, int) else -1 for d in self.dims or ())

    @property
    def is_open(self) -> bool:
        """Whether dims, or even the rank, are still to be set by `resize` or a feed."""
        return self._shape is None and (self.dims is None or any(not isinstance(d, int) for d in self.dims))

    @property
    def filled(self) -> bool:
        """Whether there is data to read."""
        return self._filled if self._results is None else self.name in self._results

    @property
    def is_input(self) -> bool:
        return self._results is None

    def __repr__(self) -> str:
        kind = "input" if self.is_input else "output"
        dims = dims_text(self.dims if self._shape is None else self._shape)
        what = f"{dtypes.name(self.dtype)} {dims}" if self.kind == "tensor" else self.kind
        return f"<{kind} {self.name!r}: {what}, {'filled' if self.filled else 'no value yet'}>"

    def set_shape(self, shape: Sequence[int]) -> None:
        """Fixes the open dims of an input, for `Session.resize`, which plans for them; other data than of this shape is forgotten.

        Raises InputError where a fixed dim differs.
        """
        shape = self.checked_shape(shape)
        if self._filled and self._data.shape != shape:
            self._data, self._filled = None, False
        self._shape = shape

    def checked_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """`shape` as this input takes it; raises InputError where it doesn't."""
        if self.kind != "tensor":
            raise InputError(f"input {self.name!r} is a {self.kind}: it has no shape to set")
        try:
            shape = tuple(operator.index(d) for d in shape)
        except TypeError:
            raise InputError(f"input {self.name!r}: a shape is a sequence of ints, got {shape!r}") from None
        self.check_shape(shape)
        return shape

    def note_shape(self, shape: tuple[int, ...] | None) -> None:
        """Records the shape that a resize or run gave; for the session alone."""
        self._shape = shape

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Raises InputError where the model can't take this shape."""
        if shape and min(shape) < 0:
            raise InputError(f"input {self.name!r}: dims must not be negative, got {list(shape)}")
        if self.dims is None:
            return
        if len(shape) != len(self.dims):
            raise InputError(f"{self._wants_shape()} (rank {len(self.dims)}), got {list(shape)} (rank {len(shape)})")
        for axis, (got, dim) in enumerate(zip(shape, self.dims, strict=True)):
            if got != dim and isinstance(dim, int):
                raise InputError(f"{self._wants_shape()}, got {list(shape)}: dim {axis} must be {dim}")
            smallest, largest = self.ranges.get(dim, (0, None))
            if got < smallest or (largest is not None and got > largest):
                raise InputError(f"{self._wants_shape()}, got {list(shape)}: {dim} must be in {range_text(smallest, largest)}")

    def _wants_shape(self) -> str:
        return f"input {self.name!r} wants the shape {dims_text(self.dims)}"

    def check(self, value: Any) -> Any:
        """`value` as this input takes it; raises InputError where kind, dtype, rank or a fixed dim differ. Nothing is cast."""
        if self.kind == "optional":
            return self._element(value) if isinstance(value, np.ndarray | np.generic) else value
        if self.kind == "sequence":
            if not isinstance(value, list):
                raise InputError(f"input {self.name!r} is a sequence: give a list of arrays, not {type(value).__name__}")
            return [self._element(element) for element in value]
        if self.kind == "map":
            if not isinstance(value, dict):
                raise InputError(f"input {self.name!r} is a map: give a dict, not {type(value).__name__}")
            return value
        array = self._element(value)
        self.check_shape(array.shape)
        return array

    def _element(self, value: Any) -> np.ndarray:
        """A tensor of this input's dtype."""
        if not isinstance(value, np.ndarray | np.generic):
            raise InputError(
                f"input {self.name!r} wants a NumPy array of {dtypes.name(self.dtype)}, got {type(value).__name__}; "
                f"use numpy.asarray(value, dtype)"
            )
        if "numpy.ma" in sys.modules and isinstance(value, np.ma.MaskedArray):
            raise InputError(f"input {self.name!r} wants an array without a mask; fill the masked elements with .filled(value)")
        array = np.asarray(value)
        if array.dtype.kind in "SUT" and self.dtype in (None, dtypes.STRING):
            array = self._as_text(array)
        if self.dtype is None and array.dtype not in dtypes.ALL:
            raise InputError(f"input {self.name!r} can't be {array.dtype}: no ONNX tensor is; convert it with .astype()")
        if self.dtype is not None and array.dtype != self.dtype:
            found = array.dtype.name if array.dtype.isnative else f"{array.dtype.name} in another byte order"
            raise InputError(
                f"input {self.name!r} wants {dtypes.name(self.dtype)}, got {found}; convert it with .astype(), nothing is cast silently"
            )
        if array.dtype == dtypes.STRING and (other := [v for v in array.flat if not isinstance(v, str)]):
            raise InputError(f"input {self.name!r} wants text, got an array with {type(other[0]).__name__} in it")
        return array

    def copy_from_host(self, value: Any) -> None:
        """Fills an input with a copy of `value`, checked as `Session.run` does."""
        if not self.is_input:
            raise SessionStateError(f"{self.name!r} is an output; only inputs can be filled")
        checked = self.check(value)
        try:
            self._data = np.array(checked) if isinstance(checked, np.ndarray) else checked
        except MemoryError as error:
            raise LimitExceeded(f"there is no memory for a copy of input {self.name!r}: {error}") from error
        self._filled = True
        if isinstance(checked, np.ndarray):
            self._shape = checked.shape

    def fill(self, array: np.ndarray) -> None:
        self.copy_from_host(array)

    def host_array(self) -> np.ndarray:
        """An input's own memory, of its present shape, for whoever fills it in place: it counts as filled from here on.

        Raises SessionStateError for an output, InputError where dims are still open.
        """
        if not self.is_input:
            raise SessionStateError(f"{self.name!r} is an output; only inputs can be filled")
        if self.kind != "tensor" or self.dtype is None or self.is_open:
            raise InputError(
                f"input {self.name!r} of {dtypes.name(self.dtype)} {list(self.shape)} has no memory yet: resize the session first"
            )
        if not self._filled:
            self._data, self._filled, self._shape = np.empty(self.shape, self.dtype), True, self.shape
        return self._data

    def data(self) -> Any:
        if self._results is not None:
            if self.name not in self._results:
                raise SessionStateError(f"output {self.name!r} has no value yet; run the session first")
            return self._results[self.name]
        if not self._filled:
            raise SessionStateError(f"input {self.name!r} was never filled; feed it, or call copy_from_host")
        return self._data

    def _as_text(self, array: np.ndarray) -> np.ndarray:
        if array.dtype.kind == "S":
            try:
                array = np.char.decode(array, "utf-8")
            except UnicodeDecodeError as error:
                raise InputError(f"input {self.name!r} wants text: its bytes aren't UTF-8 ({error})") from None
        return array.astype(object)


def copied(value: Any) -> Any:
    """A value of a model with arrays of its own; of a sequence or map, each of them."""
    if isinstance(value, list):
        return [copied(element) for element in value]
    if isinstance(value, dict):
        return {key: copied(element) for key, element in value.items()}
    return value.copy() if isinstance(value, np.ndarray) else value


class NamedTensors(dict[str, SessionTensor]):
    """A session's inputs or outputs by name, in the model's order. Indexing raises UnknownName, which lists the names."""

    def __init__(self, kind: str, tensors: Iterable[SessionTensor]):
        super().__init__((tensor.name, tensor) for tensor in tensors)
        self._kind = kind

    @property
    def names(self) -> str:
        """The names, as an error lists them."""
        return ", ".join(map(repr, self)) or "none"

    def __missing__(self, name: Any) -> SessionTensor:
        raise UnknownName(f"the session has no {self._kind} {name!r}; its {self._kind}s are {self.names}")
