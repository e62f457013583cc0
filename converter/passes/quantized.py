"""Products between DequantizeLinear and QuantizeLinear become products of integers, and data is moved while it is quantized.

Quantizers of models write them as float ops between a DequantizeLinear of each operand and a QuantizeLinear of the result. Computed in
integers the sums are exact; the result is rounded once, as the float form's would be but for the rounding of its sums; so are means. Sums
and products of single bytes are computed as their float forms are.
"""

from __future__ import annotations

from mnnx.converter.passes.base import RulePass
from mnnx.converter.passes.quantized_arithmetic import QuantizeArithmetic
from mnnx.converter.passes.quantized_bounds import BoundsOfBytes
from mnnx.converter.passes.quantized_concat import DequantizeAfterConcat, QuantizeBeforeConcat
from mnnx.converter.passes.quantized_conv import QuantizeConv
from mnnx.converter.passes.quantized_matmul import QuantizeGemm, QuantizeMatMul
from mnnx.converter.passes.quantized_movement import (
    DequantizeAfterMoving,
    QuantizeBeforeMoving,
    QuantizedAgain,
    ScaleBeforeMoving,
    ShapeOfIntegers,
)
from mnnx.converter.passes.quantized_pooling import QuantizePooling
from mnnx.converter.passes.quantized_table import TabulateQuantized


class QuantizedRecognition(RulePass):
    """Makes ops of bytes of products, sums and means between DequantizeLinear and QuantizeLinear, tables of others; moves bytes for floats.

    The order counts: bytes are moved first, so that products find them.
    """

    name = "quantized-recognition"
    level = 2
    rules = (
        ShapeOfIntegers(),
        ScaleBeforeMoving(),
        BoundsOfBytes(),
        QuantizeBeforeMoving(),
        QuantizeBeforeConcat(),
        QuantizedAgain(),
        TabulateQuantized(),
        DequantizeAfterMoving(),
        DequantizeAfterConcat(),
        QuantizeMatMul(),
        QuantizeGemm(),
        QuantizeConv(),
        QuantizeArithmetic(),
        QuantizePooling(),
    )
