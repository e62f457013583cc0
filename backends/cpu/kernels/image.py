"""Image preprocessing in one pass over the destination: map the pixel, sample the source, change the colours, normalise, store.

A row goes through in tiles. A tile's samples lie in five float32 planes on the stack: up to four source channels (RGB for YUV and HSV
sources), 255 in the fourth where the source has no alpha, and luma in the fifth.
"""

from __future__ import annotations

import math

import numpy as np

from mnnx.backends.cpu.kernels.intrinsics import (
    absolute,
    alloca,
    inlined,
    load_f32,
    load_f64,
    load_i64,
    maximum,
    minimum,
    pointer_to,
    share,
    store_u8,
)
from mnnx.backends.cpu.kernels.registry import kernel_factory

F = np.float32
TILE = 64
ALPHA, LUMA = 3, 4
ZERO, REPEAT = 1, 2
TO_LUMA, TO_HSV = 1, 2
FAR = 2.0**30
#: Added to a nearest position: where one lies halfway but for rounding errors, the later pixel wins.
HALFWAY = 0.5 + 2.0**-20


@inlined
def clamp_byte(value):
    return minimum(maximum(value, F(0)), F(255))


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
    red = minimum(maximum(absolute(sixth - F(3)) - F(1), F(0)), F(1))
    green = minimum(maximum(F(2) - absolute(sixth - F(2)), F(0)), F(1))
    blue = minimum(maximum(F(2) - absolute(sixth - F(4)), F(0)), F(1))
    return value - chroma * (F(1) - red), value - chroma * (F(1) - green), value - chroma * (F(1) - blue)


@inlined
def rgb_to_hsv(red, green, blue):
    value = maximum(maximum(red, green), blue)
    chroma = value - minimum(minimum(red, green), blue)
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
def within(position):
    """A position as an integer may hold it; nan, which is nowhere, lies far left."""
    if not position > -FAR:
        position = -FAR
    return FAR if position > FAR else position


@inlined
def wrapped(index, size, wrap):
    """An index 0 … size-1 of a row or column for any index; -1 outside where the wrap is ZERO."""
    if 0 <= index < size:
        return index
    if wrap == ZERO:
        return -1
    if wrap == REPEAT:
        return index % size
    return 0 if index < 0 else size - 1


@inlined
def cubic_weights(t, a):
    """Keys' weights of the pixels at -1, 0, 1, 2 for a position t in [0, 1)."""
    s, u, v = F(1) - t, F(1) + t, F(2) - t
    return (
        ((a * u - F(5) * a) * u + F(8) * a) * u - F(4) * a,
        ((a + F(2)) * t - (a + F(3))) * t * t + F(1),
        ((a + F(2)) * s - (a + F(3))) * s * s + F(1),
        ((a * v - F(5) * a) * v + F(8) * a) * v - F(4) * a,
    )


@inlined
def weighted(p, q, r, s, a, b, c, d):
    """Four pixels with weights a, b, c, d."""
    return (
        a * p[0] + b * q[0] + c * r[0] + d * s[0],
        a * p[1] + b * q[1] + c * r[1] + d * s[1],
        a * p[2] + b * q[2] + c * r[2] + d * s[2],
        a * p[3] + b * q[3] + c * r[3] + d * s[3],
    )


def make_pixel(kind, dtype):
    """`pixel(image, yuv, x, y)`: four float32 channels of the source pixel (x, y); those that the kind lacks are 0."""
    at = pointer_to(dtype)
    size = np.dtype(dtype).itemsize
    channels = {"gray": 1, "rgb": 3, "rgba": 4, "hsv": 3}.get(kind, 0)

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


