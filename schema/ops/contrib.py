"""Ops that ONNX Runtime adds to ONNX and that no composition of ours expresses."""

from mnnx.schema.ops.base import Op, Spec, op, require
from mnnx.schema.ops.rules import require_floats


@op("com.microsoft::Inverse")
class Inverse(Op):
    """Inverses of square matrices [*, M, M]; where a matrix has none, the result is infinite or NaN."""

    def infer(self, x: Spec) -> Spec:
        require_floats(x=x)
        require(x.rank >= 2 and x.shape[-1] == x.shape[-2], f"Inverse needs square matrices; x is {x}")
        return Spec(x.dtype, x.shape)
