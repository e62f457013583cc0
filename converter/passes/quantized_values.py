"""What rules for quantized graphs ask: which integers a DequantizeLinear reads, what a QuantizeLinear makes, with which constants."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.passes.base import made_by, only_user
from mnnx.schema.ops.quantization import BYTES, DequantizeLinear, QuantizeLinear

_FLOAT32 = np.dtype("float32")


class Quantized(NamedTuple):
    """Integers with the constants that say what they mean: real = (integers - zero) * scale. `axis`: of scales, where there are several."""

    integers: Value
    scale: np.ndarray
    zero: np.ndarray
    axis: int

    @property
    def per_tensor(self) -> bool:
        return self.scale.size == 1

    def parameters(self) -> tuple[Value, Value]:
        """Scale and zero point as the constants of a QLinear op: scalars or vectors."""
        shape = () if self.per_tensor else (-1,)
        name = self.integers.name
        return (
            Value(f"{name}/scale", constant=self.scale.reshape(shape)),
            Value(f"{name}/zero_point", constant=self.zero.reshape(shape)),
        )

    def same_as(self, other: Quantized) -> bool:
        """Whether both are integers of one dtype that mean the same, one scale for all."""
        return (
            self.per_tensor
            and other.per_tensor
            and self.zero.dtype == other.zero.dtype
            and self.scale.item() == other.scale.item()
            and self.zero.item() == other.zero.item()
        )


def _parameters(node: Node, integers: Value, dtype: np.dtype) -> Quantized | None:
    """A DequantizeLinear's or QuantizeLinear's constants in float32 and `dtype`, where it has such."""
    scale, zero = (*node.inputs[1:], None)[:2]
    if node.op.block_size or scale.constant is None or scale.constant.dtype != _FLOAT32 or (zero is not None and zero.constant is None):
        return None
    zeros = np.zeros(scale.constant.shape, dtype) if zero is None else zero.constant
    return Quantized(integers, scale.constant, zeros, node.op.axis)


def dequantized(value: Value | None, *dtypes: np.dtype) -> Quantized | None:
    """What `value` is made of, where a DequantizeLinear makes float32s of integers of `dtypes` (default: bytes) with constants."""
    node = made_by(value, DequantizeLinear)
    if node is None or node.op.output_dtype not in (None, _FLOAT32) or node.inputs[0].dtype not in (dtypes or BYTES):
        return None
    return _parameters(node, node.inputs[0], node.inputs[0].dtype)


def quantized(node: Node) -> Quantized | None:
    """What a QuantizeLinear makes bytes of, one scale for all: its result, with its constants."""
    if not isinstance(node.op, QuantizeLinear) or node.op.precision not in (None, _FLOAT32):
        return None
    zero = (*node.inputs[2:], None)[0]
    dtype = (node.op.output_dtype or np.dtype("uint8")) if zero is None else zero.dtype
    found = _parameters(node, node.outputs[0], dtype) if dtype in BYTES else None
    return found if found is not None and found.per_tensor else None


def quantized_result(node: Node, graph: Graph) -> Node | None:
    """The QuantizeLinear that alone uses the node's one result, if it makes bytes with one scale."""
    user = only_user(node.outputs[0], graph)
    return user if user is not None and user.inputs[0] is node.outputs[0] and quantized(user) is not None else None
