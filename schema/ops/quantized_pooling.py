"""Means of bytes that stand for numbers, real = (byte - zero) * scale, as the converter's passes make them."""

import math

import numpy as np

from mnnx.schema.ops.base import Op, Spec, op, require
from mnnx.schema.ops.elementwise import require_dtype
from mnnx.schema.ops.pooling import GlobalPooling, Pooling

_BYTES = (np.dtype("int8"), np.dtype("uint8"))
_FLOAT32 = np.dtype("float32")


class QuantizedMean(Op):
    """x, int8 or uint8 → bytes of `output_dtype`, uint8 where it isn't given: quantized means of what x stands for.

    y = saturate(round(sum * factor) + y_zero): the sum of (x - x_zero) is exact, up to 2^24; the factor is x_scale / (y_scale * count)
    in float32, for the count of what the mean is of; their product is rounded to the nearest integer, halves to even.
    """

    x_scale: float = 1.0
    x_zero: int = 0
    y_scale: float = 1.0
    y_zero: int = 0
    output_dtype: np.dtype | None = None

    @property
    def made(self) -> np.dtype:
        """The dtype of the result."""
        return _BYTES[1] if self.output_dtype is None else self.output_dtype

    def check(self) -> None:
        super().check()
        require(self.output_dtype in (None, *_BYTES), f"output_dtype must be int8 or uint8, not {self.output_dtype}")
        scales = (self.x_scale, self.y_scale)
        require(all(map(math.isfinite, scales)) and self.y_scale > 0, f"scales must be finite, y_scale positive; they are {scales}")
        zeros = (self.x_zero, self.y_zero)
        require(all(-128 <= zero <= 255 for zero in zeros), f"zero points must be bytes; they are {zeros}")

    def factors(self, counts: np.ndarray | int) -> np.ndarray:
        """What sums of so many pixels are multiplied by; of none at all as of one."""
        with np.errstate(over="ignore"):
            return (self.x_scale / (self.y_scale * np.maximum(counts, 1))).astype(_FLOAT32)


@op("mnnx::QuantizedAveragePool")
class QuantizedAveragePool(QuantizedMean, Pooling):
    """The mean of each window, as AveragePool's. A window with nothing to count gives y_zero."""

    count_include_pad: bool = False

    def infer(self, x: Spec) -> Spec:
        require_dtype(x, _BYTES)
        return Spec(self.made, (*x.shape[:2], *self.geometry(x.shape).output))


@op("mnnx::QuantizedGlobalAveragePool")
class QuantizedGlobalAveragePool(QuantizedMean, GlobalPooling):
    """The mean over all spatial dims: [N, C, spatial…] → [N, C, 1…]."""

    def infer(self, x: Spec) -> Spec:
        require_dtype(x, _BYTES)
        require(x.rank >= 2, f"{self.name} needs an input of rank 2 or more (N, C, spatial dims); it is {x}")
        require(all(x.shape[2:]), f"{self.name} needs spatial dims that are not empty; x is {x}")
        return Spec(self.made, (*x.shape[:2], *(1 for _ in x.shape[2:])))
