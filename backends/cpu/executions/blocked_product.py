"""Convolutions as products in the blocked layout: pixels of output rows × blocks of output channels, straight from the image's memory."""

from __future__ import annotations

import functools
import math

import numpy as np

from mnnx.backends.cpu.arguments import address_of, aligned, arguments
from mnnx.backends.cpu.executions.blocked_tables import column_tiles, row_table, step_places
from mnnx.backends.cpu.kernel import kernel
from mnnx.backends.cpu.kernels.blocked_words import BlockedProduct
from mnnx.backends.cpu.windows import Windows
from mnnx.schema.records import Row

#: Chunks of work for each thread, where there is enough of it.
_CHUNKS = 4
#: What comes from beyond the L2 cache in a cycle.
_BYTES_PER_CYCLE = 5
#: The largest number of floats of a pixel that a step takes, of a blocked and of a plain image.
DEPTH, _PLAIN_DEPTH = 8, 9
#: What a step costs beside its multiply-adds, in those of a tile.
_STEP_CYCLES = 0.5


class TileShape(Row):
    """`rows` pixels × `vectors` blocks of channels."""

    rows: int
    vectors: int

    @classmethod
    @functools.lru_cache(1024)
    def best(cls, width: int, blocks: int, lanes: int, registers: int) -> TileShape:
        """What covers `width` pixels × `blocks` blocks of channels in the least time, by the number of instructions.

        A shape that few other widths would choose, or that leaves blocks for a second tile, must be worth compiling it; one with other
        `vectors` than that for very wide rows must be worth packing the weights for it.
        """
        costs = cls._costs(width, blocks, lanes, registers)
        best = min(costs, key=lambda shape: (costs[shape], -shape.rows * shape.vectors))
        if width == _WIDE:
            return best
        usual = cls.best(_WIDE, blocks, lanes, registers).vectors
        packed = min((shape for shape in costs if shape.vectors == usual), key=costs.__getitem__)
        return packed if costs[packed] < 1.1 * costs[best] else best

    @classmethod
    @functools.lru_cache(1024)
    def others(cls, width: int, blocks: int, lanes: int, registers: int) -> tuple[TileShape, ...]:
        """Shapes that may be better than the estimate says: the best one of each number of vectors, by its cycles alone."""
        best: dict[int, TileShape] = {}
        for shape in sorted(cls._costs(width, blocks, lanes, registers), key=lambda shape: -(-width // shape.rows) * tile_cycles(*shape)):
            best.setdefault(shape.vectors, shape)
        return tuple(best.values())

    @classmethod
    def _costs(cls, width: int, blocks: int, lanes: int, registers: int) -> dict[TileShape, float]:
        """What each shape costs that there are registers for: for sums, a row of weights, and pixels."""
        costs: dict[TileShape, float] = {}
        # Of the numbers of rows that need equally many tiles only the least matters, and the usual ones.
        useful = {-(-width // tiles) for tiles in range(1, min(width, registers) + 1)} if width <= registers else range(1, registers)
        for vectors in range(1, min(blocks, 4) + 1):
            whole, tail = divmod(blocks, vectors)
            for rows in sorted({*useful, *_USUAL_ROWS}):
                if rows > width or rows * vectors + vectors + (rows if lanes == 4 else 1) > registers:
                    break
                cycles = whole * tile_cycles(rows, vectors) + (tile_cycles(rows, tail) if tail else 0)
                unusual, uneven = (1.0 if rows in _USUAL_ROWS else 1.05), (1.04 if tail else 1.0)
                costs[cls(rows, vectors)] = -(-width // rows) * cycles * unusual * uneven
        return costs


_USUAL_ROWS = (4, 6, 7, 9, 14, 28)
_WIDE = 5040  # a multiple of most numbers of rows


@functools.cache
def tile_cycles(rows: int, vectors: int) -> float:
    """Of one multiply-add of a tile, where two of them and two loads start in a cycle and each takes four; a little more for each load,
    most of all for those of weights, which may come from the L2 cache."""
    return max(rows * vectors / 2, (rows + vectors) / 2, 4) + 0.08 * rows + 0.25 * vectors


class Grid(Row):
    """The pixels of a larger image that a product computes: `start`, and the next ones `step` pixels further down and across."""

    size: tuple[int, int]
    start: tuple[int, int]
    step: tuple[int, int]


class BlockedProductPlan:
    """The plan of one product: x [N, groups * channels, H, W], `blocked` or plain → y [N, groups * outputs, H', W'], blocked.

    `grid`: where the output pixels lie in y; None: they are all of y. `shape`: another one than `TileShape.best`.
    """

    def __init__(
        self,
        backend,
        windows: Windows,
        images: int,
        groups: int,
        channels: int,
        outputs: int,
        blocked: bool,
        grid: Grid | None = None,
        shape: TileShape | None = None,
    ):
        self.backend, self.images, self.groups, self.channels, self.outputs = backend, images, groups, channels, outputs
        self.lanes, self.blocked = backend.block_width, blocked
        if windows.pointwise and grid is None:  # all pixels in one row
            windows = Windows.pointwise_over((1, 1, windows.pixels))
        self.grid = grid or Grid(windows.output[1:], (0, 0), (1, 1))
        self.windows = windows
        (_, self.kernel_height, self.kernel_width), (_, _, self.width) = windows.kernel, windows.output
        self.blocks = -(-outputs // self.lanes)
        self.shape = shape or TileShape.best(self.width, self.blocks, self.lanes, backend.target.vector_registers)
        self.tail = self.blocks % self.shape.vectors
        self.column_tiles = -(-self.width // self.shape.rows)
        self._choose_depth()

    def _choose_depth(self) -> None:
        if self.blocked:
            self.depth = self.run = min(self.lanes, DEPTH)
            self.channel_steps = -(-self.channels // self.depth)
        else:
            taps = self.channels * self.kernel_width
            self.depth, self.run = next(n for n in range(min(taps, _PLAIN_DEPTH), 0, -1) if taps % n == 0), 1

    #: Working memory needed.
    scratch_bytes = 0
    algorithm = "product"

    @property
    def name(self) -> str:
        """Tells it from other plans of the same convolution."""
        return f"{self.algorithm} {self.shape.rows}x{self.shape.vectors}"

    @property
    def packing(self) -> tuple:
        """Names how the weights are packed."""
        return ("product", self.groups, self.shape.vectors, self.lanes, self.depth, self.blocked)

    @property
    def cycles(self) -> float:
        """An estimate of the time on one core."""
        rows = self.images * self.groups * self.column_tiles * self.windows.output[1]
        whole, tail = divmod(self.blocks, self.shape.vectors)
        tile = whole * tile_cycles(self.shape.rows, self.shape.vectors) + (tile_cycles(self.shape.rows, tail) if tail else 0)
        return rows * tile * self.kernel_height * self._row_steps * (self.depth + _STEP_CYCLES)

    @property
    def overlaps(self) -> bool:
        """Whether tiles overlap, so that pixels are computed twice."""
        return self.width % self.shape.rows != 0

    def pack_weights(self, w: np.ndarray) -> np.ndarray:
        """[groups * outputs, channels, kernel…] → [groups][panels of blocks][kernel rows][steps][depth][channels of the panel]."""
        lanes, (height, width) = self.lanes, (self.kernel_height, self.kernel_width)
        w = w.reshape(self.groups, self.outputs, self.channels, height, width)
        channels = self.channel_steps * self.depth if self.blocked else self.channels
        packed = aligned(4 * self.groups * height * width * channels * self.blocks * lanes).view(np.float32).reshape(self.groups, -1)
        panel = self.shape.vectors * lanes
        for group, weights in zip(packed, w, strict=True):
            start = 0
            for first in range(0, self.blocks * lanes, panel):
                part, columns = weights[first : first + panel], min(panel, self.blocks * lanes - first)
                size = height * width * channels * columns
                target = group[start : start + size]
                if self.blocked:
                    target, source = target.reshape(height, width, channels, columns), part.transpose(2, 3, 1, 0)
                else:
                    target, source = target.reshape(height, channels, width, columns), part.transpose(2, 1, 3, 0)
                target[tuple(map(slice, source.shape))] = source
                start += size
        return packed

    def pack_bias(self, bias: np.ndarray | None) -> np.ndarray:
        """[groups, channels up to whole panels]."""
        panels = -(-self.blocks // self.shape.vectors)
        packed = np.zeros((self.groups, panels * self.shape.vectors * self.lanes), np.float32)
        if bias is not None:
            packed[:, : self.outputs] = bias.reshape(self.groups, self.outputs)
        return packed

    @property
    def _row_steps(self) -> int:
        """Steps of a kernel row."""
        if self.blocked:
            return self.kernel_width * self.channel_steps
        return self.channels * self.kernel_width // self.depth

    def record(
        self, x: int, weights: np.ndarray, bias: np.ndarray, target: int, residual: int, epilogue: tuple[str, np.ndarray], scratch: int = 0
    ) -> None:
        """Records the unit. `weights`, `bias`: as packed; `epilogue`: kind and parameters; the others are addresses (residual 0: none)."""
        windows, lanes, rows, vectors = self.windows, self.lanes, self.shape.rows, self.shape.vectors
        kind, parameters = epilogue
        pixel_bytes = 4 * lanes if self.blocked else 4
        (image_height, image_width), (first_row, first_column), (down, across) = self.grid
        places, taps = step_places(windows, self.channels, self.run, lanes if self.blocked else 1)
        rows_of_windows = row_table(windows, pixel_bytes, down * image_width * 4 * lanes, self._row_steps)
        columns = column_tiles(windows, rows, taps, pixel_bytes, across * 4 * lanes)
        zeros = np.zeros(DEPTH, np.float32)
        place = (first_row * image_width + first_column) * 4 * lanes
        in_pixels, in_blocks = math.prod(windows.input), -(-self.channels // lanes) * lanes if self.blocked else self.channels
        tiles = self.column_tiles * windows.output[1]
        panels = -(-self.blocks // vectors)
        panel_tiles, block_chunks = self._divide(tiles, panels)
        values = BlockedProduct(
            source=x,
            image_bytes=4 * self.groups * in_blocks * in_pixels,
            group_bytes=4 * in_blocks * in_pixels,
            row_table=address_of(rows_of_windows),
            column_table=address_of(columns.table),
            column_tiles=self.column_tiles,
            tiles=tiles,
            places=address_of(places),
            zeros=address_of(zeros),
            weights=address_of(weights),
            weight_bytes=4 * self.run * len(places) * vectors * lanes,
            bias=address_of(bias),
            target=target + place,
            plane_bytes=4 * lanes * image_height * image_width,
            residual=residual + place if residual else 0,
            parameters=address_of(parameters),
            images=self.images,
            groups=self.groups,
            blocks=self.blocks,
            panel_tiles=panel_tiles,
            block_chunks=block_chunks,
        )
        product = kernel(
            "blocked_convolution.product", rows=rows, vectors=vectors, tail=self.tail, lanes=lanes, fma=self.backend.target.fma, kind=kind,
            row_bytes=pixel_bytes * windows.strides[2], depth=self.depth, run=self.run, edges=columns.edges, across=across,
        )  # fmt: skip
        tasks = self.images * self.groups * -(-tiles // panel_tiles) * block_chunks
        work = self.images * self.groups * tiles * rows * self.blocks * self.run * len(places)
        chunks = min(tasks, self.backend.chunks(work))
        keep = (places, rows_of_windows, columns, zeros, weights, bias, parameters)
        self.backend.commands.record(product, arguments(*values), chunks, keep)

    def _divide(self, tiles: int, panels: int) -> tuple[int, int]:
        """Tiles in a panel of pixels, and into how many chunks the panels of output channels are cut.

        Every panel of pixels takes all weights of its chunk through the cache, every chunk of weights all pixels.
        """
        items, threads = self.images * self.groups, self.backend.threads
        source = 4 * self.channels * min(math.prod(self.windows.input), self.windows.pixels * self.windows.taps)
        weights = 4 * self.channels * self.windows.taps * self.blocks * self.lanes
        least = min(tiles, -(-source // (self.backend.target.cache_bytes // 4)))
        if threads == 1:
            return -(-tiles // least), 1
        wanted, best = _CHUNKS * threads, None
        work = tiles * panels * tile_cycles(self.shape.rows, self.shape.vectors) * self.channels * self.windows.taps
        for blocks in range(1, min(panels, wanted) + 1):
            pixels = min(tiles, max(least, -(-wanted // (items * blocks))))
            uneven = -(-tiles // pixels) * pixels / tiles * -(-panels // blocks) * blocks / panels
            few = max(1.0, threads / (items * blocks * pixels))
            cost = work * uneven * few + (pixels * weights + blocks * source) / _BYTES_PER_CYCLE
            if best is None or cost < best[0]:
                best = cost, -(-tiles // pixels), blocks
        return best[1:]
