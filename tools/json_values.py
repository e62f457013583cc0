"""JSON text as the value of a model's input; what the input's dtype can't hold is refused, not cast."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mnnx.errors import InputError

if TYPE_CHECKING:
    import numpy as np


def parse(text: str, name: str, dtype: np.dtype | None) -> np.ndarray:
    """The array that `text` writes for the input `name`. dtype: the input's, None where it takes any.

    Integers may be written with a fraction of zero, and floats are rounded to the dtype; nothing else is converted. Raises InputError.
    """
    import numpy as np

    from mnnx.schema import dtypes

    try:
        value = json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        raise InputError(f"input {name!r}: {text!r} is neither a file nor a JSON value") from None
    try:
        if dtype is None:
            return np.array(value)
        if dtype == dtypes.STRING:
            return np.array(value, object)
        if dtype == np.bool_:
            return np.array(_each(value, _boolean), dtype)
        if dtypes.is_float(dtype) or dtype.kind == "c":
            return _floats(np.array(_each(value, _number), np.float64), dtype)
        return _integers(np.array(_each(value, _whole), object), dtype)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"input {name!r}: {text} is no value of {dtypes.name(dtype)}: {error}") from error


def _each(value: Any, convert: Callable[[Any], Any]) -> Any:
    return [_each(item, convert) for item in value] if isinstance(value, list) else convert(value)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{json.dumps(value)} is not a number")
    return float(value)


def _whole(value: Any) -> int:
    if not math.isfinite(_number(value)) or value != int(value):
        raise ValueError(f"{value} is not a whole number")
    return int(value)


def _boolean(value: Any) -> bool:
    if value not in (True, False):
        raise ValueError(f"{json.dumps(value)} is neither true nor false")
    return bool(value)


def _floats(wide: np.ndarray, dtype: np.dtype) -> np.ndarray:
    import numpy as np

    with np.errstate(over="ignore"):
        array = wide.astype(dtype)
    lost = np.isfinite(wide) & ~np.isfinite(array)
    if lost.any():
        raise ValueError(f"{wide[lost].flat[0]:g} is too large")
    return array


def _integers(exact: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """exact: Python integers, of any size. Raises ValueError where lists inside are not of one length."""
    import ml_dtypes
    import numpy as np

    if any(isinstance(value, list) for value in exact.flat):
        raise ValueError("its lists differ in length")
    limits = np.iinfo(dtype) if dtype.isbuiltin == 1 else ml_dtypes.iinfo(dtype)
    for value in exact.flat:
        if not limits.min <= value <= limits.max:
            raise ValueError(f"{value} is outside of {limits.min} … {limits.max}")
    return exact.astype(np.int64 if dtype.isbuiltin != 1 else dtype).astype(dtype)
