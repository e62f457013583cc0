"""The product of matrices at the heart of a convolution: weights [M, depth] times pixels [depth, P], for every group of every image."""

from __future__ import annotations

import math

import numpy as np

from mnnx.backends.cpu.arguments import address_of, arguments, float32_bits, round_up
from mnnx.backends.cpu.executions.windowed_product import WindowedProduct
from mnnx.backends.cpu.kernel import kernel
from mnnx.backends.cpu.kernels.blocks import MULTIPLY, PACK, Convolution, Spread
from mnnx.backends.cpu.windows import Windows

#: Fewer rows of weights than this read pixels in place rather than to pack them first.
_ROWS_WORTH_PACKING = 40


class PixelProduct(WindowedProduct):
    """The plan of one product: x [images, groups * channels, D, H, W] seen through `windows` → [images, groups * rows, pixels]."""

    def __init__(self, backend, windows: Windows, images: int, groups: int, channels: int, rows: int):
        super().__init__(backend, windows, images, groups, channels, rows, words=channels * windows.taps)
        self.reads_in_place = windows.pointwise and rows < _ROWS_WORTH_PACKING
        self.packs_first = self.cuts_rows and not self.reads_in_place
        self.spread_bytes = 0
        if self.windows.spread_needed:
            self.spread_bytes = round_up(4 * (images * groups * channels * self.windows.spread_size + self.tiling.lanes))

    @property
    def scratch_bytes(self) -> int:
        whole = self.images * self.groups * self.panels * self.panel_bytes
        return self.spread_bytes + (whole if self.packs_first else self.backend.threads * self.block * self.panel_bytes)

    def pack_weights(self, w: np.ndarray) -> np.ndarray:
        """[groups, rows, depth] as the kernel reads them."""
        return self.tiling.pack_rows(w.reshape(self.groups, self.rows, self.depth))

    def record(
        self, x: int, weights: np.ndarray, bias: np.ndarray, target: int, residual: int, epilogue: tuple[str, np.ndarray], scratch: int
    ):
        """Records the units. `weights`: from `pack_weights`; `bias` [groups, tile_rows]; `epilogue`: its kind and parameters; the
        others are addresses (residual 0: none)."""
        windows, backend, lanes = self.windows, self.backend, self.tiling.lanes
        source, channel_size, (_, source_rows, source_columns) = x, math.prod(windows.input), windows.input
        channels = self.images * self.groups * self.channels
        if windows.spread_needed:
            spread = Spread(x, scratch, channels, 4 * channel_size, 4 * windows.spread_size, windows.spread_rows, float32_bits(0.0))
            source, channel_size, (_, source_rows, source_columns) = scratch, windows.spread_size, windows.spread
            chunks = backend.chunks(channels * windows.spread_size / lanes)
            backend.commands.record(kernel("spread.images", lanes=lanes), arguments(*spread, *windows.geometry), chunks)
        offsets = self.offsets(4, channel_size, self.depth)
        flags = np.zeros(backend.threads, np.int64)
        kind, parameters = epilogue
        values = Convolution(
            **self.fields(4, channel_size, source_rows, source_columns),
            source=source,
            offsets=address_of(offsets),
            slack=windows.spread_needed,
            weights=address_of(weights),
            weight_bytes=weights[0].nbytes,
            bias=address_of(bias),
            target=target,
            residual=residual,
            parameters=address_of(parameters),
            packed=scratch + self.spread_bytes,
            packed_bytes=self.panels * self.panel_bytes if self.packs_first else 0,
            flags=address_of(flags),
            slot_bytes=self.block * self.panel_bytes,
            to_do=MULTIPLY if self.packs_first else PACK | MULTIPLY,
            in_place=4 * channel_size if self.reads_in_place else 0,
        )
        product = kernel("convolution.product", kind=kind, **self.tiling.parameters)
        panels = self.images * self.groups * self.panels
        if self.packs_first:
            pack = values._replace(to_do=PACK, block_panels=1, row_chunks=1)
            chunks = min(panels, backend.chunks(panels * self.panel_bytes / 4 / lanes))
            backend.commands.record(product, arguments(*pack), chunks, (offsets, flags))
        chunks = min(self.tasks, backend.chunks(panels * self.tiling.vectors * self.tile_rows * self.depth))
        backend.commands.record(product, arguments(*values), chunks, (weights, bias, parameters, offsets, flags))