def make_sampler(kind, filter, dtype):
    """`sample(image, yuv, width, height, wrap, outside, cubic, x, y)`: four float32 channels at the source position (x, y)."""
    pixel = make_pixel(kind, dtype)

    @inlined
    def any_pixel(image, yuv, width, height, wrap, outside, x, y):
        x, y = wrapped(x, width, wrap), wrapped(y, height, wrap)
        if x < 0 or y < 0:
            return outside
        return pixel(image, yuv, x, y)

    @inlined
    def nearest(image, yuv, width, height, wrap, outside, cubic, x, y):
        return any_pixel(image, yuv, width, height, wrap, outside, math.floor(x + HALFWAY), math.floor(y + HALFWAY))

    @inlined
    def bilinear(image, yuv, width, height, wrap, outside, cubic, x, y):
        j, i = math.floor(x), math.floor(y)
        fx, fy = F(x - j), F(y - i)
        if j >= 0 and i >= 0 and j < width - 1 and i < height - 1:
            p, q = pixel(image, yuv, j, i), pixel(image, yuv, j + 1, i)
            r, s = pixel(image, yuv, j, i + 1), pixel(image, yuv, j + 1, i + 1)
        else:
            p = any_pixel(image, yuv, width, height, wrap, outside, j, i)
            q = any_pixel(image, yuv, width, height, wrap, outside, j + 1, i)
            r = any_pixel(image, yuv, width, height, wrap, outside, j, i + 1)
            s = any_pixel(image, yuv, width, height, wrap, outside, j + 1, i + 1)
        gx, gy = F(1) - fx, F(1) - fy
        return weighted(p, q, r, s, gx * gy, fx * gy, gx * fy, fx * fy)

    @inlined
    def cubic_row(image, yuv, width, height, wrap, outside, weights, j, i):
        p = any_pixel(image, yuv, width, height, wrap, outside, j - 1, i)
        q = any_pixel(image, yuv, width, height, wrap, outside, j, i)
        r = any_pixel(image, yuv, width, height, wrap, outside, j + 1, i)
        s = any_pixel(image, yuv, width, height, wrap, outside, j + 2, i)
        return weighted(p, q, r, s, weights[0], weights[1], weights[2], weights[3])

    @inlined
    def bicubic(image, yuv, width, height, wrap, outside, cubic, x, y):
        j, i = math.floor(x), math.floor(y)
        across, down = cubic_weights(F(x - j), cubic), cubic_weights(F(y - i), cubic)
        p = cubic_row(image, yuv, width, height, wrap, outside, across, j, i - 1)
        q = cubic_row(image, yuv, width, height, wrap, outside, across, j, i)
        r = cubic_row(image, yuv, width, height, wrap, outside, across, j, i + 1)
        s = cubic_row(image, yuv, width, height, wrap, outside, across, j, i + 2)
        a, b, c, d = weighted(p, q, r, s, down[0], down[1], down[2], down[3])
        if dtype == "uint8":
            return clamp_byte(a), clamp_byte(b), clamp_byte(c), clamp_byte(d)
        return a, b, c, d

    return {"nearest": nearest, "bilinear": bilinear, "bicubic": bicubic}[filter]


