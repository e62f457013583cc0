"""Image preprocessing in one pass over the destination: map the pixel, sample the source, change the colours, normalise, store.

A row goes through in tiles. A tile's samples lie in five float32 planes on the stack: up to four source channels (RGB for YUV and HSV
sources), 255 in the fourth where the source has no alpha, and luma in the fifth.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from mnnx.backends.cpu.kernels.intrinsics import (
    alloca,
    inlined,
    load_f32,
    load_f64,
    load_i64,
    max_number,
    min_number,
    pointer_to,
    share,
    store_u8,
)
from mnnx.backends.cpu.kernels.pixels import CHANNELS, blend_packed, clamp_byte, make_pixel, rgb_to_hsv, weighted
from mnnx.backends.cpu.kernels.registry import kernel_factory

#: For helpers with loops: part of the kernel before anything is optimised.
looping = njit(error_model="numpy", fastmath={"contract"}, inline="always", no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False)

F = np.float32
TILE = 64
ALPHA, LUMA = 3, 4
ZERO, REPEAT = 1, 2
TO_LUMA, TO_HSV = 1, 2
FAR = 2.0**30
#: Added to a nearest position: where one lies halfway but for rounding errors, the later pixel wins.
HALFWAY = 0.5 + 2.0**-20


@inlined
def split(position):
    """A position as an int32 and a fraction in [0, 1). What is too far for that lies 2³⁰ away; nan, which is nowhere, on the left."""
    position = min_number(max_number(position, -FAR), FAR)
    whole = np.int32(position)
    whole -= np.int32(position < whole)
    return whole, F(position - whole)


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


def make_sampler(kind, filter, dtype):
    """`sample(image, yuv, width, height, wrap, outside, cubic, j, i, fx, fy)`: four float32 channels at the source position
    (j + fx, i + fy); for the filter nearest at (j, i)."""
    pixel = make_pixel(kind, dtype)
    linear = kind in ("rgb", "rgba")
    size = CHANNELS.get(kind, 1) * np.dtype(dtype).itemsize
    blend = blend_packed(dtype, CHANNELS.get(kind, 1))

    @inlined
    def any_pixel(image, yuv, width, height, wrap, outside, x, y):
        x, y = wrapped(x, width, wrap), wrapped(y, height, wrap)
        if x < 0 or y < 0:
            return outside
        return pixel(image, yuv, x, y)

    @inlined
    def nearest(image, yuv, width, height, wrap, outside, cubic, j, i, fx, fy):
        return any_pixel(image, yuv, width, height, wrap, outside, j, i)

    @inlined
    def bilinear(image, yuv, width, height, wrap, outside, cubic, j, i, fx, fy):
        gx, gy = F(1) - fx, F(1) - fy
        if j >= 0 and i >= 0 and j < width - 1 and i < height - 1:
            if linear:
                at = image[0] + i * image[1] + j * size
                below = at + image[1]
                return blend(at, at + size, below, below + size, gx * gy, fx * gy, gx * fy, fx * fy)
            p, q = pixel(image, yuv, j, i), pixel(image, yuv, j + 1, i)
            r, s = pixel(image, yuv, j, i + 1), pixel(image, yuv, j + 1, i + 1)
        else:
            p = any_pixel(image, yuv, width, height, wrap, outside, j, i)
            q = any_pixel(image, yuv, width, height, wrap, outside, j + 1, i)
            r = any_pixel(image, yuv, width, height, wrap, outside, j, i + 1)
            s = any_pixel(image, yuv, width, height, wrap, outside, j + 1, i + 1)
        return weighted(p, q, r, s, gx * gy, fx * gy, gx * fy, fx * fy)

    @inlined
    def cubic_row(image, yuv, width, height, wrap, outside, weights, j, i):
        if j >= 1 and i >= 0 and j < width - 2 and i < height:
            if linear:
                at = image[0] + i * image[1] + j * size
                return blend(at - size, at, at + size, at + 2 * size, weights[0], weights[1], weights[2], weights[3])
            p, q = pixel(image, yuv, j - 1, i), pixel(image, yuv, j, i)
            r, s = pixel(image, yuv, j + 1, i), pixel(image, yuv, j + 2, i)
        else:
            p = any_pixel(image, yuv, width, height, wrap, outside, j - 1, i)
            q = any_pixel(image, yuv, width, height, wrap, outside, j, i)
            r = any_pixel(image, yuv, width, height, wrap, outside, j + 1, i)
            s = any_pixel(image, yuv, width, height, wrap, outside, j + 2, i)
        return weighted(p, q, r, s, weights[0], weights[1], weights[2], weights[3])

    @inlined
    def bicubic(image, yuv, width, height, wrap, outside, cubic, j, i, fx, fy):
        across, down = cubic_weights(fx, cubic), cubic_weights(fy, cubic)
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
    channels = CHANNELS.get(kind, 3)
    f32, i32 = pointer_to("float32"), pointer_to("int32")
    scratch = alloca(9 * TILE * 4)
    shift = HALFWAY if filter == "nearest" else 0.0

    @inlined
    def plane_at(planes, index):
        return f32(planes + index * (TILE * 4))

    @looping
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

    @looping
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
        columns, rows = i32(planes + 5 * TILE * 4), i32(planes + 6 * TILE * 4)
        x_parts, y_parts = f32(planes + 7 * TILE * 4), f32(planes + 8 * TILE * 4)
        if channels < 4:
            for i in range(TILE):
                out[ALPHA * TILE + i] = F(255)
        first, last = share(load_i64(args + 34 * 8), part, parts, 1)
        for row in range(first, last):
            across, down, depth = xy * row + x0, yy * row + y0, wy * row + w0
            if affine:
                across, down = across + shift, down + shift
            for start in range(0, dest_width, TILE):
                count = min(TILE, dest_width - start)
                if affine:
                    for i in range(count):
                        columns[i], x_parts[i] = split(xx * (start + i) + across)
                        rows[i], y_parts[i] = split(yx * (start + i) + down)
                else:
                    for i in range(count):
                        w = wx * (start + i) + depth
                        columns[i], x_parts[i] = split((xx * (start + i) + across) / w + shift)
                        rows[i], y_parts[i] = split((yx * (start + i) + down) / w + shift)
                for i in range(count):
                    a, b, c, d = sample(image, yuv, width, height, wrap, outside, cubic, columns[i], rows[i], x_parts[i], y_parts[i])
                    out[i] = a
                    if channels > 1:
                        out[TILE + i], out[2 * TILE + i] = b, c
                    if channels > 3:
                        out[3 * TILE + i] = d
                change_colours(args, planes, count)
                store(args, planes, row, start, count)

    return run
