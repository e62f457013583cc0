"""Convolutions of bytes in int32: the plan of ConvInteger and QLinearConv. Weights are constant."""

from __future__ import annotations

import math

import numpy as np

from mnnx.backends.cpu.arguments import address_of, arguments, round_up
from mnnx.backends.cpu.executions.windowed_product import WindowedProduct
from mnnx.backends.cpu.kernel import kernel
from mnnx.backends.cpu.kernels.dot_words import DotConvolution, DotSpread
from mnnx.backends.cpu.tiling import Tiling
from mnnx.backends.cpu.windows import Windows
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.records import Row

_INT32 = np.dtype("int32")


class Weights(Row):
    """Packed weights, their sums per column (or row of a convolution), their zero points negated (None: all 0)."""

    panels: np.ndarray
    sums: np.ndarray
    factors: np.ndarray | None


class Zero(Row):
    """The zero point of the left operand: its address (0: none) and the operand's dtype."""

    address: int
    dtype: np.dtype

    @classmethod
    def of(cls, zero: DeviceTensor | None, dtype: np.dtype) -> Zero:
        return cls(0 if zero is None else address_of(zero), dtype)


def negated_zeros(tiling: Tiling, dtype: np.dtype, zero: np.ndarray | None, count: int) -> np.ndarray:
    """The zero points of the right operand, one for each of `count` columns, negated, as they are among `signed_words`."""
    values = tiling.signed_zero(np.zeros(1, dtype) if zero is None else zero.reshape(-1))
    return -np.broadcast_to(values, (count,)).astype(_INT32)


class ImageProduct(WindowedProduct):
    """Images of bytes seen through windows times constant weights [groups * rows, channels, …] → int32 [images, groups * rows, pixels]."""

    def __init__(self, backend, windows: Windows, images: int, groups: int, channels: int, rows: int):
        words = Tiling.of(backend.target).words(channels * windows.taps)
        super().__init__(backend, windows, images, groups, channels, rows, words)
        spread = images * groups * channels * self.windows.spread_size + self.tiling.lanes
        self.spread_bytes = round_up(self.tiling.element_size * spread)
        self.slot_bytes = round_up(self.block * (self.panel_bytes + 4 * self.tiling.columns))

    @property
    def scratch_bytes(self) -> int:
        return self.spread_bytes + self.backend.threads * self.slot_bytes

    def pack(self, w: np.ndarray, zero: np.ndarray | None) -> Weights:
        tiling, groups, height = self.tiling, self.groups, self.tile_rows
        rows = w.reshape(groups, self.rows, self.depth)
        panels = tiling.pack_rows(tiling.signed_words(rows)).reshape(-1)
        ones = tiling.signed_words(np.ones(self.depth, np.int8))
        sums, factors = np.zeros((groups, height), _INT32), np.zeros((groups, height), _INT32)
        sums[:, : self.rows] = (rows.astype(_INT32) + tiling.signed_zero(np.zeros(1, w.dtype))).sum(2)
        factors[:, : self.rows] = negated_zeros(tiling, w.dtype, zero, groups * self.rows).reshape(groups, self.rows)
        return Weights(np.concatenate([panels, ones]), sums, factors if factors.any() else None)

    def record(self, x: int, zero: Zero, weights: Weights, biases: np.ndarray, target: int, scratch: int) -> None:
        """Records the units; `biases` int32 of the shape of weights.sums; x, target and scratch are addresses."""
        backend, tiling, windows, size = self.backend, self.tiling, self.windows, self.tiling.element_size
        signed, flip, channels = zero.dtype == np.int8, tiling.flip(zero.dtype), self.images * self.groups * self.channels
        channel_bytes = size * windows.spread_size
        spread = DotSpread(
            x, scratch, channels, math.prod(windows.input), channel_bytes, windows.spread_rows, zero.address, signed, flip
        )  # fmt: skip
        chunks = min(channels * windows.spread_rows, backend.chunks(channels * windows.spread_size / 8))
        backend.commands.record(
            kernel("dot_image.spread", lanes=tiling.lanes, mode=tiling.dot), arguments(*spread, *windows.geometry), chunks
        )
        offsets = self.offsets(size, windows.spread_size, self.words * tiling.dot_group)
        flags = np.zeros(backend.threads, np.int64)
        block = DotConvolution(
            **self.fields(size, windows.spread_size, *windows.spread[1:]),
            source=scratch,
            offsets=address_of(offsets),
            weights=address_of(weights.panels),
            weight_bytes=4 * self.tile_rows * self.words,
            sums=address_of(weights.sums),
            factors=0 if weights.factors is None else address_of(weights.factors),
            biases=address_of(biases),
            zero=zero.address,
            signed=signed,
            flip=flip,
            target=target,
            words=self.words,
            memory=scratch + self.spread_bytes,
            flags=address_of(flags),
            slot_bytes=self.slot_bytes,
        )
        work = self.images * self.groups * self.panels * tiling.vectors * self.tile_rows * self.words
        convolution = kernel("dot_image.product", **tiling.dot_parameters)
        backend.commands.record(convolution, arguments(*block), min(self.tasks, backend.chunks(work)), (weights, biases, offsets, flags))
