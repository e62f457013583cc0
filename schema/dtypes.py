"""Element types: their NumPy dtypes, their names, and ONNX's numbers for them.

ml_dtypes is imported when one of its types appears, which it doesn't in most models.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

import numpy as np

STRING = np.dtype(object)

# The numbers are ONNX's TensorProto.DataType; the file stores the same ones.
_NAMES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "string",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    15: "complex128",
    16: "bfloat16",
    17: "float8_e4m3fn",
    18: "float8_e4m3fnuz",
    19: "float8_e5m2",
    20: "float8_e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4_e2m1fn",
    24: "float8_e8m0fnu",
    25: "uint2",
    26: "int2",
    27: "float6_e2m3fn",
    28: "float6_e3m2fn",
}
_CODES = {name: code for code, name in _NAMES.items()}
_FLOATS = {1, 10, 11, 16, 17, 18, 19, 20, 23, 24, 27, 28}
#: From this number on they are ml_dtypes'.
_EXTENDED = 16


@cache
def from_code(code: int) -> np.dtype | None:
    """The NumPy dtype for ONNX's data type number; None for 0 (undefined). Raises KeyError for an unknown number."""
    if code == 0:
        return None
    text = _NAMES[code]
    if code < _EXTENDED:
        return STRING if text == "string" else np.dtype(text)
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, text))


def to_code(dtype: np.dtype | None) -> int:
    """ONNX's data type number of a NumPy dtype; 0 for None. Raises KeyError where ONNX has no such type."""
    return 0 if dtype is None else _CODES[name(dtype)]


@cache
def is_known(dtype: np.dtype) -> bool:
    """Whether it is one of ONNX's."""
    return name(dtype) in _CODES


@cache
def name(dtype: np.dtype | None) -> str:
    """How a dtype is written in messages and in `Placement`: NumPy's name, `string` for text, `unknown` for None."""
    if dtype is None:
        return "unknown"
    dtype = np.dtype(dtype)
    return "string" if dtype == STRING else dtype.name if dtype.isnative else dtype.str


def from_name(text: str) -> np.dtype:
    """The dtype that `name` writes as `text`. Raises KeyError for an unknown name."""
    return from_code(_CODES[text])


def is_float(dtype: np.dtype) -> bool:
    """Whether the dtype is a real floating-point type of any width (float4 … float64, bfloat16)."""
    return _CODES.get(name(dtype)) in _FLOATS


class DtypeSet:
    """A set of dtypes, given by their names."""

    __slots__ = ("_names",)

    def __init__(self, *names: str):
        self._names = frozenset(names)

    def __contains__(self, dtype: np.dtype | None) -> bool:
        return name(dtype) in self._names

    def __iter__(self) -> Iterator[np.dtype]:
        return map(from_name, sorted(self._names))

    def __len__(self) -> int:
        return len(self._names)

    def __or__(self, other: Iterable[np.dtype]) -> DtypeSet:
        return DtypeSet(*self._names, *(other._names if isinstance(other, DtypeSet) else map(name, other)))


#: All dtypes that a tensor may have.
ALL = DtypeSet(*_NAMES.values())
