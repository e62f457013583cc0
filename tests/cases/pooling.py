"""Poolings: windows with strides, dilations, padding and ceil_mode, indices, global ones, and MaxUnpool."""

import math

import numpy as np

from mnnx.schema.ops.pooling import AveragePool, GlobalAveragePool, GlobalLpPool, GlobalMaxPool, LpPool, MaxPool, MaxUnpool
from tests.cases import case, f16, f32, f64, i64, integers


def largest(kernel_shape, strides=None, pads=None, ceil_mode=False):
    """Maxima of windows of bytes: onnx's reference pads these with a NaN that it casts."""
    rank = len(kernel_shape)
    strides, pads = strides or (1,) * rank, pads or (0,) * (2 * rank)

    def compute(x):
        ends = [-(-n // s) * s if ceil_mode else 0 for n, s in zip(x.shape[2:], strides, strict=True)]
        margins = [(first, last + end) for first, last, end in zip(pads[:rank], pads[rank:], ends, strict=True)]
        padded = np.pad(x, ((0, 0), (0, 0), *margins), constant_values=np.iinfo(x.dtype).min)
        windows = np.lib.stride_tricks.sliding_window_view(padded, kernel_shape, range(2, 2 + rank))
        sizes = zip(x.shape[2:], kernel_shape, strides, pads[:rank], pads[rank:], strict=True)
        counts = [(math.ceil if ceil_mode else math.floor)((n + first + last - k) / s) + 1 for n, k, s, first, last in sizes]
        steps = tuple(slice(0, count * s, s) for count, s in zip(counts, strides, strict=True))
        return windows[(..., *steps, *(slice(None),) * rank)].max(tuple(range(-rank, 0)))

    return compute


case(MaxPool(kernel_shape=(2, 2), strides=(2, 2)), f32(1, 16, 8, 8))
case(MaxPool(kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)), f32(2, 5, 9, 8))
case(MaxPool(kernel_shape=(3, 3), strides=(2, 2), ceil_mode=True), f32(1, 3, 8, 8))
case(MaxPool(kernel_shape=(3, 3), strides=(2, 2), ceil_mode=True), f32(1, 3, 2, 5))
case(MaxPool(kernel_shape=(3, 2), dilations=(2, 2)), f32(1, 3, 7, 7))
case(MaxPool(kernel_shape=(2, 2), auto_pad="SAME_UPPER", strides=(2, 2)), f32(1, 3, 7, 5))
case(MaxPool(kernel_shape=(3, 3), auto_pad="SAME_LOWER"), f32(1, 3, 5, 5))
case(MaxPool(kernel_shape=(5, 5), strides=(2, 2), pads=(2, 2, 2, 2)), f32(1, 2, 5, 5), outputs=2)
case(MaxPool(kernel_shape=(2, 2), strides=(2, 2), storage_order=True), f32(2, 2, 4, 6), outputs=2)
case(MaxPool(kernel_shape=(3,), strides=(2,)), f32(2, 3, 9))
case(MaxPool(kernel_shape=(2, 3, 2), strides=(2, 1, 2)), f32(1, 2, 4, 5, 6))
case(MaxPool(kernel_shape=(3, 3), pads=(1, 1, 1, 1)), f32(1, 20, 5, 5, low=-3, high=-1))
case(MaxPool(kernel_shape=(2, 2)), integers("int8", 1, 2, 4, 4, low=-9, high=9), reference=lambda x: pairs(x))
case(MaxPool(kernel_shape=(2, 2)), integers("uint8", 1, 2, 4, 4))
for dtype in ("int8", "uint8"):
    info = np.iinfo(dtype)
    for shape, attributes in (
        ((2, 5, 9, 40), {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}),
        ((1, 3, 37, 5), {"kernel_shape": (5, 3), "pads": (2, 0, 2, 0)}),
        ((1, 2, 7, 70), {"kernel_shape": (3, 2), "strides": (1, 3), "ceil_mode": True}),
        ((3, 2, 9), {"kernel_shape": (3,), "strides": (2,)}),
        ((1, 2, 4, 5, 6), {"kernel_shape": (2, 3, 2), "strides": (2, 1, 2)}),
    ):
        case(MaxPool(**attributes), integers(dtype, *shape, low=info.min, high=info.max + 1), reference=largest(**attributes))
case(MaxPool(kernel_shape=(2, 2)), f64(1, 2, 4, 4))
case(MaxPool(kernel_shape=(2, 2)), f16(1, 2, 4, 4))
case(MaxPool(kernel_shape=(2, 2)), f32(0, 2, 4, 4), reference=lambda x: np.zeros((0, 2, 3, 3), np.float32))

case(AveragePool(kernel_shape=(2, 2), strides=(2, 2)), f32(1, 16, 8, 8))
case(AveragePool(kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)), f32(2, 5, 9, 8))
case(AveragePool(kernel_shape=(3, 3), pads=(1, 1, 1, 1), count_include_pad=True), f32(1, 3, 6, 6))
case(AveragePool(kernel_shape=(3, 3), strides=(2, 2), ceil_mode=True), f32(1, 3, 8, 8))
case(AveragePool(kernel_shape=(5, 3), strides=(3, 2), ceil_mode=True), f32(1, 3, 3, 2), reference=lambda x: x.mean((2, 3), keepdims=True))
case(AveragePool(kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1), ceil_mode=True, count_include_pad=True), f32(1, 3, 8, 8))
case(AveragePool(kernel_shape=(2, 2), dilations=(2, 2)), f32(1, 3, 5, 6))
case(AveragePool(kernel_shape=(2, 2), auto_pad="SAME_UPPER"), f32(1, 3, 4, 4))
case(AveragePool(kernel_shape=(3,), strides=(2,)), f32(2, 3, 9))
case(AveragePool(kernel_shape=(2, 2, 2)), f32(1, 2, 3, 4, 3))
case(AveragePool(kernel_shape=(7, 7)), f32(1, 33, 7, 7))
case(AveragePool(kernel_shape=(2, 2)), f16(1, 2, 4, 4), rtol=1e-2)

