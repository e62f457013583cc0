"""Scale and shift of blocked float32 images, per channel."""

from __future__ import annotations

import functools

from numba import types
from numba.extending import intrinsic

from mnnx.backends.cpu.kernels.chain_words import GRAIN
from mnnx.backends.cpu.kernels.intrinsics import share
from mnnx.backends.cpu.kernels.registry import kernel_factory
from mnnx.backends.cpu.kernels.vectors import Loop, Vectors, load_words

_words = load_words(7)


@functools.cache
def make_affine(lanes: int, fma: bool):
    """An intrinsic affine(source, target, count, scale, shift): each of `count` vectors times the one at `scale`, plus that at `shift`."""

    @intrinsic
    def affine(typing, source, target, count, scale, shift):
        def codegen(context, builder, signature, arguments):
            source, target, count, scale, shift = arguments
            v = Vectors(builder, lanes, fma)
            factor, term = v.load(scale), v.load(shift)
            with Loop(builder, count) as loop:
                offset = builder.mul(loop.index, v.index(4 * lanes))
                v.store(v.fma(v.load(source, offset), factor, term), target, offset)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), codegen

    return affine


@kernel_factory("blocked_affine")
def make(lanes: int, fma: bool):
    """Arguments: x [images, blocks, pixels, lanes], y like x, images, blocks, pixels, scale and shift [blocks, lanes]."""
    affine, pixel = make_affine(lanes, fma), 4 * lanes

    def run(args, part, parts):
        source, target, images, blocks, pixels, scale, shift = _words(args)
        start, last = share(images * blocks * pixels, part, parts, GRAIN // lanes)
        while start < last:
            row, rest = start // pixels, start % pixels
            count, channel = min(pixels - rest, last - start), row % blocks * pixel
            affine(source + start * pixel, target + start * pixel, count, scale + channel, shift + channel)
            start += count

    return run
