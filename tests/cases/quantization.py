"""Quantization: per tensor, per axis, per block; integers of 2 to 16 bits and floats of 4 and 8."""

import ml_dtypes
import numpy as np

from mnnx.schema.ops.quantization import (
    ConvInteger,
    DequantizeLinear,
    DynamicQuantizeLinear,
    MatMulInteger,
    QLinearConv,
    QLinearMatMul,
    QuantizeLinear,
)
from tests.cases import case, f16, f32, integers

INT4, INT2, UINT2 = (np.dtype(t) for t in (ml_dtypes.int4, ml_dtypes.int2, ml_dtypes.uint2))
E4M3, E5M2 = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)
FLOATS6 = np.dtype(ml_dtypes.float6_e2m3fn), np.dtype(ml_dtypes.float6_e3m2fn)


def scale(*shape):
    return f32(*shape, low=0.01, high=0.1)


def bytes_(dtype, *shape):
    info = np.iinfo(dtype)
    return integers(dtype, *shape, low=info.min, high=info.max + 1)


case(QuantizeLinear(), f32(2, 3, 5, low=-20, high=20), scale())
case(QuantizeLinear(), f32(2, 3, 5, low=-20, high=20), scale(), np.array(128, np.uint8))
case(QuantizeLinear(axis=-1), f32(2, 3, 5), scale(5), bytes_("int8", 5))
case(QuantizeLinear(axis=0), f32(4, 7), scale(4), bytes_("int16", 4))
case(QuantizeLinear(axis=1, block_size=2), f32(3, 5), scale(3, 3), bytes_("uint8", 3, 3))
case(QuantizeLinear(), f32(0, 4), scale())
case(QuantizeLinear(), np.array([0.5, 1.5, 2.5, -0.5, -1.5], np.float32), np.array(1, np.float32), np.array(0, np.int8))
case(QuantizeLinear(output_dtype=INT4), f32(33, low=-1, high=1), scale())
case(QuantizeLinear(output_dtype=UINT2), f32(3, 4, low=-1, high=1), scale())
case(QuantizeLinear(output_dtype=E4M3), f32(3, 4, low=-100, high=100), scale())
case(QuantizeLinear(output_dtype=E5M2, saturate=False), f32(3, 4, low=-1e5, high=1e5), scale())
for dtype in FLOATS6:
    case(QuantizeLinear(output_dtype=dtype), f32(3, 4, low=-2, high=2), scale())
    case(DequantizeLinear(), f32(3, 4, low=-9, high=9).astype(dtype), scale())
case(QuantizeLinear(output_dtype=np.dtype("uint16")), f16(3, 4, low=0, high=9), f16(low=0.01, high=0.1))

case(DequantizeLinear(), bytes_("uint8", 2, 3, 5), scale(), bytes_("uint8"))
case(DequantizeLinear(), bytes_("int8", 2, 3, 5), scale(3), bytes_("int8", 3))
case(DequantizeLinear(axis=-2), bytes_("int16", 2, 3, 5), scale(3))
case(DequantizeLinear(axis=0, block_size=3), bytes_("uint8", 7, 2), scale(3, 2), bytes_("uint8", 3, 2))
case(DequantizeLinear(), integers("int32", 4, 3, low=-(10**9), high=10**9), scale())
case(DequantizeLinear(), bytes_("int8", 3, 4).astype(INT4), scale(4))
case(DequantizeLinear(axis=0), integers("int8", 3, 4, low=-2, high=2).astype(INT2), scale(3))
case(DequantizeLinear(), f32(3, 4, low=-100, high=100).astype(E4M3), scale())
case(DequantizeLinear(), bytes_("uint8", 3, 0), scale())
case(DequantizeLinear(), bytes_("uint8", 9), f16(low=0.01, high=0.1))

case(DynamicQuantizeLinear(), f32(3, 7), outputs=3)
case(DynamicQuantizeLinear(), f32(5, low=1, high=4), outputs=3)
case(DynamicQuantizeLinear(), f32(2, 5, low=-4, high=-1), outputs=3)

