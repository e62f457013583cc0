"""Pixels of images: how they lie in memory, how their colours change, how four of them are mixed."""

from __future__ import annotations

import functools
import math

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mnnx.backends.cpu.kernels.intrinsics import F32, I8, absolute, at, inlined, max_number, min_number, pointer_to

F = np.float32
#: Channels per pixel of the packed kinds.
CHANNELS = {"gray": 1, "rgb": 3, "rgba": 4, "hsv": 3}


@inlined
def clamp_byte(value):
    return min_number(max_number(value, F(0)), F(255))


@inlined
def yuv_to_rgb(y, u, v, yuv):
    offset, scale, v_red, u_green, v_green, u_blue = yuv
    y, u, v = (y - offset) * scale, u - F(128), v - F(128)
    return clamp_byte(y + v_red * v), clamp_byte(y - u_green * u - v_green * v), clamp_byte(y + u_blue * u)


@inlined
def hsv_to_rgb(hue, saturation, value):
    """Hue counts 180 to the turn, saturation 255 to one. A channel is value · (1 − saturation · clip(|…| − 1)), by its distance in hue."""
    chroma = value * saturation * F(1 / 255)
    sixth = hue * F(1 / 30)
    sixth -= F(math.floor(sixth * F(1 / 6))) * F(6)
    red = min_number(max_number(absolute(sixth - F(3)) - F(1), F(0)), F(1))
    green = min_number(max_number(F(2) - absolute(sixth - F(2)), F(0)), F(1))
    blue = min_number(max_number(F(2) - absolute(sixth - F(4)), F(0)), F(1))
    return value - chroma * (F(1) - red), value - chroma * (F(1) - green), value - chroma * (F(1) - blue)


@inlined
def rgb_to_hsv(red, green, blue):
    value = max_number(max_number(red, green), blue)
    chroma = value - min_number(min_number(red, green), blue)
    inverse = F(30) / chroma if chroma > F(0) else F(0)
    if value == red:
        hue = (green - blue) * inverse
    elif value == green:
        hue = F(60) + (blue - red) * inverse
    else:
        hue = F(120) + (red - green) * inverse
    if hue < F(0):
        hue += F(180)
    return hue, (F(255) * chroma / value if value > F(0) else F(0)), value


@inlined
def weighted(p, q, r, s, a, b, c, d):
    """Four pixels with weights a, b, c, d."""
    return (
        a * p[0] + b * q[0] + c * r[0] + d * s[0],
        a * p[1] + b * q[1] + c * r[1] + d * s[1],
        a * p[2] + b * q[2] + c * r[2] + d * s[2],
        a * p[3] + b * q[3] + c * r[3] + d * s[3],
    )


@functools.cache
def blend_packed(dtype: str, channels: int):
    """An intrinsic: `weighted` of the packed pixels at four addresses, all channels of a pixel in one vector."""

    @intrinsic
    def blend(typing, p, q, r, s, a, b, c, d):
        pixels = types.UniTuple(types.float32, 4)

        def codegen(context, builder, signature, arguments):
            vector = ir.VectorType(F32, channels)
            total = None
            for address, weight in zip(arguments[:4], arguments[4:], strict=True):
                if dtype == "uint8":
                    bytes_ = builder.load(at(builder, address, ir.VectorType(I8, channels)), align=1)
                    value = builder.uitofp(bytes_, vector)
                else:
                    value = builder.load(at(builder, address, vector), align=4)
                weights = ir.Constant(vector, ir.Undefined)
                for lane in range(channels):
                    weights = builder.insert_element(weights, weight, ir.Constant(ir.IntType(32), lane))
                product = builder.fmul(value, weights, flags=("contract",))
                total = product if total is None else builder.fadd(total, product, flags=("contract",))
            lanes = [builder.extract_element(total, ir.Constant(ir.IntType(32), lane)) for lane in range(channels)]
            return context.make_tuple(builder, pixels, lanes + [ir.Constant(F32, 0)] * (4 - channels))

        return pixels(*[types.int64] * 4, *[types.float32] * 4), codegen

    return blend


def make_pixel(kind, dtype):
    """`pixel(image, yuv, x, y)`: four float32 channels of the source pixel (x, y); those that the kind lacks are 0."""
    at = pointer_to(dtype)
    size = np.dtype(dtype).itemsize
    channels = CHANNELS.get(kind, 0)

    @inlined
    def packed(image, yuv, x, y):
        p = at(image[0] + y * image[1] + x * (channels * size))
        if channels == 1:
            return F(p[0]), F(0), F(0), F(0)
        if channels == 3:
            return F(p[0]), F(p[1]), F(p[2]), F(0)
        return F(p[0]), F(p[1]), F(p[2]), F(p[3])

    @inlined
    def hsv(image, yuv, x, y):
        hue, saturation, value, _ = packed(image, yuv, x, y)
        red, green, blue = hsv_to_rgb(hue, saturation, value)
        return red, green, blue, F(0)

    @inlined
    def planar_yuv(image, yuv, x, y):
        chroma = (y >> 1) * image[4] + (x >> 1) * image[5]
        luma, u, v = at(image[0] + y * image[1]), at(image[2] + chroma), at(image[3] + chroma)
        red, green, blue = yuv_to_rgb(F(luma[x]), F(u[0]), F(v[0]), yuv)
        return red, green, blue, F(0)

    return {"yuv": planar_yuv, "hsv": hsv}.get(kind, packed)
