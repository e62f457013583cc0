"""Changes of dtype. ONNX Cast-28, CastLike-25, BitCast-26."""

import numpy as np

from mnnx.schema import dtypes
from mnnx.schema.ops.base import Op, Spec, op, require
from mnnx.schema.ops.elementwise import ANY, COMPLEX, STRING, Elementwise, require_dtype, require_inputs

_BITS = {"int4": 4, "uint4": 4, "float4_e2m1fn": 4, "float6_e2m3fn": 6, "float6_e3m2fn": 6, "int2": 2, "uint2": 2}


def bits(dtype: np.dtype) -> int:
    """The width of an element in bits; 6, 4 and 2 for the types of which NumPy stores one per byte."""
    return _BITS.get(dtype.name, 8 * dtype.itemsize)


class Casting(Op):
    """What casts have in common. `saturate` and `round_mode` (up, down, nearest) are for float8 results: see ONNX's tables."""

    saturate: bool = True
    round_mode: str = "up"

    def check(self):
        require(self.round_mode in ("up", "down", "nearest"), f"round_mode must be up, down or nearest; found {self.round_mode!r}")


@op("Cast")
class Cast(Casting, Elementwise):
    """x converted to the dtype `to`: integers wrap, floats are rounded (truncated to integers), text is parsed and written."""

    to: np.dtype

    def infer(self, *inputs):
        require_inputs(inputs, 1)
        require_dtype(inputs[0], ANY)
        require(self.to in ANY, f"there is no cast to {dtypes.name(self.to)}")
        require(inputs[0].dtype not in COMPLEX or self.to in COMPLEX, f"complex numbers have no cast to {dtypes.name(self.to)}")
        return Spec(self.to, inputs[0].shape)


@op("CastLike")
class CastLike(Casting):
    """x converted to the dtype of the second input, as Cast does it."""

    def infer(self, *inputs):
        require_inputs(inputs, 2)
        return Cast(to=inputs[1].dtype, saturate=self.saturate, round_mode=self.round_mode).infer(inputs[0])


@op("BitCast")
class BitCast(Op):
    """The bits of x read as the dtype `to` of the same width."""

    to: np.dtype

    def infer(self, *inputs):
        require_inputs(inputs, 1)
        x = inputs[0]
        require(x.dtype != STRING and self.to != STRING, "strings have no bits to cast")
        require(bits(x.dtype) == bits(self.to), f"both dtypes must have the same width; found {x} and {dtypes.name(self.to)}")
        return Spec(self.to, x.shape)