case(MatMulInteger(), bytes_("uint8", 5, 7), bytes_("uint8", 7, 3), bytes_("uint8"), bytes_("uint8"))
case(MatMulInteger(), bytes_("int8", 2, 5, 300), bytes_("int8", 300, 3))
case(MatMulInteger(), bytes_("uint8", 5, 7), bytes_("int8", 7, 3), bytes_("uint8"), bytes_("int8", 3))
case(MatMulInteger(), bytes_("uint8", 4, 9), bytes_("int8", 9, 4), bytes_("uint8", 4, 1), bytes_("int8"))
case(MatMulInteger(), bytes_("uint8", 2, 3, 5, 70), bytes_("uint8", 3, 70, 50), bytes_("uint8"), bytes_("uint8"))
case(MatMulInteger(), bytes_("int8", 3, 5, 64), bytes_("int8", 3, 64, 9))
case(MatMulInteger(), bytes_("int8", 7), bytes_("uint8", 2, 7, 9), None, bytes_("uint8"))
case(MatMulInteger(), bytes_("uint8", 0, 7), bytes_("uint8", 7, 3))
case(ConvInteger(pads=(1, 1, 1, 1)), bytes_("uint8", 1, 3, 6, 5), bytes_("uint8", 4, 3, 3, 3), bytes_("uint8"))
case(ConvInteger(strides=(2, 1)), bytes_("uint8", 2, 2, 7, 6), bytes_("int8", 4, 2, 3, 2), bytes_("uint8"), bytes_("int8"))
case(ConvInteger(group=2), bytes_("uint8", 1, 4, 5, 5), bytes_("uint8", 6, 2, 3, 3), bytes_("uint8"), bytes_("uint8", 6))

one = np.array(1, np.float32)
case(
    QLinearMatMul(), bytes_("uint8", 5, 7), scale(), bytes_("uint8"), bytes_("uint8", 7, 3), scale(), bytes_("uint8"), one, bytes_("uint8")
)
case(
    QLinearMatMul(),
    bytes_("int8", 2, 5, 7),
    scale(),
    bytes_("int8"),
    bytes_("int8", 7, 3),
    scale(3),
    bytes_("int8", 3),
    one,
    bytes_("int8"),
)
case(
    QLinearConv(pads=(1, 1, 1, 1)),
    *(bytes_("uint8", 1, 3, 6, 5), scale(), bytes_("uint8")),
    *(bytes_("int8", 4, 3, 3, 3), scale(4), bytes_("int8", 4)),
    *(one, bytes_("uint8"), integers("int32", 4, low=-999, high=999)),
)
for x_type, w_type, y_type, shape, kernel, attributes in (
    ("uint8", "int8", "uint8", (1, 8, 9, 37), (8, 1, 3, 3), {"pads": (1, 1, 1, 1)}),
    ("int8", "int8", "int8", (2, 5, 20, 7), (10, 1, 5, 5), {"pads": (2, 2, 2, 2), "strides": (2, 2)}),
    ("int8", "uint8", "uint8", (2, 40, 5, 6), (40, 1, 3, 3), {"pads": (1, 1, 1, 1)}),
    ("uint8", "uint8", "int8", (1, 3, 1, 40), (3, 1, 1, 7), {"pads": (0, 6, 0, 6), "dilations": (1, 2)}),
):
    channels = kernel[0]
    case(
        QLinearConv(group=shape[1], **attributes),
        *(bytes_(x_type, *shape), np.float32(0.0625), bytes_(x_type)),
        *(bytes_(w_type, *kernel), np.exp2(-integers("int64", channels, low=3, high=7)).astype(np.float32), bytes_(w_type, channels)),
        *(np.float32(3.7), bytes_(y_type), integers("int32", channels, low=-9999, high=9999)),
    )
case(  # no float is its bias
    QLinearConv(group=2),
    *(bytes_("uint8", 1, 2, 4, 4), np.float32(0.0625), bytes_("uint8")),
    *(bytes_("int8", 2, 1, 3, 3), np.float32(2.0**-20), np.int8(0)),
    *(np.float32(0.7), np.uint8(100), np.array([1 << 25, (1 << 26) + 1], np.int32)),
)
case(
    QLinearConv(strides=(2, 2), group=4),
    *(bytes_("uint8", 2, 4, 7, 6), scale(), bytes_("uint8")),
    *(bytes_("uint8", 4, 1, 3, 3), scale(), bytes_("uint8")),
    *(one, bytes_("uint8")),
)
