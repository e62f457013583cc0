"""NumPy execution of Resize: one dim after the other, each as a weighted sum of gathered positions."""

import ml_dtypes
import numpy as np

from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.schema import dtypes
from mnnx.schema.ops.base import specs_of
from mnnx.schema.ops.resize import Resize


@numpy_execution(Resize)
def resize(op, x, roi=None, scales=None, sizes=None):
    scalings = op.scalings(*specs_of(x, roi, scales, sizes))
    dtype, shape = x.dtype, tuple(s.size for s in scalings)
    if 0 in shape:
        return np.zeros(shape, dtype)
    if op.mode != "nearest":
        wide = dtype.kind in "iu" or dtype.itemsize > 4
        x = x.astype(np.result_type(np.float64 if wide else np.float32, dtype if dtype.kind == "c" else np.float32))
    for axis, scaling in enumerate(scalings):
        taps = op.taps(scaling)
        if taps is None:
            continue
        data, behind = x, (1,) * (x.ndim - axis - 1)
        x = np.take(data, taps.index[:, 0], axis)
        if taps.weights is not None:
            weights = taps.weights.astype(x.real.dtype)
            x = x * weights[:, 0].reshape(-1, *behind)
            for k in range(1, weights.shape[1]):
                x += np.take(data, taps.index[:, k], axis) * weights[:, k].reshape(-1, *behind)
        if taps.outside is not None:
            x[(slice(None),) * axis + (taps.outside,)] = op.extrapolation_value
    return x if x.dtype == dtype else _saturated(x, dtype)


def _saturated(x, dtype):
    """Rounded to an integer dtype, and clipped to what the dtype holds."""
    if dtypes.is_float(dtype) or dtype.kind == "c":
        return x.astype(dtype)
    info = ml_dtypes.iinfo(dtype)
    return np.round(x).clip(int(info.min), int(info.max)).astype(dtype)
