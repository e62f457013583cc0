"""NumPy executions of the ops that ONNX Runtime adds to ONNX."""

from __future__ import annotations

import numpy as np

from mnnx.backends.cpu.numpy_executions.precision import widened
from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.schema.ops.contrib import Inverse


@numpy_execution(Inverse)
def inverse(op: Inverse, x: np.ndarray) -> np.ndarray:
    wide = widened(x)
    singular = np.linalg.det(wide) == 0
    with np.errstate(all="ignore"):
        regular = np.where(singular[..., None, None], np.eye(x.shape[-1], dtype=wide.dtype), wide)
        return np.where(singular[..., None, None], np.nan, np.linalg.inv(regular)).astype(x.dtype)
