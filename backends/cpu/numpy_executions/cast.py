"""Changes of dtype in NumPy, as ONNX Cast-28's tables have them."""

import ml_dtypes
import numpy as np

from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.schema.ops.base import require
from mnnx.schema.ops.cast import BitCast, Cast, CastLike
from mnnx.schema.ops.elementwise import BOOL, FLOATS, SMALL_FLOATS, SMALL_INTEGERS, STRING

_E8M0 = np.dtype(ml_dtypes.float8_e8m0fnu)
#: They have no infinity: what is out of their range always becomes their largest number.
_FINITE = tuple(np.dtype(t) for t in (ml_dtypes.float4_e2m1fn, ml_dtypes.float6_e2m3fn, ml_dtypes.float6_e3m2fn))
_SMALL_BITS = {"int4": 4, "uint4": 4, "int2": 2, "uint2": 2}


@numpy_execution(Cast)
def cast(op: Cast, x: np.ndarray) -> np.ndarray:
    return convert(x, op.to, op.saturate, op.round_mode)


@numpy_execution(CastLike)
def cast_like(op: CastLike, x: np.ndarray, like: np.ndarray) -> np.ndarray:
    return convert(x, like.dtype, op.saturate, op.round_mode)


@numpy_execution(BitCast)
def bit_cast(op: BitCast, x: np.ndarray) -> np.ndarray:
    if op.to == BOOL:
        return np.ascontiguousarray(x).view(np.uint8).astype(bool).reshape(x.shape)
    return np.ascontiguousarray(x).view(op.to).reshape(x.shape)


def convert(x: np.ndarray, to: np.dtype, saturate: bool = True, round_mode: str = "up") -> np.ndarray:
    """`x` in the dtype `to`; always a new array unless it has that dtype already."""
    if x.dtype == to:
        return x
    with np.errstate(all="ignore"):
        if x.dtype == STRING:
            return _parse(x, to, saturate, round_mode)
        if to == STRING:
            return _text(x)
        if to == _E8M0:
            return _to_e8m0(x.astype(np.float32), saturate, round_mode)
        if to in SMALL_FLOATS:
            return _to_small_float(x, to, saturate)
        if to in SMALL_INTEGERS:
            return _to_small_integer(x, to)
        if x.dtype in SMALL_FLOATS or x.dtype in SMALL_INTEGERS:
            x = x.astype(np.float32 if x.dtype in SMALL_FLOATS else np.int8)
        return np.asarray(x != 0) if to == BOOL else x.astype(to)


def _parse(x: np.ndarray, to: np.dtype, saturate: bool, round_mode: str) -> np.ndarray:
    if to in FLOATS or to in SMALL_FLOATS:
        wide = np.array([_number(text) for text in x.reshape(-1)], np.float64).reshape(x.shape)
        return convert(wide, to, saturate, round_mode)
    values = np.array([_integer(text) for text in x.reshape(-1)], object).reshape(x.shape)
    if to == BOOL:
        return np.asarray(values != 0).astype(bool)
    wrapped = np.array([int(v) & 0xFFFFFFFFFFFFFFFF for v in values.reshape(-1)], np.uint64).reshape(x.shape)
    return convert(wrapped, to)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        require(False, f"strings that are cast to numbers must hold numbers; found {text[:40]!r}")


def _integer(text: str) -> int:
    require(len(text) < 400, f"strings that are cast to integers must be shorter than 400 characters; found {len(text)}")
    try:
        return int(text)
    except ValueError:
        number = _number(text)
        require(np.isfinite(number), f"strings that are cast to integers must hold finite numbers; found {text[:40]!r}")
        return int(number)


def _text(x: np.ndarray) -> np.ndarray:
    if x.dtype == BOOL:
        words = ["True" if v else "False" for v in x.reshape(-1)]
    elif x.dtype in FLOATS or x.dtype in SMALL_FLOATS:
        native = x if x.dtype in (np.float16, np.float32, np.float64) else x.astype(np.float32)
        words = [_float_text(v) for v in native.reshape(-1)]
    else:
        words = [str(int(v)) for v in x.reshape(-1)]
    result = np.empty(len(words), object)
    result[:] = words
    return result.reshape(x.shape)


def _float_text(value: np.floating) -> str:
    """The shortest decimal text that reads back as the same number, as NumPy writes it (scientific where that is shorter)."""
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "INF" if value > 0 else "-INF"
    return str(value)


def _to_small_float(x: np.ndarray, to: np.dtype, saturate: bool) -> np.ndarray:
    wide = x.astype(np.float64 if x.dtype in (np.float64, np.int64, np.uint64) else np.float32)
    result = wide.astype(to)
    if to in _FINITE or not saturate:
        return result
    limit = float(ml_dtypes.finfo(to).max)
    rounded = result.astype(np.float64)
    over = ~np.isnan(wide) & ((np.abs(rounded) > limit) | np.isnan(rounded))
    return np.where(over, np.copysign(limit, wide).astype(to), result)


def _to_e8m0(x: np.ndarray, saturate: bool, round_mode: str) -> np.ndarray:
    """Powers of two 2**-127 … 2**127 by their biased exponents 0 … 254; 255 is NaN. The OCP Microscaling Formats specification."""
    magnitude = np.abs(x).astype(np.float64)
    mantissa, exponent = np.frexp(magnitude)  # magnitude = mantissa * 2**exponent, mantissa in [0.5, 1)
    step_up = {"up": mantissa > 0.5, "down": np.zeros(x.shape, bool), "nearest": mantissa >= 0.75}[round_mode]
    code = exponent - 1 + step_up + 127
    outside = (code < 0) | (code > 254) | (magnitude == 0) | np.isinf(x)
    low = (code < 0) | (magnitude == 0)
    code = np.where(outside, np.where(low & ~np.isinf(x), 0, 254), code) if saturate else np.where(outside, 255, code)
    return np.where(np.isnan(x), 255, code).astype(np.uint8).view(_E8M0)


def _to_small_integer(x: np.ndarray, to: np.dtype) -> np.ndarray:
    """Integers keep their low bits; floats are truncated first."""
    bits = _SMALL_BITS[to.name]
    if x.dtype in SMALL_FLOATS or x.dtype in FLOATS:
        wide = np.trunc(x.astype(np.float64)).astype(np.int64)
    else:
        wide = x.astype(np.int8 if x.dtype in SMALL_INTEGERS else x.dtype).astype(np.int64)
    low = wide & ((1 << bits) - 1)
    if not to.name.startswith("u"):
        low = np.where(low >= 1 << (bits - 1), low - (1 << bits), low)
    return np.asarray(low, np.int8).astype(to)  # NumPy makes a number of an array without dims
