"""NumPy execution of Raster (see schema/ops/raster.py)."""

import numpy as np
from numpy.lib.stride_tricks import as_strided

from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.schema.ops.base import specs_of
from mnnx.schema.ops.raster import FILL, Raster


@numpy_execution(Raster)
def raster(op, *inputs):
    op.infer(*specs_of(*inputs))  # as_strided trusts its caller
    result = np.empty(op.shape, op.dtype)
    sources = {index: np.ascontiguousarray(inputs[index]).reshape(-1) for index in op.sources}
    for region in op.regions:
        source = op.fill.reshape(1) if region.source_index == FILL else sources[region.source_index]
        target = _strided(result.reshape(-1), region.target_offset, region.target_strides, region.size)
        target[...] = _strided(source, region.source_offset, region.source_strides, region.size)
    return result


def _strided(flat, offset, strides, size):
    return as_strided(flat[offset:], size, [s * flat.itemsize for s in strides])
