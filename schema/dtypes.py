"""Element types: their NumPy dtypes, their names, and ONNX's numbers for them."""

from functools import cache

import ml_dtypes
import numpy as np

STRING = np.dtype(object)

# The numbers are ONNX's TensorProto.DataType; the file stores the same ones.
_BY_CODE: dict[int, np.dtype] = {
    1: np.dtype("float32"),
    2: np.dtype("uint8"),
    3: np.dtype("int8"),
    4: np.dtype("uint16"),
    5: np.dtype("int16"),
    6: np.dtype("int32"),
    7: np.dtype("int64"),
    8: STRING,
    9: np.dtype("bool"),
    10: np.dtype("float16"),
    11: np.dtype("float64"),
    12: np.dtype("uint32"),
    13: np.dtype("uint64"),
    14: np.dtype("complex64"),
    15: np.dtype("complex128"),
    16: np.dtype(ml_dtypes.bfloat16),
    17: np.dtype(ml_dtypes.float8_e4m3fn),
    18: np.dtype(ml_dtypes.float8_e4m3fnuz),
    19: np.dtype(ml_dtypes.float8_e5m2),
    20: np.dtype(ml_dtypes.float8_e5m2fnuz),
    21: np.dtype(ml_dtypes.uint4),
    22: np.dtype(ml_dtypes.int4),
    23: np.dtype(ml_dtypes.float4_e2m1fn),
    24: np.dtype(ml_dtypes.float8_e8m0fnu),
    25: np.dtype(ml_dtypes.uint2),
    26: np.dtype(ml_dtypes.int2),
}
_CODE = {dtype: code for code, dtype in _BY_CODE.items()}
#: All dtypes that a tensor may have.
ALL = frozenset(_CODE)

_FLOATS = {1, 10, 11, 16, 17, 18, 19, 20, 23, 24}


def from_code(code: int) -> np.dtype | None:
    """The NumPy dtype for ONNX's data type number; None for 0 (undefined). Raises KeyError for an unknown number."""
    return None if code == 0 else _BY_CODE[code]


def to_code(dtype: np.dtype | None) -> int:
    """ONNX's data type number of a NumPy dtype; 0 for None. Raises KeyError where ONNX has no such type."""
    return 0 if dtype is None else _CODE[np.dtype(dtype)]


@cache
def name(dtype: np.dtype | None) -> str:
    """How a dtype is written in messages and in `Placement`: NumPy's name, `string` for text, `unknown` for None."""
    if dtype is None:
        return "unknown"
    return "string" if dtype == STRING else np.dtype(dtype).name


def from_name(text: str) -> np.dtype:
    """The dtype that `name` writes as `text`. Raises KeyError for an unknown name."""
    for dtype in _CODE:
        if name(dtype) == text:
            return dtype
    raise KeyError(text)


def is_float(dtype: np.dtype) -> bool:
    """Whether the dtype is a real floating-point type of any width (float4 … float64, bfloat16)."""
    return _CODE.get(np.dtype(dtype)) in _FLOATS
