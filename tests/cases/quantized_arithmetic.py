"""Sums and products of bytes, against float64.

Scales are powers of two, so that no result lies near the edge between two bytes by rounding alone.
"""

import numpy as np

from mnnx.schema.ops.quantized_arithmetic import QuantizedAdd, QuantizedMul
from tests.cases import case
from tests.cases.fused_quantization import bytes_


def reference(op, function):
    def compute(a, b):
        x, y = (a.astype(np.float64) - op.a_zero) * op.a_scale, (b.astype(np.float64) - op.b_zero) * op.b_scale
        info = np.iinfo(op.made)
        return np.clip(np.rint(function(x, y) / op.y_scale) + op.y_zero, info.min, info.max).astype(op.made)

    return compute


for op_class, function, y_scale in ((QuantizedAdd, np.add, 0.125), (QuantizedMul, np.multiply, 4.0)):
    one = op_class(a_scale=0.0625, a_zero=128, b_scale=0.125, b_zero=3, y_scale=y_scale, y_zero=100)
    two = op_class(a_scale=0.25, a_zero=-7, b_scale=0.0625, b_zero=0, y_scale=y_scale, y_zero=-3, output_dtype=np.dtype("int8"))
    case(one, bytes_("uint8", 2, 5, 7), bytes_("uint8", 2, 5, 7), reference=reference(one, function))
    case(one, bytes_("uint8", 2, 16, 5, 7), bytes_("int8", 2, 16, 1, 1), reference=reference(one, function))
    case(two, bytes_("int8", 1000), bytes_("int8", 1000), reference=reference(two, function))
    case(two, bytes_("int8", 3, 1), bytes_("uint8", 4, 1, 6), reference=reference(two, function))
    case(two, bytes_("int8", 0, 5), bytes_("int8", 5), reference=reference(two, function))
