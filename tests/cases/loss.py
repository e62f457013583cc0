"""Rows of the ops in schema/ops/loss.py."""

from mnnx.schema.ops import loss as ops
from tests.cases import case, f16, f32, f64, i64, integers

for op_class, outputs in ((ops.NegativeLogLikelihoodLoss, 1), (ops.SoftmaxCrossEntropyLoss, 2)):
    for reduction in ("none", "sum", "mean"):
        op = op_class(reduction=reduction)
        case(op, f32(4, 5), integers("int64", 4, high=5), outputs=outputs)
        case(op, f32(2, 3, 4), integers("int32", 2, 4, high=3), f32(3, low=0.1), outputs=outputs)
        case(op, f64(2, 3, 4, 5), integers("int64", 2, 4, 5, high=3), outputs=outputs)
        case(op, f16(3, 6), integers("int64", 3, high=6), f16(6, low=0.1), outputs=outputs, rtol=1e-2, atol=1e-2)
        case(op, f32(2, 3, 40, 50), integers("int64", 2, 40, 50, high=3), f32(3, low=0.1))
        case(op_class(reduction=reduction, ignore_index=-100), f32(5, 4), i64(0, -100, 3, -100, 2), outputs=outputs)
        ignoring = op_class(reduction=reduction, ignore_index=1)
        case(ignoring, f32(6, 3), integers("int64", 6, high=3), outputs=outputs)
        case(ignoring, f32(2, 3, 7), integers("int64", 2, 7, high=3), f32(3, low=0.1), outputs=outputs)
