"""Which float type NumPy executions compute in: float16 and bfloat16 in float32, all others in their own; integers where need be."""

import ml_dtypes
import numpy as np

_NARROW = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


def widened(array: np.ndarray | None) -> np.ndarray | None:
    """The array in the type to compute in; None stays None."""
    return array.astype(np.float32) if array is not None and array.dtype in _NARROW else array


def float_type(*arrays: np.ndarray) -> np.dtype:
    """The type to compute in for numbers of any type: float64 for float64, complex and integers of 32 bits or more; else float32."""
    wide = any(a.dtype.itemsize > 4 or (a.dtype.kind in "iu" and a.dtype.itemsize == 4) for a in arrays)
    return np.dtype(np.float64 if wide else np.float32)
