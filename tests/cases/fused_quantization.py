"""Quantized products with what follows them, step by step as ONNX defines each, and functions of single bytes.

Scales are powers of two where results are bytes, so that no sum lies near the edge between two of them by rounding alone.
"""

import math

import numpy as np

from mnnx.schema.ops.fused_quantization import ByteTable, ByteTableConcat, FusedQLinearMatMul
from tests.cases import case, f32, integers


def bytes_(dtype, *shape):
    info = np.iinfo(dtype)
    return integers(dtype, *shape, low=info.min, high=info.max + 1)


def quantized(real, zero):
    info = np.iinfo(zero.dtype)
    return np.clip(np.rint(real) + int(zero), info.min, info.max).astype(zero.dtype)


#: Activations by name.
FUNCTIONS = {
    "": lambda x: x,
    "Relu": lambda x: np.maximum(x, 0),
    "Clip": np.clip,
    "LeakyRelu": lambda x, alpha: np.where(x >= 0, x, alpha * x),
    "Tanh": np.tanh,
    "Gelu": lambda x: x * np.vectorize(lambda v: 0.5 * (1 + math.erf(v / math.sqrt(2))))(x),
}


def reference(op):
    def compute(a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero, bias=None, addend=None, out_scale=None, out_zero=None):
        sums = np.matmul(a.astype(np.int64) - int(a_zero), b.astype(np.int64) - b_zero.astype(np.int64))
        y = quantized((sums + (0 if bias is None else bias)) * (a_scale * b_scale / y_scale).astype(np.float64), y_zero)
        if not op.dequantizes:
            return y
        real = (y.astype(np.float64) - int(y_zero)) * y_scale + (0 if addend is None else addend)
        real = FUNCTIONS[op.activation](real)
        return real.astype(np.float32) if out_scale is None else quantized(real / out_scale, out_zero)

    return compute


def product(a, b, *rest, y_type="uint8", columns=False, **attributes):
    op = FusedQLinearMatMul(**attributes)
    n = b.shape[-1]
    b_scale = np.exp2(integers("int64", *((n,) if columns else ()), low=-6, high=-3)).astype(np.float32)
    b_zero = bytes_(b.dtype.name, n) if columns else np.array(0, b.dtype)
    y_zero = bytes_(y_type)
    one = np.array(0.25, np.float32)
    case(op, a, one, bytes_(a.dtype.name), b, b_scale, b_zero, np.array(2, np.float32), y_zero, *rest, reference=reference(op))


def quarter(*shape):
    return (integers("int64", *shape, low=-20, high=20) / 4).astype(np.float32)


step, zero = np.array(0.5, np.float32), np.array(7, np.int8)
product(bytes_("uint8", 9, 33), bytes_("int8", 33, 20), integers("int32", 20, low=-999, high=999))
product(bytes_("int8", 3, 5, 8), bytes_("uint8", 8, 3), integers("int32", 3, low=-999, high=999), y_type="int8", columns=True)
product(bytes_("uint8", 9, 32), bytes_("int8", 32, 50), dequantizes=True)
product(bytes_("uint8", 2, 9, 32), bytes_("int8", 32, 50), None, quarter(50), dequantizes=True)
product(bytes_("uint8", 9, 32), bytes_("int8", 32, 50), None, quarter(50), step, zero, dequantizes=True)
product(bytes_("int8", 9, 3), bytes_("int8", 3, 5), None, None, step, zero, dequantizes=True, activation="Relu")
product(bytes_("uint8", 9, 32), bytes_("int8", 32, 5), integers("int32", 5, low=-9, high=9), f32(5), dequantizes=True, activation="Gelu")
product(bytes_("uint8", 9, 32), bytes_("int8", 32, 5), None, f32(5), dequantizes=True, activation="Tanh", columns=True)
product(bytes_("uint8", 2, 3, 5, 7), bytes_("int8", 2, 3, 7, 6), None, quarter(6), step, zero, dequantizes=True)
product(bytes_("uint8", 2, 1, 5, 7), bytes_("int8", 3, 7, 6), dequantizes=True)
product(bytes_("uint8", 0, 7), bytes_("int8", 7, 6), None, quarter(6), dequantizes=True)
product(bytes_("uint8", 4, 0), bytes_("int8", 0, 6), integers("int32", 6, low=-9, high=9))

case(ByteTable(), bytes_("uint8", 3, 70), bytes_("uint8", 256), reference=lambda x, table: table[x])
case(ByteTable(), bytes_("int8", 1000), bytes_("int8", 256), reference=lambda x, table: table[x.astype(np.int64) % 256])
case(ByteTable(), bytes_("int8", 3, 5), f32(256), reference=lambda x, table: table[x.astype(np.int64) % 256])
case(ByteTable(), bytes_("uint8", 0, 5), f32(256), reference=lambda x, table: table[x])
case(ByteTable(), bytes_("uint8", 5), integers("int64", 256), reference=lambda x, table: table[x])


def joined(axis):
    """Tables by parts: the first and the third have one."""

    def compute(a, a_table, b, none, c, c_table):
        return np.concatenate([a_table[a.astype(np.int64) % 256], b, c_table[c.astype(np.int64) % 256]], axis)

    return compute


for axis, shapes in (
    (1, ((1, 3, 4, 16), (1, 2, 4, 16), (1, 5, 4, 16))),
    (1, ((2, 3, 5), (2, 1, 5), (2, 4, 5))),
    (-1, ((3, 5), (3, 0), (3, 7))),
):
    a, b, c = (bytes_(dtype, *shape) for dtype, shape in zip(("uint8", "int8", "int8"), shapes, strict=True))
    tables = bytes_("int8", 256), bytes_("int8", 256)
    case(ByteTableConcat(axis=axis), a, tables[0], b, None, c, tables[1], reference=joined(axis))
case(ByteTableConcat(axis=0), bytes_("uint8", 5), None, bytes_("uint8", 3), reference=lambda a, none, b: np.concatenate([a, b]))
