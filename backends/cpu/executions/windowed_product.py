"""The plan that products of constant weights with images seen through windows have in common, of floats as of bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from mnnx.backends.cpu.tiling import Tiling, block_bytes
from mnnx.backends.cpu.windows import Windows


class WindowedProduct:
    """Weights [groups, rows, depth] times the pixels [depth, P] that windows over [images, groups * channels, D, H, W] see.

    Tiles of the rows meet panels of pixels; a chunk of work is a block of panels and a part of the tiles, of one image's group. words:
    how many numbers of 32 bits a pixel of a panel has.
    """

    def __init__(self, backend, windows: Windows, images: int, groups: int, channels: int, rows: int, words: int):
        if windows.pointwise:  # all pixels in one row
            windows = Windows.pointwise_over((1, 1, windows.pixels))
        self.backend, self.windows, self.tiling = backend, windows, Tiling.of(backend.target)
        self.images, self.groups, self.channels, self.rows = images, groups, channels, rows
        self.depth, self.words = channels * windows.taps, words
        self.tiles, self.panels = -(-rows // self.tiling.rows), -(-windows.pixels // self.tiling.columns)
        self.panel_bytes = 4 * self.tiling.columns * words
        self._divide(4 * backend.threads)

    def _divide(self, wanted: int) -> None:
        """Cuts the work into at least `wanted` chunks if it can: blocks of panels, or blocks of panels × of rows."""
        threads, items = self.backend.threads, self.images * self.groups
        self.block = max(1, min(self.panels, block_bytes(self.backend.target) // self.panel_bytes))
        if threads > 1:
            self.block = max(1, min(self.block, items * self.panels // wanted))
        tasks = items * -(-self.panels // self.block)
        self.cuts_rows = threads > 1 and tasks < wanted
        self.row_chunks = min(self.tiles, -(-wanted // max(1, tasks))) if self.cuts_rows else 1
        self.tasks = tasks * self.row_chunks

    @property
    def tile_rows(self) -> int:
        """The rows of a group up to whole tiles."""
        return self.tiles * self.tiling.rows

    def offsets(self, element_size: int, channel_size: int, depth: int) -> np.ndarray:
        """Bytes from a pixel's place in a channel of `channel_size` elements to what the windows see; zeros up to `depth`."""
        offsets = np.zeros(depth, np.int64)
        taps = np.arange(self.channels)[:, None] * channel_size + self.windows.tap_offsets()
        offsets[: self.depth] = (element_size * taps).ravel()
        return offsets

    def fields(self, element_size: int, channel_size: int, source_rows: int, source_columns: int) -> dict[str, Any]:
        """What Convolution and DotConvolution, the kernels' argument blocks, have in common, of a source of such channels."""
        _, height, width = self.windows.output
        return {
            "image_bytes": element_size * self.groups * self.channels * channel_size,
            "group_bytes": element_size * self.channels * channel_size,
            "width": width,
            "height": height,
            "row_stride": element_size * source_columns,
            "plane_stride": element_size * source_rows * source_columns,
            "images": self.images,
            "groups": self.groups,
            "rows": self.rows,
            "depth": self.depth,
            "pixels": self.windows.pixels,
            "block_panels": self.block,
            "row_chunks": self.row_chunks,
            "slots": self.backend.threads,
        }
