"""What PyMNN calls the tensor's methods, element types and dimension types. docs/pymnn.md lists the differences."""
# ruff: noqa: N802, N815 - the names are MNN's.

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from mnnx.errors import InputError
from mnnx.interpreter import checks
from mnnx.schema import dtypes

Halide_Type_Float = np.dtype(np.float32)
Halide_Type_Double = np.dtype(np.float64)
Halide_Type_Int = np.dtype(np.int32)
Halide_Type_Int64 = np.dtype(np.int64)
Halide_Type_Uint8 = np.dtype(np.uint8)
Halide_Type_String = dtypes.STRING

Tensor_DimensionType_Tensorflow = 0
Tensor_DimensionType_Caffe = 1
Tensor_DimensionType_Caffe_C4 = 2

_DIMENSION_TYPES = (Tensor_DimensionType_Tensorflow, Tensor_DimensionType_Caffe, Tensor_DimensionType_Caffe_C4)
_HALIDE_TYPES = (Halide_Type_Float, Halide_Type_Double, Halide_Type_Int, Halide_Type_Int64, Halide_Type_Uint8, Halide_Type_String)


class PyMnnTensor:
    """PyMNN's names on a Tensor, which has `shape`, `dtype`, `dimension_type`, `filled`, `data()` and `fill(array)`.

    NC4HW4 isn't a layout of host memory here: a tensor of the dimension type Caffe_C4 holds its values as one of the type Caffe does.
    """

    shape: tuple[int, ...]
    dtype: np.dtype | None
    dimension_type: int

    def getShape(self) -> tuple[int, ...]:
        return self.shape

    def getDataType(self) -> np.dtype | None:
        """This tensor's dtype where it is a Halide_Type, else one that holds all its values (float16: Halide_Type_Float), or None."""
        if self.dtype in _HALIDE_TYPES or self.dtype is None:
            return self.dtype
        if dtypes.is_float(self.dtype):
            return Halide_Type_Float
        for halide in (Halide_Type_Int, Halide_Type_Int64):
            if np.can_cast(self.dtype, halide):
                return halide
        return None

    def getDimensionType(self) -> int:
        return self.dimension_type

    def getData(self) -> tuple[Any, ...]:
        """All values in order, as Python numbers or text."""
        return tuple(_array(self).reshape(-1).tolist())

    def getNumpyData(self) -> np.ndarray:
        """A copy of the values, in this tensor's own dtype and shape."""
        return _array(self).copy()

    def copyFrom(self, source: PyMnnTensor) -> bool:
        """Fills this tensor with the values of another, transposed where the dimension types differ (NHWC ↔ NCHW, rank 3 and up).

        The shapes may differ where the numbers of values agree. Floats of different widths are rounded; integers keep their values.
        Raises InputError where that can't be, and where one holds floats and the other doesn't.
        """
        if not isinstance(source, PyMnnTensor):
            raise InputError(f"copyFrom wants a Tensor, got {type(source).__name__}")
        array = transposed(_array(source), source.dimension_type, self.dimension_type)
        if array.size == math.prod(self.shape) and -1 not in self.shape:
            array = array.reshape(self.shape)
        self.fill(array if self.dtype is None else _cast(array, self.dtype))
        return True

    copyFromHostTensor = copyFrom

    def copyToHostTensor(self, target: PyMnnTensor) -> bool:
        """`target.copyFrom(self)`."""
        if not isinstance(target, PyMnnTensor):
            raise InputError(f"copyToHostTensor wants a Tensor, got {type(target).__name__}")
        return target.copyFrom(self)


