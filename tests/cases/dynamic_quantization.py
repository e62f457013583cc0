"""Products of bytes that become floats by a computed scale: in int64 and float64, from the definitions of ONNX's ops.

Where x is quantized on the way, it is made of bytes, so that no element lies near the edge between two of them by rounding alone.
"""

import numpy as np

from mnnx.schema.ops.dynamic_quantization import FusedDynamicQuantizeMatMul, FusedMatMulInteger
from tests.cases import case, f32
from tests.cases.fused_quantization import FUNCTIONS, bytes_


def finished(op, sums, a_scale, b_scale, bias):
    real = sums * float(a_scale) * (1.0 if b_scale is None else b_scale.astype(np.float64)) + (0.0 if bias is None else bias)
    function = FUNCTIONS[op.activation]
    return function(real, *op.activation_parameters).astype(np.float32)


def centred(matrix, zero):
    return matrix.astype(np.int64) - (0 if zero is None else zero.astype(np.int64))


def product(a, b, a_zero=None, b_zero=None, b_scale=None, bias=None, activation="", parameters=()):
    op = FusedMatMulInteger(activation=activation, activation_parameters=parameters)

    def reference(a, b, a_zero, b_zero, a_scale, b_scale, bias):
        return finished(op, np.matmul(centred(a, a_zero), centred(b, b_zero)), a_scale, b_scale, bias)

    case(op, a, b, a_zero, b_zero, np.array(0.0175, np.float32), b_scale, bias, reference=reference)


def dynamic(low, high, shape, b, b_zero=None, b_scale=None, bias=None, activation="", parameters=()):
    """x: (bytes - zero point) * scale, with both ends of the range somewhere among its elements."""
    op = FusedDynamicQuantizeMatMul(activation=activation, activation_parameters=parameters)
    scale, x = 2.0**-6, np.zeros(shape, np.float32)
    if x.size:
        x = bytes_("uint8", *shape).astype(np.int64).clip(low, high)
        x.flat[0], x.flat[-1] = low, high
        x = (x * scale).astype(np.float32)

    def reference(x, b, b_zero, b_scale, bias):
        least, most = min(0.0, x.min(initial=0)), max(0.0, x.max(initial=0))
        step = (most - least) / 255 if most > least else 1.0
        zero = np.clip(np.rint(-least / step), 0, 255)
        quantized = np.clip(np.rint(x.astype(np.float64) / step) + zero, 0, 255).astype(np.int64)
        return finished(op, np.matmul(quantized - int(zero), centred(b, b_zero)), step, b_scale, bias)

    case(op, x, b, b_zero, b_scale, bias, reference=reference)


def scales(*shape):
    return f32(*shape, low=0.001, high=0.004)


def zero(dtype, value):
    return np.array(value, dtype)


product(bytes_("uint8", 9, 64), bytes_("int8", 64, 40), zero("uint8", 117), zero("int8", 0), scales(), f32(40))
product(bytes_("uint8", 2, 5, 33), bytes_("int8", 33, 21), zero("uint8", 3), bytes_("int8", 21), scales(21), f32(21), "Relu")
product(bytes_("uint8", 7, 20), bytes_("uint8", 20, 13), zero("uint8", 128), bytes_("uint8"), scales(1), f32(13), "Gelu")
product(bytes_("int8", 6, 17), bytes_("uint8", 17, 5), bytes_("int8"), bytes_("uint8", 5), scales(5))
product(bytes_("int8", 1, 16), bytes_("int8", 16, 33), None, None, None, f32(33), "Tanh")
product(bytes_("uint8", 12), bytes_("int8", 12, 3), zero("uint8", 40))
product(bytes_("uint8", 3, 4, 8), bytes_("int8", 3, 8, 5), zero("uint8", 130), zero("int8", 4), scales(), f32(5), "Clip", (-0.5, 0.75))
product(bytes_("uint8", 5, 8), bytes_("int8", 8, 6), zero("uint8", 9), None, scales(6), f32(6), "LeakyRelu", (0.125,))
product(bytes_("uint8", 0, 8), bytes_("int8", 8, 6), zero("uint8", 9), None, scales(6))
product(bytes_("uint8", 4, 0), bytes_("int8", 0, 6), zero("uint8", 9), None, scales(6), f32(6))

dynamic(-117, 138, (9, 64), bytes_("int8", 64, 40), zero("int8", 0), scales(), f32(40))
dynamic(0, 255, (2, 5, 33), bytes_("int8", 33, 21), bytes_("int8", 21), scales(21), f32(21), "Relu")
dynamic(-255, 0, (7, 20), bytes_("uint8", 20, 13), bytes_("uint8"), scales(1), f32(13), "Gelu")
dynamic(-100, 155, (1, 16), bytes_("uint8", 16, 33), bytes_("uint8", 33), scales(33))
dynamic(-128, 127, (3, 4, 8), bytes_("int8", 3, 8, 5), None, scales(), f32(5), "Tanh")
dynamic(-128, 127, (12,), bytes_("int8", 12, 3))
dynamic(0, 0, (4, 8), bytes_("int8", 8, 3), None, scales(3), f32(3))
dynamic(0, 0, (0, 8), bytes_("int8", 8, 6), None, scales(6))
dynamic(0, 0, (4, 0), bytes_("int8", 0, 6), None, scales(6), f32(6))