case(LpPool(kernel_shape=(2, 2), strides=(2, 2)), f32(1, 3, 6, 6))
case(LpPool(kernel_shape=(3, 3), pads=(1, 1, 1, 1), p=1), f32(1, 3, 5, 5))
case(LpPool(kernel_shape=(2, 2), dilations=(2, 2), p=3), f32(1, 2, 5, 5))
case(LpPool(kernel_shape=(3,), strides=(2,)), f32(2, 3, 9))

case(GlobalAveragePool(), f32(2, 17, 5, 7))
case(GlobalAveragePool(), f32(1, 3, 4))
case(GlobalAveragePool(), f16(1, 3, 4, 4), rtol=1e-2, atol=1e-2)
case(GlobalMaxPool(), f32(2, 17, 5, 7))
case(GlobalMaxPool(), f32(1, 3, 2, 3, 4), reference=lambda x: x.max(axis=(2, 3, 4), keepdims=True))


def pairs(x):
    """Maxima of 2 x 2 windows."""
    return np.max([x[..., i : i + 3, j : j + 3] for i in (0, 1) for j in (0, 1)], axis=0)


def lp(p):
    return lambda x: (np.abs(x.astype(np.float64)) ** p).sum(axis=(2, 3), keepdims=True) ** (1 / p)


case(GlobalLpPool(), f32(2, 3, 4, 5), reference=lambda x: lp(2)(x).astype(x.dtype))
case(GlobalLpPool(p=1), f32(2, 3, 4, 5), reference=lambda x: lp(1)(x).astype(x.dtype))
case(GlobalLpPool(p=3), f64(2, 3, 4, 5), reference=lp(3))

INDICES = np.array([[[[5, 7], [13, 15]]]], np.int64)
case(MaxUnpool(kernel_shape=(2, 2), strides=(2, 2)), f32(1, 1, 2, 2), INDICES)
case(MaxUnpool(kernel_shape=(2, 2), strides=(2, 2)), f32(1, 1, 2, 2), INDICES, i64(1, 1, 5, 5))
