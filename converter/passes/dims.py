"""Ranks and dims of values, by what they are made by where no hint says them; and which constants leave a shape as it is."""

from __future__ import annotations

from mnnx.converter.graph import Node, Value
from mnnx.schema.ops.activation import LeakyRelu, PRelu, Relu
from mnnx.schema.ops.arithmetic import Clip
from mnnx.schema.ops.convolution import Conv, ConvTranspose
from mnnx.schema.ops.matmul import Gemm, MatMul
from mnnx.schema.ops.normalization import BatchNormalization
from mnnx.schema.ops.pooling import AveragePool, GlobalAveragePool, GlobalMaxPool, MaxPool
from mnnx.schema.ops.shape import Transpose

_KEEP_SHAPE = (BatchNormalization, Clip, LeakyRelu, PRelu, Relu)
_KEEP_CHANNELS = (*_KEEP_SHAPE, AveragePool, GlobalAveragePool, GlobalMaxPool, MaxPool)
_KEEP_RANK = (*_KEEP_CHANNELS, Transpose)


def rank_of(value: Value) -> int | None:
    """A value's rank, by what it is made by where no hint says it."""
    while value.rank is None and value.producer is not None:
        node = value.producer
        if isinstance(node.op, (Conv, ConvTranspose)):  # the fused ones, too
            return node.inputs[1].rank
        if not isinstance(node.op, _KEEP_RANK):
            return None
        value = node.inputs[0]
    return value.rank


def dim_of(value: Value, axis: int) -> int | None:
    """The size of a value along an axis, which is counted from the end of its known rank; None where it isn't known before a run."""
    channels = 1 - rank_of(value)
    while value.shape is None or not isinstance(value.shape[axis], int):
        node = value.producer
        if node is None:
            return None
        if isinstance(node.op, (Conv, ConvTranspose, MatMul, Gemm)):
            return _outputs(node) if axis == (channels if isinstance(node.op, (Conv, ConvTranspose)) else -1) else None
        if not isinstance(node.op, _KEEP_CHANNELS if axis == channels else _KEEP_SHAPE):
            return None
        value = node.inputs[0]
    return value.shape[axis]


def _outputs(node: Node) -> int | None:
    """How many channels or columns a product gives, where its weights' shape says it."""
    shape, op = node.inputs[1].shape, node.op
    if shape is None or len(shape) < 2:
        return None
    match op:
        case Conv():
            count = shape[0]
        case ConvTranspose():
            count = shape[1] * op.group if isinstance(shape[1], int) else None
        case Gemm():
            count = shape[0 if op.transB else 1]
        case _:
            count = shape[-1]
    return count if isinstance(count, int) else None


def broadcasts_to(shape: tuple[int, ...], x: Value) -> bool:
    """Whether a constant of that shape is known to broadcast to the shape of x, and x not to another one."""
    if not shape:
        return True
    rank = rank_of(x)
    if rank is None or len(shape) > rank:
        return False
    return all(size in (1, dim_of(x, axis - len(shape))) for axis, size in enumerate(shape))
