"""Sums and products of bytes that stand for numbers, real = (byte - zero) * scale, as the converter's passes make them."""

import math

import numpy as np

from mnnx.schema.ops.base import Op, Spec, op, require
from mnnx.schema.ops.elementwise import broadcast, require_dtype, require_inputs

_BYTES = (np.dtype("int8"), np.dtype("uint8"))


class QuantizedBinary(Op):
    """(a, b), int8 or uint8 each, broadcast together → bytes of `output_dtype`, uint8 where it isn't given.

    The result / y_scale is rounded to the nearest integer, halves to even; y_zero is added, and it saturates. Computed in float32.
    """

    a_scale: float = 1.0
    a_zero: int = 0
    b_scale: float = 1.0
    b_zero: int = 0
    y_scale: float = 1.0
    y_zero: int = 0
    output_dtype: np.dtype | None = None

    @property
    def made(self) -> np.dtype:
        """The dtype of the result."""
        return _BYTES[1] if self.output_dtype is None else self.output_dtype

    def check(self) -> None:
        require(self.output_dtype in (None, *_BYTES), f"output_dtype must be int8 or uint8, not {self.output_dtype}")
        scales = (self.a_scale, self.b_scale, self.y_scale)
        require(
            all(math.isfinite(scale) for scale in scales) and self.y_scale > 0,
            f"scales must be finite, y_scale positive; they are {scales}",
        )
        zeros = (self.a_zero, self.b_zero, self.y_zero)
        require(all(-128 <= zero <= 255 for zero in zeros), f"zero points must be bytes; they are {zeros}")

    def infer(self, *inputs: Spec | None) -> Spec:
        require_inputs(inputs, 2)
        for spec in inputs:
            require_dtype(spec, _BYTES)
        return Spec(self.made, broadcast(*(spec.shape for spec in inputs)))


@op("mnnx::QuantizedAdd")
class QuantizedAdd(QuantizedBinary):
    """a + b of quantized a and b, quantized."""


@op("mnnx::QuantizedMul")
class QuantizedMul(QuantizedBinary):
    """a * b of quantized a and b, quantized."""