@kernel_factory("image.process")
def process(kind, filter, dtype):
    """Destination rows of an image: `kind` of the source gray, rgb, rgba, yuv or hsv, its dtype uint8 or float32.

    The block's slots of 8 bytes: 0 source address (luma for yuv), 1 its row stride, 2 U address, 3 V address, 4 chroma row stride,
    5 chroma pixel stride, 6 width, 7 height, 8 wrap (0 clamp, 1 zero, 2 repeat), 9–12 the pixel outside (float32), 13–21 matrix
    (float64), 22–27 YUV luma offset and scale, V to red, U and V to green, U to blue (float32), 28 cubic coefficient (float32),
    29 destination address, 30 row, 31 channel, 32 pixel stride, 33 width, 34 height, 35 whether it is uint8 (else float32),
    36 colour step (0 none, 1 to luma, 2 to HSV), 37–39 planes of red, green and blue, 40 channels, 41–44 each channel's plane,
    45–48 mean, 49–52 normal (float32). Strides count bytes. A float32 stands in the low half of its slot.
    """
    sample = make_sampler(kind, filter, dtype)
    channels = {"gray": 1, "rgba": 4}.get(kind, 3)
    f32 = pointer_to("float32")
    scratch = alloca(5 * TILE * 4)

    @inlined
    def plane_at(planes, index):
        return f32(planes + index * (TILE * 4))

    @inlined
    def store(args, planes, row, start, count):
        for channel in range(load_i64(args + 40 * 8)):
            values = plane_at(planes, load_i64(args + (41 + channel) * 8))
            mean, normal = load_f32(args + (45 + channel) * 8), load_f32(args + (49 + channel) * 8)
            step = load_i64(args + 32 * 8)
            to = load_i64(args + 29 * 8) + row * load_i64(args + 30 * 8) + channel * load_i64(args + 31 * 8) + start * step
            if load_i64(args + 35 * 8) == 0:
                out = f32(to)
                if step == 4:
                    for i in range(count):
                        out[i] = (values[i] - mean) * normal
                else:
                    for i in range(count):
                        out[i * (step >> 2)] = (values[i] - mean) * normal
            else:
                for i in range(count):
                    store_u8(to + i * step, np.uint8(np.int32(clamp_byte((values[i] - mean) * normal) + F(0.5))))

    @inlined
    def change_colours(args, planes, count):
        step = load_i64(args + 36 * 8)
        if step == 0:
            return
        red, green = plane_at(planes, load_i64(args + 37 * 8)), plane_at(planes, load_i64(args + 38 * 8))
        blue = plane_at(planes, load_i64(args + 39 * 8))
        if step == TO_LUMA:
            luma = plane_at(planes, LUMA)
            for i in range(count):
                luma[i] = F(0.299) * red[i] + F(0.587) * green[i] + F(0.114) * blue[i]
        else:
            first, second, third = plane_at(planes, 0), plane_at(planes, 1), plane_at(planes, 2)
            for i in range(count):
                first[i], second[i], third[i] = rgb_to_hsv(red[i], green[i], blue[i])

    def run(args, part, parts):
        image = (
            load_i64(args),
            load_i64(args + 8),
            load_i64(args + 16),
            load_i64(args + 24),
            load_i64(args + 32),
            load_i64(args + 40),
        )
        width, height, wrap = load_i64(args + 48), load_i64(args + 56), load_i64(args + 64)
        outside = (load_f32(args + 72), load_f32(args + 80), load_f32(args + 88), load_f32(args + 96))
        matrix = args + 13 * 8
        yuv = (
            load_f32(args + 176),
            load_f32(args + 184),
            load_f32(args + 192),
            load_f32(args + 200),
            load_f32(args + 208),
            load_f32(args + 216),
        )
        cubic = load_f32(args + 224)
        dest_width = load_i64(args + 33 * 8)
        xx, xy, x0 = load_f64(matrix), load_f64(matrix + 8), load_f64(matrix + 16)
        yx, yy, y0 = load_f64(matrix + 24), load_f64(matrix + 32), load_f64(matrix + 40)
        wx, wy, w0 = load_f64(matrix + 48), load_f64(matrix + 56), load_f64(matrix + 64)
        affine = wx == 0 and wy == 0 and w0 == 1
        planes = scratch()
        out = f32(planes)
        if channels < 4:
            for i in range(TILE):
                out[ALPHA * TILE + i] = F(255)
        first, last = share(load_i64(args + 34 * 8), part, parts, 1)
        for row in range(first, last):
            across, down, depth = xy * row + x0, yy * row + y0, wy * row + w0
            for start in range(0, dest_width, TILE):
                count = min(TILE, dest_width - start)
                for i in range(count):
                    x, y = xx * (start + i) + across, yx * (start + i) + down
                    if not affine:
                        w = wx * (start + i) + depth
                        x, y = x / w, y / w
                    a, b, c, d = sample(image, yuv, width, height, wrap, outside, cubic, within(x), within(y))
                    out[i] = a
                    if channels > 1:
                        out[TILE + i], out[2 * TILE + i] = b, c
                    if channels > 3:
                        out[3 * TILE + i] = d
                change_colours(args, planes, count)
                store(args, planes, row, start, count)

    return run
