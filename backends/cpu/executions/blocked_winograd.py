"""Convolutions of 3×3 windows with stride 1 by Winograd's algorithm, in the blocked layout."""

from __future__ import annotations

import math

import numpy as np

from mnnx.backends.cpu.arguments import address_of, aligned, arguments, round_up
from mnnx.backends.cpu.executions.blocked_product import DEPTH, TileShape, tile_cycles
from mnnx.backends.cpu.kernel import kernel
from mnnx.backends.cpu.kernels.blocked_words import MULTIPLY, TRANSFORM, BlockedWinograd
from mnnx.backends.cpu.kernels.winograd import POINTS, matrices
from mnnx.backends.cpu.windows import Windows

#: Cycles to transform a block of a square, by its number of points, to and fro.
_TRANSFORM_CYCLES = 8.0
#: Bytes of weights that come from memory in a cycle.
_WEIGHT_BYTES_PER_CYCLE = 4
#: Fewer pixels are never worth it.
_LEAST_PIXELS = 4


class BlockedWinogradPlan:
    """The plan of x [N, C, H, W] → y [N, M, H', W'], both blocked; F(square, 3). `shape`: another one than `TileShape.best`."""

    def __init__(self, backend, windows: Windows, images: int, channels: int, outputs: int, square: int, shape: TileShape | None = None):
        self.backend, self.windows, self.images, self.channels, self.outputs = backend, windows, images, channels, outputs
        self.square, self.points, self.lanes = square, (square + 2) ** 2, backend.block_width
        self.algorithm = f"winograd {square}"
        self.in_blocks, self.blocks = -(-channels // self.lanes), -(-outputs // self.lanes)
        self.down, self.across = (-(-size // square) for size in windows.output[1:])
        self.squares = images * self.down * self.across
        self.width = min(self.squares, self._most_squares())
        self.shape = shape or TileShape.best(self.width, self.blocks, self.lanes, backend.target.vector_registers)
        self.tail, self.depth = self.blocks % self.shape.vectors, min(self.lanes, DEPTH)
        self._divide()

    @staticmethod
    def fits(windows: Windows) -> bool:
        """Whether the algorithm serves such windows, and they are not too few."""
        ones = (1, 1)
        fits = windows.kernel == (1, 3, 3) and windows.strides[1:] == ones and windows.dilations[1:] == ones
        return fits and math.prod(windows.output) >= _LEAST_PIXELS

    def _most_squares(self) -> int:
        """How many squares are done together: their transformed image takes half of the L2 cache."""
        return max(1, self.backend.target.cache_bytes // 2 // (self.points * self.in_blocks * self.lanes * 4))

    def _divide(self) -> None:
        """Into chunks of squares; where those are too few for the threads, the transform is a unit of its own, and the products are cut
        into blocks of channels too."""
        threads, rows = self.backend.threads, self.shape.rows
        fewest = -(-self.squares // max(rows, self._most_squares()))
        chunks = max(fewest, 2 * threads) if threads > 1 else fewest
        panels = -(-self.blocks // self.shape.vectors)
        spills = self.weight_bytes > self.backend.target.cache_bytes // 2
        self.apart = threads > 1 and (self.squares // chunks < 2 * rows or spills) and panels > 1
        if self.apart:
            chunks = fewest
        self.chunks = max(1, min(chunks, self.squares // rows))
        self.block_chunks = min(panels, -(-4 * threads // self.chunks)) if self.apart else 1
        self.stride = max(rows, -(-self.squares // self.chunks))
        point = self.stride * self.lanes * 4
        self.transformed_bytes = round_up(self.points * self.in_blocks * point)
        self.products_bytes = round_up(self.points * self.shape.vectors * point)

    @property
    def scratch_bytes(self) -> int:
        threads = self.backend.threads
        return (self.chunks if self.apart else threads) * self.transformed_bytes + threads * self.products_bytes

    @property
    def weight_bytes(self) -> int:
        return 4 * self.points * self.in_blocks * self.blocks * self.lanes**2

    @property
    def cycles(self) -> float:
        """An estimate of the time on one core."""
        whole, tail = divmod(self.blocks, self.shape.vectors)
        tile = whole * tile_cycles(self.shape.rows, self.shape.vectors) + (tile_cycles(self.shape.rows, tail) if tail else 0)
        tiles = self.chunks * -(-self.stride // self.shape.rows)
        products = self.points * tiles * tile * self.in_blocks * self.lanes * 1.05
        loads = self.chunks * self.weight_bytes / _WEIGHT_BYTES_PER_CYCLE
        return max(products, loads) + self.squares * (self.in_blocks + self.blocks) * self.points * _TRANSFORM_CYCLES

    @property
    def overlaps(self) -> bool:
        """Whether pixels are computed twice."""
        return False

    @property
    def name(self) -> str:
        """Tells it from other plans of the same convolution."""
        return f"{self.algorithm} {self.shape.rows}x{self.shape.vectors}"

    @property
    def packing(self) -> tuple:
        """Names how the weights are packed."""
        return ("winograd", self.square, self.shape.vectors, self.lanes)

    def pack_weights(self, w: np.ndarray) -> np.ndarray:
        """[M, C, 3, 3] → [panels of output channels][points][input channels][channels of the panel], transformed."""
        matrix = matrices(self.square).filter.astype(np.float32)
        lanes, panel = self.lanes, self.shape.vectors * self.lanes
        taps = np.ascontiguousarray(w.reshape(self.outputs, self.channels, 9).transpose(2, 1, 0))
        packed = aligned(self.weight_bytes).view(np.float32)
        start = 0
        for first in range(0, self.blocks * lanes, panel):
            width = min(panel, self.blocks * lanes - first)
            points = packed[start : start + self.points * self.in_blocks * lanes * width].reshape(self.points, -1, width)
            part = np.ascontiguousarray(taps[:, :, first : first + panel])
            rows = np.einsum("iy,yxn->ixn", matrix, part.reshape(3, 3, -1))  # without BLAS, whose threads start slowly
            transformed = np.einsum("jx,ixn->ijn", matrix, rows)
            points[:, : self.channels, : part.shape[2]] = transformed.reshape(self.points, *part.shape[1:])
            start += points.size
        return packed

    def pack_bias(self, bias: np.ndarray | None) -> np.ndarray:
        packed = np.zeros(self.blocks * self.lanes, np.float32)
        if bias is not None:
            packed[: self.outputs] = bias
        return packed

    def record(
        self, x: int, weights: np.ndarray, bias: np.ndarray, target: int, residual: int, epilogue: tuple[str, np.ndarray], scratch: int
    ) -> None:
        """Records the units. `weights`, `bias`: as packed; `epilogue`: kind and parameters; the others are addresses (residual 0: none)."""
        windows, lanes, backend, (rows, vectors) = self.windows, self.lanes, self.backend, (self.shape.rows, self.shape.vectors)
        kind, parameters = epilogue
        channel_steps = np.arange(self.in_blocks * lanes // self.depth, dtype=np.int64) * self.depth
        places = 4 * (channel_steps // lanes * self.stride * lanes + channel_steps % lanes)
        flags = np.zeros(backend.threads, np.int64)
        slots = self.chunks if self.apart else backend.threads
        values = BlockedWinograd(
            source=x,
            in_blocks=self.in_blocks,
            height=windows.input[1],
            width=windows.input[2],
            top_pad=windows.begin[1],
            left_pad=windows.begin[2],
            across=self.across,
            down=self.down,
            images=self.images,
            chunks=self.chunks,
            block_chunks=self.block_chunks,
            stride=self.stride,
            to_do=MULTIPLY if self.apart else TRANSFORM | MULTIPLY,
            transformed=scratch,
            transformed_bytes=self.transformed_bytes,
            shared=int(self.apart),
            products=scratch + slots * self.transformed_bytes,
            products_bytes=self.products_bytes,
            flags=address_of(flags),
            slots=backend.threads,
            places=address_of(places),
            step_count=len(places),
            weights=address_of(weights),
            weight_bytes=4 * self.points * self.in_blocks * lanes * vectors * lanes,
            bias=address_of(bias),
            target=target,
            out_height=windows.output[1],
            out_width=windows.output[2],
            residual=residual,
            parameters=address_of(parameters),
            blocks=self.blocks,
        )
        function = kernel(
            "blocked_winograd", outputs=self.square, rows=rows, vectors=vectors, tail=self.tail, lanes=lanes, fma=backend.target.fma,
            kind=kind, depth=self.depth,
        )  # fmt: skip
        keep = (places, flags, weights, bias, parameters)
        if self.apart:
            parts = min(self.in_blocks, -(-4 * backend.threads // self.chunks))
            transform = values._replace(to_do=TRANSFORM, block_chunks=parts)
            backend.commands.record(function, arguments(*transform), self.chunks * parts, keep)
        backend.commands.record(function, arguments(*values), self.chunks * self.block_chunks, keep)


def best_winograd(backend, windows: Windows, images: int, channels: int, outputs: int, against: float) -> BlockedWinogradPlan | None:
    """The fastest such plan for windows that fit, where one takes less than `against` cycles."""
    plans = [BlockedWinogradPlan(backend, windows, images, channels, outputs, square) for square in POINTS]
    best = min(plans, key=lambda plan: plan.cycles)
    return best if best.cycles < against else None