def host_array(shape: Any, dtype: Any, data: Any, dimension_type: int | None) -> tuple[np.ndarray, int]:
    """What the arguments of `Tensor(…)` make: the array and its dimension type.

    PyMNN's forms: (shape, dtype, data, dimension type), (shape, dtype, dimension type), (tensor, dimension type).
    """
    if isinstance(shape, PyMnnTensor):
        return _copy_of(shape, shape.dimension_type if dtype is None else dtype)
    if dimension_type is None and isinstance(data, int):
        data, dimension_type = None, data
    dimension_type = _checked(Tensor_DimensionType_Caffe if dimension_type is None else dimension_type)
    if dtype is None:
        raise InputError("Tensor(shape, dtype, data, dimension type) needs a dtype, for instance Halide_Type_Float")
    dtype = checks.dtype(dtype, "Tensor's data type")
    try:
        shape = tuple(operator.index(d) for d in shape)
    except TypeError as error:
        raise InputError(f"Tensor wants a sequence of ints as its shape, got {shape!r}: {error}") from error
    if any(d < 0 for d in shape):
        raise InputError(f"Tensor: dims must not be negative, got {list(shape)}")
    try:
        if data is None:
            return np.zeros(shape, dtype), dimension_type
        array = np.frombuffer(data, dtype) if isinstance(data, bytes | bytearray | memoryview) else np.asarray(data, dtype)
    except (TypeError, ValueError, OverflowError, MemoryError) as error:
        raise InputError(f"Tensor: the data can't be made {dtypes.name(dtype)} of shape {list(shape)}: {error}") from error
    if array.size != math.prod(shape):
        raise InputError(f"Tensor: the shape {list(shape)} has {math.prod(shape)} values, the data {array.size}")
    return np.array(array.reshape(shape), order="C"), dimension_type


def _copy_of(tensor: PyMnnTensor, dimension_type: int) -> tuple[np.ndarray, int]:
    """A tensor's values, or zeros where it has none yet, for another dimension type."""
    if tensor.filled:
        array = _array(tensor)
    elif tensor.dtype is None or -1 in tensor.shape:
        raise InputError(f"Tensor: the shape of {tensor!r} is still open, so that there is nothing to copy")
    else:
        array = np.zeros(tensor.shape, tensor.dtype)
    return np.array(transposed(array, tensor.dimension_type, _checked(dimension_type)), order="C"), dimension_type


def transposed(array: np.ndarray, source: int, target: int) -> np.ndarray:
    """An array of one dimension type as a view of another: channels stand last in Tensorflow's, second in Caffe's."""
    if array.ndim < 3 or (source == Tensor_DimensionType_Tensorflow) == (target == Tensor_DimensionType_Tensorflow):
        return array
    return np.moveaxis(array, -1, 1) if source == Tensor_DimensionType_Tensorflow else np.moveaxis(array, 1, -1)


def _checked(dimension_type: Any) -> int:
    if not checks.is_one_of(dimension_type, _DIMENSION_TYPES):
        raise InputError(f"Tensor: the dimension type is one of Tensor_DimensionType_Tensorflow, _Caffe, _Caffe_C4; got {dimension_type!r}")
    return dimension_type


def _array(tensor: PyMnnTensor) -> np.ndarray:
    value = tensor.data()
    if not isinstance(value, np.ndarray):
        raise InputError(f"{tensor!r} holds no array but {type(value).__name__}; use copy_to_host()")
    return value


def _cast(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if array.dtype == dtype:
        return array
    kind = _kind(dtype)
    if _kind(array.dtype) != kind or kind == "text":
        raise InputError(
            f"copyFrom: a tensor of {dtypes.name(dtype)} can't take {dtypes.name(array.dtype)}; convert the data with .astype() first"
        )
    with np.errstate(all="ignore"):
        cast = array.astype(dtype)
    if kind != "floats" and not np.array_equal(cast, array):
        raise InputError(f"copyFrom: values of {dtypes.name(array.dtype)} don't fit {dtypes.name(dtype)}")
    return cast


def _kind(dtype: np.dtype) -> str:
    return "floats" if dtypes.is_float(dtype) else "text" if dtype == dtypes.STRING else "integers"
