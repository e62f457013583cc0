"""NumPy executions of the ops in schema/ops/shape.py."""

import numpy as np

from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.schema.ops import shape as ops
from mnnx.schema.ops.base import specs_of


@numpy_execution(ops.Shape, ops.Size)
def from_infer(op, data):
    return op.infer(*specs_of(data)).value


@numpy_execution(ops.Identity)
def identity(op, data):
    return data


@numpy_execution(ops.Reshape, ops.Flatten, ops.Squeeze, ops.Unsqueeze)
def reshape(op, data, *others):
    return data.reshape(op.infer(*specs_of(data, *others)).shape)


@numpy_execution(ops.Expand)
def expand(op, data, shape):
    return np.broadcast_to(data, op.infer(*specs_of(data, shape)).shape)


@numpy_execution(ops.Tile)
def tile(op, data, repeats):
    return np.tile(data, repeats)


@numpy_execution(ops.Transpose)
def transpose(op, data):
    return data.transpose(op.order(data.ndim))


@numpy_execution(ops.Concat)
def concat(op, *inputs):
    return np.concatenate(inputs, op.axis)


@numpy_execution(ops.Split)
def split(op, data, split=None):
    sizes = op.sizes(data.shape[op.axis], *specs_of(split))
    return tuple(np.split(data, np.cumsum(sizes[:-1]), op.axis))


@numpy_execution(ops.DepthToSpace)
def depth_to_space(op, data):
    n, c, h, w = data.shape
    b = op.blocksize
    if op.mode == "DCR":
        blocks = data.reshape(n, b, b, c // (b * b), h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        blocks = data.reshape(n, c // (b * b), b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return blocks.reshape(n, c // (b * b), h * b, w * b)


@numpy_execution(ops.SpaceToDepth)
def space_to_depth(op, data):
    n, c, h, w = data.shape
    b = op.blocksize
    order = (0, 3, 5, 1, 2, 4) if op.mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return data.reshape(n, c, h // b, b, w // b, b).transpose(order).reshape(n, c * b * b, h // b, w // b)
