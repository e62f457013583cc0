"""Rows of the ops in schema/ops/loss.py."""

from mnnx.schema.ops import loss as ops
from tests.cases import case, f32, f64, integers

for op_class, outputs in ((ops.NegativeLogLikelihoodLoss, 1), (ops.SoftmaxCrossEntropyLoss, 2)):
    for reduction in ("none", "sum", "mean"):
        op = op_class(reduction=reduction)
        case(op, f32(4, 5), integers("int64", 4, high=5), outputs=outputs)
        case(op, f32(2, 3, 4), integers("int32", 2, 4, high=3), f32(3, low=0.1), outputs=outputs)
        case(op, f64(2, 3, 4, 5), integers("int64", 2, 4, 5, high=3), outputs=outputs)
        ignoring = op_class(reduction=reduction, ignore_index=1)
        case(ignoring, f32(6, 3), integers("int64", 6, high=3), outputs=outputs)
        case(ignoring, f32(2, 3, 7), integers("int64", 2, 7, high=3), f32(3, low=0.1), outputs=outputs)
