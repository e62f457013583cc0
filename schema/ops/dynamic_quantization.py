"""Products of bytes that become floats by a computed scale, as the converter's passes make them of what dynamic quantization writes."""

from collections.abc import Sequence

import numpy as np

from mnnx.schema.ops.base import Spec, op, require
from mnnx.schema.ops.elementwise import require_dtype
from mnnx.schema.ops.fused import Fused
from mnnx.schema.ops.quantization import MatMulInteger
from mnnx.schema.ops.rules import require_shape

_FLOAT32, _UINT8 = np.dtype("float32"), np.dtype("uint8")


def _finished(sums: Spec, b: Spec, b_scale: Spec | None, bias: Spec | None) -> Spec:
    """The floats made of a product's sums."""
    require(b.rank >= 2, f"b must be a matrix; it is {b}")
    columns = sums.shape[-1:]
    for what, parameter in (("b_scale", b_scale), ("bias", bias)):
        require(parameter is None or parameter.dtype == _FLOAT32, f"{what} must be float32; it is {parameter}")
    require_shape("b_scale", b_scale, (), (1,), columns)
    require_shape("bias", bias, columns)
    return Spec(_FLOAT32, sums.shape)


@op("mnnx::FusedMatMulInteger")
class FusedMatMulInteger(Fused, MatMulInteger):
    """(a, b, a_zero_point?, b_zero_point?, a_scale, b_scale?, bias?) → activation(MatMulInteger(…) * (a_scale * b_scale) + bias).

    a_scale: a float32; b_scale: one or one per column of b, which has two dims or more; bias: float32 [N]. All in float32.
    """

    def infer(
        self,
        a: Spec,
        b: Spec,
        a_zero_point: Spec | None,
        b_zero_point: Spec | None,
        a_scale: Spec,
        b_scale: Spec | None = None,
        bias: Spec | None = None,
    ) -> Spec:
        sums = MatMulInteger.infer(self, a, b, a_zero_point, b_zero_point)
        require(a_scale.dtype == _FLOAT32 and a_scale.size == 1, f"a_scale must be one float32; it is {a_scale}")
        return _finished(sums, b, b_scale, bias)


@op("mnnx::FusedDynamicQuantizeMatMul")
class FusedDynamicQuantizeMatMul(Fused):
    """(x, b, b_zero_point?, b_scale?, bias?) → FusedMatMulInteger of DynamicQuantizeLinear(x), float32, and b."""

    def infer(
        self, x: Spec, b: Spec, b_zero_point: Spec | None = None, b_scale: Spec | None = None, bias: Spec | None = None
    ) -> Spec:  # fmt: skip
        require_dtype(x, (_FLOAT32,), "x")
        return _finished(MatMulInteger().infer(*self.product_inputs(x, b, b_zero_point)), b, b_scale, bias)

    @staticmethod
    def product_inputs(x: Spec, b: Spec, b_zero_point: Spec | None = None, *_others: Spec | None) -> list[Spec | None]:
        """The inputs of the MatMulInteger in it."""
        return [Spec(_UINT8, x.shape), b, Spec(_UINT8, ()), b_zero_point]

    def flops(self, inputs: Sequence[Spec | None], outputs: Sequence[Spec | None]) -> int:
        return 2 * outputs[0].size * inputs[0].shape[-1]
