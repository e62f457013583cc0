"""Between the plain layout [N, C, P] and the blocked one [N, blocks, P, lanes] of float32 tensors, by transposing squares in registers."""

import functools

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mnnx.backends.cpu.kernels.intrinsics import inlined, load_f32, share, store_f32
from mnnx.backends.cpu.kernels.registry import kernel_factory
from mnnx.backends.cpu.kernels.vectors import Vectors, load_words

_words = load_words(5)
_TILE = 256  # pixels of a block that are moved together


@functools.cache
def make_transpose(lanes: int):
    """An intrinsic transpose(source, source_stride, sources, target, target_stride, targets): target[j][i] = source[i][j] for i, j < lanes.

    Only the first `sources` rows of the source are read, the others being 0, and the first `targets` rows of the target written.
    """

    def zipped(builder, v, a, b, start):
        order = [index for i in range(start, start + lanes // 2) for index in (i, lanes + i)]
        return builder.shuffle_vector(a, b, ir.Constant(v.integers, order))

    @intrinsic
    def transpose(typing, source, source_stride, sources, target, target_stride, targets):
        def codegen(context, builder, signature, arguments):
            source, source_stride, sources, target, target_stride, targets = arguments
            v = Vectors(builder, lanes, False)
            rows, half = [], lanes // 2
            for i in range(lanes):
                present = builder.icmp_signed("<", v.index(i), sources)
                row = v.load(builder.add(source, builder.select(present, builder.mul(source_stride, v.index(i)), v.index(0))))
                rows.append(builder.select(present, row, v.constant(0)))
            for _ in range(lanes.bit_length() - 1):
                rows = [zipped(builder, v, rows[i], rows[i + half], start) for i in range(half) for start in (0, half)]
            for i, row in enumerate(rows):
                with builder.if_then(builder.icmp_signed("<", v.index(i), targets)):
                    v.store(row, builder.add(target, builder.mul(target_stride, v.index(i))))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), codegen

    return transpose


@kernel_factory("repack")
def make(lanes: int, to_blocks: bool):
    """Arguments: source, target, images N, channels C, pixels P. Lanes past the last channel become 0."""
    transpose = make_transpose(lanes)
    pixel_bytes = 4 * lanes

    @inlined
    def move_tile(plain, plane_bytes, blocked, count, channels):
        """`count` pixels, at least `lanes`, of `channels` planes to or from a block; the last square may overlap the one before."""
        for pixel in range(0, count, lanes):
            start = min(pixel, count - lanes)
            here, there = plain + 4 * start, blocked + pixel_bytes * start
            if to_blocks:
                transpose(here, plane_bytes, channels, there, pixel_bytes, lanes)
            else:
                transpose(there, pixel_bytes, lanes, here, plane_bytes, channels)

    @inlined
    def move_pixels(plain, plane_bytes, blocked, count, channels):
        """Few pixels, one by one."""
        for pixel in range(count):
            for channel in range(lanes):
                here, there = plain + channel * plane_bytes + 4 * pixel, blocked + pixel_bytes * pixel + 4 * channel
                if to_blocks:
                    store_f32(there, load_f32(here) if channel < channels else np.float32(0))
                elif channel < channels:
                    store_f32(here, load_f32(there))

    def run(args, part, parts):
        source, target, images, channels, pixels = _words(args)
        plain_start, blocked_start = (source, target) if to_blocks else (target, source)
        blocks, tiles = (channels + lanes - 1) // lanes, max(1, pixels // _TILE)
        first, last = share(images * blocks * tiles, part, parts, 1)
        for item in range(first, last):
            row, tile = item // tiles, item % tiles
            image, block = row // blocks, row % blocks
            start, end = share(pixels, tile, tiles, lanes)
            plain = plain_start + 4 * ((image * channels + block * lanes) * pixels + start)
            blocked = blocked_start + pixel_bytes * (row * pixels + start)
            present = min(lanes, channels - block * lanes)
            if pixels < lanes:
                move_pixels(plain, 4 * pixels, blocked, end - start, present)
            elif present == lanes:
                move_tile(plain, 4 * pixels, blocked, end - start, lanes)
            else:
                move_tile(plain, 4 * pixels, blocked, end - start, present)

    return run
