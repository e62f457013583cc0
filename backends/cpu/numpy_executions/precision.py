"""Which float type NumPy executions compute in: float16 and bfloat16 in float32, all others in their own."""

import ml_dtypes
import numpy as np

_NARROW = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


def widened(array: np.ndarray | None) -> np.ndarray | None:
    """The array in the type to compute in; None stays None."""
    return array.astype(np.float32) if array is not None and array.dtype in _NARROW else array
