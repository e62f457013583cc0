"""Means of quantized pixels, window by window, against float64.

Scales are such that no mean lies half-way between two bytes.
"""

import itertools

import numpy as np

from mnnx.schema.ops.quantized_pooling import QuantizedAveragePool, QuantizedGlobalAveragePool
from tests.cases import case
from tests.cases.fused_quantization import bytes_


def quantized(op, mean):
    info = np.iinfo(op.made)
    return int(np.clip(np.rint(mean * op.x_scale / op.y_scale) + op.y_zero, info.min, info.max))


def windows(op, counts, begin, end):
    """The mean of each window; counts: of windows in each dim, begin and end: the padding."""
    rank = len(counts)
    strides, dilations = op.strides or (1,) * rank, op.dilations or (1,) * rank

    def compute(x):
        y = np.zeros((*x.shape[:2], *counts), op.made)
        for index in np.ndindex(y.shape):
            total = number = 0
            for tap in itertools.product(*map(range, op.kernel_shape)):
                place = [i * s + k * d - b for i, s, k, d, b in zip(index[2:], strides, tap, dilations, begin, strict=True)]
                inside = all(0 <= p < n for p, n in zip(place, x.shape[2:], strict=True))
                padded = all(-b <= p < n + e for p, n, b, e in zip(place, x.shape[2:], begin, end, strict=True))
                total += int(x[(*index[:2], *place)]) - op.x_zero if inside else 0
                number += inside or (op.count_include_pad and padded)
            y[index] = quantized(op, total / max(number, 1))
        return y

    return compute


def whole(op):
    def compute(x):
        means = x.astype(np.float64).mean(tuple(range(2, x.ndim))) - op.x_zero
        return np.array([quantized(op, mean) for mean in means.reshape(-1)], op.made).reshape(*x.shape[:2], *(1,) * (x.ndim - 2))

    return compute


_SIGNED = {"x_scale": 0.031, "x_zero": -9, "y_scale": 0.017, "y_zero": 13, "output_dtype": np.dtype("int8")}
_UNSIGNED = {"x_scale": 0.023, "x_zero": 100, "y_scale": 0.029, "y_zero": 120}
_PADDED = {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}

for x, scales, attributes, counts, begin, end in (
    (bytes_("uint8", 2, 5, 9, 8), _UNSIGNED, {"kernel_shape": (2, 2), "strides": (2, 2)}, (4, 4), (0, 0), (0, 0)),
    (bytes_("int8", 1, 3, 11, 40), _SIGNED, _PADDED, (6, 20), (1, 1), (1, 1)),
    (bytes_("uint8", 1, 3, 7, 6), _SIGNED, {**_PADDED, "count_include_pad": True}, (4, 3), (1, 1), (1, 1)),
    (bytes_("uint8", 1, 2, 8, 8), _UNSIGNED, {"kernel_shape": (3, 3), "strides": (2, 2), "ceil_mode": True}, (4, 4), (0, 0), (0, 0)),
    (bytes_("int8", 1, 2, 6, 7), _UNSIGNED, {"kernel_shape": (2, 3), "dilations": (2, 2)}, (4, 3), (0, 0), (0, 0)),
    (bytes_("uint8", 2, 3, 9), _UNSIGNED, {"kernel_shape": (3,), "strides": (2,)}, (4,), (0,), (0,)),
    (bytes_("int8", 1, 2, 3, 4, 5), _SIGNED, {"kernel_shape": (2, 2, 3)}, (2, 3, 3), (0, 0, 0), (0, 0, 0)),
    (bytes_("uint8", 0, 2, 4, 4), _UNSIGNED, {"kernel_shape": (2, 2)}, (3, 3), (0, 0), (0, 0)),
):
    op = QuantizedAveragePool(**attributes, **scales)
    case(op, x, reference=windows(op, counts, begin, end))

for scales, x in (
    (_UNSIGNED, bytes_("uint8", 2, 70, 7, 7)),
    (_SIGNED, bytes_("int8", 1, 3, 50, 41)),
    (_SIGNED, bytes_("uint8", 3, 5, 4)),
    (_UNSIGNED, bytes_("int8", 1, 2, 2, 3, 4)),
    (_UNSIGNED, bytes_("uint8", 0, 2, 3, 3)),
):
    op = QuantizedGlobalAveragePool(**scales)
    case(op, x, reference=whole(op))
