"""Depthwise convolutions in the blocked layout: a vector is `lanes` channels of a pixel, each with weights of its own."""

from __future__ import annotations

import math

import numpy as np

from mnnx.backends.cpu.arguments import address_of, aligned, arguments
from mnnx.backends.cpu.executions.blocked_tables import row_table
from mnnx.backends.cpu.kernel import kernel
from mnnx.backends.cpu.kernels.blocked_words import BlockedDepthwise
from mnnx.backends.cpu.windows import Windows

_MOST_TAPS = 16


class BlockedDepthwisePlan:
    """The plan of x [N, C, H, W] → y [N, C, H', W'], both blocked. `columns`: other ones than the best of `column_counts`."""

    def __init__(self, backend, windows: Windows, images: int, channels: int, columns: int | None = None):
        self.backend, self.windows, self.images, self.channels = backend, windows, images, channels
        self.lanes = backend.block_width
        self.blocks = -(-channels // self.lanes)
        self.columns = columns or self.column_counts(windows, backend.target.vector_registers)[0]

    @classmethod
    def column_counts(cls, windows: Windows, registers: int) -> list[int]:
        """How many pixels a tile may have, the best number first; none where there is no tile for these windows."""
        width, taps, stride = windows.output[2], windows.kernel[2], windows.strides[2]
        left, right = cls.padding(windows)
        most = registers - taps - 3
        if windows.output[0] != 1 or taps > _MOST_TAPS or most < 1:
            return []
        most = min(most, 14)
        shapes = [n for n in range(1, min(most, width) + 1) if n == width or max(left, right) <= min(n, width - n) * stride]
        return sorted(shapes, key=lambda n: (-(-width // n) * (n * taps + 4), -n))

    @staticmethod
    def padding(windows: Windows) -> tuple[int, int]:
        """Columns of padding that windows reach on either side."""
        reach = (windows.output[2] - 1) * windows.strides[2] - windows.begin[2] + (windows.kernel[2] - 1) * windows.dilations[2]
        return windows.begin[2], max(0, reach - (windows.input[2] - 1))

    #: Working memory needed.
    scratch_bytes = 0
    algorithm = "depthwise"

    @property
    def name(self) -> str:
        """Tells it from other plans of the same convolution."""
        return f"{self.algorithm} {self.columns}"

    @property
    def packing(self) -> tuple:
        """Names how the weights are packed."""
        return ("depthwise", self.lanes)

    @property
    def cycles(self) -> float:
        """An estimate of the time on one core."""
        tiles = self.images * self.blocks * self.windows.output[1] * -(-self.windows.output[2] // self.columns)
        return tiles * self.columns * (self.windows.taps / 2 + 2)

    @property
    def overlaps(self) -> bool:
        """Whether tiles overlap, so that pixels are computed twice."""
        return self.windows.output[2] % self.columns != 0

    def pack_weights(self, w: np.ndarray) -> np.ndarray:
        """[C, 1, kernel…] → [blocks][taps][lanes]."""
        packed = aligned(4 * self.blocks * self.lanes * self.windows.taps).view(np.float32).reshape(self.blocks, -1, self.lanes)
        whole = np.zeros((self.blocks * self.lanes, self.windows.taps), np.float32)
        whole[: self.channels] = w.reshape(self.channels, -1)
        packed[...] = whole.reshape(self.blocks, self.lanes, -1).swapaxes(1, 2)
        return packed

    def pack_bias(self, bias: np.ndarray | None) -> np.ndarray:
        packed = np.zeros(self.blocks * self.lanes, np.float32)
        if bias is not None:
            packed[: self.channels] = bias
        return packed

    def record(
        self, x: int, weights: np.ndarray, bias: np.ndarray, target: int, residual: int, epilogue: tuple[str, np.ndarray], scratch: int = 0
    ) -> None:
        """Records the unit. `weights`, `bias`: as packed; `epilogue`: kind and parameters; the others are addresses (residual 0: none)."""
        windows, pixel_bytes = self.windows, 4 * self.lanes
        kind, parameters = epilogue
        (_, height, width), (_, _, across), (_, row_dilation, dilation) = windows.output, windows.strides, windows.dilations
        rows = row_table(windows, pixel_bytes, width * pixel_bytes, 1)
        values = BlockedDepthwise(
            source=x - windows.begin[2] * pixel_bytes,
            plane_bytes=math.prod(windows.input) * pixel_bytes,
            row_bytes=row_dilation * windows.input[2] * pixel_bytes,
            row_table=address_of(rows),
            height=height,
            width=width,
            stride_bytes=across * pixel_bytes,
            weights=address_of(weights),
            weight_bytes=weights[0].nbytes,
            bias=address_of(bias),
            target=target,
            target_bytes=windows.pixels * pixel_bytes,
            residual=residual,
            parameters=address_of(parameters),
            blocks=self.blocks,
            images=self.images,
        )
        left, right = self.padding(windows)
        depthwise = kernel(
            "blocked_convolution.depthwise", columns=self.columns, single=int(self.columns == width), taps=windows.kernel[2], stride=across,
            dilation=dilation, left=left, right=right, lanes=self.lanes, fma=self.backend.target.fma, kind=kind,
        )  # fmt: skip
        rows_in_all = self.images * self.blocks * height
        chunks = min(rows_in_all, self.backend.chunks(rows_in_all * width * windows.taps))
        self.backend.commands.record(depthwise, arguments(*values), chunks, (rows, weights, bias, parameters))
