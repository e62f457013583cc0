"""The ways in which GPUs run convolutions: what each packs, pads and dispatches."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mnnx.backends.backend import Tensors
from mnnx.backends.gpu.constants import TILE_COLUMNS, TILES, TILES_OF_PLAIN, TILES_TO_PLAIN
from mnnx.backends.gpu.device import Dispatch, Memory
from mnnx.backends.gpu.epilogue import activation_params
from mnnx.backends.gpu.kernel import kernel
from mnnx.backends.gpu.profile import Profile
from mnnx.backends.gpu.steps import nested
from mnnx.backends.gpu.windows import Windows
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.base import Op
from mnnx.schema.records import Row

if TYPE_CHECKING:
    from mnnx.backends.gpu.backend import GpuBackend

#: Neighbouring work items along the first dim that a group keeps, since they run as the lanes of one vector and read neighbours.
LEAST_LANES = 8


class Problem(Row):
    """A convolution of x [N, C, …] to `channels` channels. inputs, outputs: channels of a group. source: the width of the blocks in which
    x lies (1: plain); blocked: whether the result lies in blocks. storage: of the tensors."""

    op: Op
    backend: GpuBackend
    windows: Windows
    images: int
    channels: int
    groups: int
    inputs: int
    outputs: int
    storage: str
    source: int
    blocked: bool

    @property
    def block(self) -> int:
        return self.backend.block_width

    @property
    def in_blocks(self) -> int:
        """Blocks of a group's input channels."""
        return -(-self.inputs // self.source)

    @property
    def out_blocks(self) -> int:
        """Blocks of a group's output channels."""
        return -(-self.outputs // self.block)

    @property
    def itemsize(self) -> int:
        return 2 if self.storage == "half" else 4

    def weight_bytes(self, source: int) -> int:
        """Of what `pack_weights` makes for blocks of so many input channels."""
        channels = -(-self.inputs // source) * source
        return self.groups * self.out_blocks * self.block * math.prod(self.windows.kernel) * channels * self.itemsize

    @property
    def bias_bytes(self) -> int:
        return self.groups * self.out_blocks * self.block * 4

    @property
    def activation(self) -> list[int | float]:
        op = self.op
        return activation_params(op.activation, op.activation_parameters) if hasattr(op, "activation") else activation_params("", ())

    def bias(self, bias: DeviceTensor | None) -> Memory:
        """[blocks of all groups, block] in float32, zeros where there is none."""
        padded = np.zeros((self.groups, self.out_blocks * self.block), np.float32)
        if bias is not None:
            padded[:, : self.outputs] = bias.constant.reshape(self.groups, -1)
        return self.backend.table(padded)


def pack_weights(w: np.ndarray, groups: int, source: int, block: int) -> np.ndarray:
    """[M, C / groups, *kernel] → [blocks of M, taps, blocks of C / groups, source, block], each group's blocks begun anew."""
    outputs, inputs = w.shape[0] // groups, w.shape[1]
    out_blocks, in_blocks = -(-outputs // block), -(-inputs // source)
    padded = np.zeros((groups, out_blocks * block, in_blocks * source, w[0, 0].size), w.dtype)
    padded[:, :outputs, :inputs] = w.reshape(groups, outputs, inputs, -1)
    return np.ascontiguousarray(padded.reshape(groups, out_blocks, block, in_blocks, source, -1).transpose(0, 1, 5, 3, 4, 2))


def pack_transposed(w: np.ndarray, groups: int, block: int) -> np.ndarray:
    """[C, M / groups, *kernel], packed as the weights of the convolution that gathers."""
    inputs, outputs = w.shape[0] // groups, w.shape[1]
    turned = w.reshape(groups, inputs, outputs, -1).swapaxes(1, 2).reshape(groups * outputs, inputs, -1)
    return pack_weights(turned, groups, block, block)


def pack_depthwise(w: np.ndarray, block: int) -> np.ndarray:
    """[C, 1, *kernel] → [blocks, taps, block]."""
    return pack_weights(w.reshape(len(w), 1, -1), 1, 1, block)


class Plan(ABC):
    """windows: as the kernel sees them, over the padded image where it needs one."""

    scratch_bytes = 0

    def __init__(self, problem: Problem):
        self.problem = problem
        self.windows = problem.windows

    @property
    def pieces(self) -> Sequence[int]:
        """Bytes of what it gives to kernels beside the tensors."""
        return self.scratch_bytes, self.problem.weight_bytes(self.problem.source), self.problem.bias_bytes

    @property
    def loop_steps(self) -> int:
        """See `GpuExecution.loop_steps`."""
        return nested(*self.windows.kernel, self.problem.in_blocks)

    @abstractmethod
    def record(self, inputs: Tensors, y: DeviceTensor, scratch: DeviceTensor | None) -> None:
        """Records the work on x, w, bias and residual, the last two of which may be None."""

    def _pad(self, windows: Windows, before: tuple[int, ...]) -> None:
        """Makes `record` run with these windows over a copy of x that has so many pixels before it (negative: so many fewer)."""
        problem = self.problem
        self.windows, self.before = windows, before
        blocks = problem.images * problem.groups * problem.in_blocks
        self.scratch_bytes = blocks * problem.source * windows.in_pixels * problem.itemsize

    def _padded(self, x: DeviceTensor, scratch: DeviceTensor | None) -> DeviceTensor:
        """x, or the copy."""
        if not self.scratch_bytes:
            return x
        problem, before, after = self.problem, self.problem.windows, self.windows
        found = kernel("convolution.pad", storage=problem.storage, width=problem.source)
        size = (after.input[2], after.input[0] * after.input[1], problem.images * problem.groups * problem.in_blocks)
        problem.backend.commands.record(found, [x, scratch], [*before.input, *after.input, *self.before], size)
        return scratch


def product_tiles(problem: Problem, pixels: int, images: int) -> list[tuple[int, int]]:
    """Rows × vectors that don't reach into the next group; first the largest tile that leaves enough of them to fill the device."""
    profile, groups, blocks = problem.backend.device.profile, problem.groups, problem.out_blocks
    tiles = TILES if problem.source > 1 or profile.pads else TILES_OF_PLAIN if problem.blocked else TILES_TO_PLAIN
    fitting = [
        (rows, vectors)
        for rows, vectors in tiles
        if rows <= profile.rows and vectors <= profile.vectors and (groups == 1 or blocks % vectors == 0)
    ]
    many = (tile for tile in fitting if images * groups * -(-pixels // tile[0]) * -(-blocks // tile[1]) >= profile.items)
    usual = next(many, fitting[-1])
    return [usual, *(tile for tile in fitting if tile != usual)]


def tile_group(profile: Profile, size: Sequence[int]) -> tuple[int, int, int]:
    """The profile's group for tiles; turned from the first dim to the second where there isn't that much work along the first."""
    x, y, z = profile.tile_group
    while x > LEAST_LANES and x // 2 >= size[0]:
        x, y = x // 2, y * 2
    return x, y, z


class ProductPlan(Plan):
    """An implicit product of matrices, of blocks or of plain tensors."""

    def __init__(self, problem: Problem):
        super().__init__(problem)
        if problem.backend.device.profile.pads and self.windows.padded:
            self._pad(self.windows.after_padding(), self.windows.begin)

    def record(self, inputs: Tensors, y: DeviceTensor, scratch: DeviceTensor | None) -> None:
        x, w, bias, residual = (*inputs, None, None)[:4]
        problem, windows, profile = self.problem, self.windows, self.problem.backend.device.profile
        groups, source, block = problem.groups, problem.source, problem.block
        pack = functools.partial(pack_weights, groups=groups, source=source, block=block)
        weights = problem.backend.packed(("convolution", groups, source, block), w.constant, pack)
        sizes = {"source": source, "block": block, "target": block if problem.blocked else 1}
        params = [
            *windows.params, groups * problem.in_blocks, problem.in_blocks, groups * problem.out_blocks, problem.out_blocks,
            problem.outputs, 0, int(residual is not None), *problem.activation,
        ]  # fmt: skip
        buffers = [self._padded(x, scratch), weights, problem.bias(bias), y if residual is None else residual, y]
        ways = {}
        for rows, vectors in product_tiles(problem, windows.out_pixels, problem.images):
            found = kernel("convolution.product", storage=problem.storage, rows=rows, vectors=vectors, inside=profile.pads, **sizes)
            size = (-(-windows.out_pixels // rows), -(-groups * problem.out_blocks // vectors), problem.images)
            ways[f"{rows}x{vectors}"] = Dispatch(found, buffers, params, size, tile_group(profile, size))
        problem.backend.commands.record_fastest(ways)


class TransposedPlan(Plan):
    """Output pixels gather what reaches them."""

    def __init__(self, problem: Problem):
        super().__init__(problem)
        if problem.backend.device.profile.pads:
            self._pad(*self._reached())

    def _reached(self) -> tuple[Windows, tuple[int, ...]]:
        """The windows over an image that has all that tiles read, and how many pixels that has before x."""
        windows = self.windows
        begin, strides, reach = (
            windows.begin,
            windows.strides,
            [(k - 1) * d for k, d in zip(windows.kernel, windows.dilations, strict=True)],
        )
        first = [(b - r) // s for b, r, s in zip(begin, reach, strides, strict=True)]
        last = [(o - 1 + b) // s for o, b, s in zip(windows.output, begin, strides, strict=True)]
        last[2] += TILE_COLUMNS
        size = tuple(z - a + 1 for a, z in zip(first, last, strict=True))
        begin = tuple(b - a * s for a, b, s in zip(first, begin, strides, strict=True))
        return windows._replace(input=size, begin=begin), tuple(-a for a in first)

    def record(self, inputs: Tensors, y: DeviceTensor, scratch: DeviceTensor | None) -> None:
        x, w, bias, residual = (*inputs, None, None)[:4]
        problem, windows, profile = self.problem, self.windows, self.problem.backend.device.profile
        groups, block = problem.groups, problem.block
        weights = problem.backend.packed(
            ("transposed convolution", groups, block), w.constant, functools.partial(pack_transposed, groups=groups, block=block)
        )
        found = kernel("convolution_transposed", storage=problem.storage, block=block, rows=TILE_COLUMNS, inside=profile.pads)
        params = [
            *windows.params, problem.images, groups * problem.in_blocks, problem.in_blocks, groups * problem.out_blocks,
            problem.out_blocks, int(residual is not None), *problem.activation,
        ]  # fmt: skip
        out_d, out_h, out_w = windows.output
        stride = windows.strides[2]
        size = (stride * -(-out_w // (stride * TILE_COLUMNS)), groups * problem.out_blocks, problem.images * out_d * out_h)
        buffers = [self._padded(x, scratch), weights, problem.bias(bias), y if residual is None else residual, y]
        problem.backend.commands.record(found, buffers, params, size, tile_group(profile, size))


class DepthwisePlan(Plan):
    """Each channel on its own, in blocks."""

    @property
    def loop_steps(self) -> int:
        return nested(*self.windows.kernel)

    @property
    def pieces(self) -> Sequence[int]:
        problem = self.problem
        return problem.out_blocks * problem.block * math.prod(self.windows.kernel) * problem.itemsize, problem.bias_bytes

    def record(self, inputs: Tensors, y: DeviceTensor, scratch: DeviceTensor | None) -> None:
        x, w, bias, residual = (*inputs, None, None)[:4]
        problem, windows, block = self.problem, self.windows, self.problem.block
        blocks = -(-problem.channels // block)
        weights = problem.backend.packed(("depthwise", block), w.constant, functools.partial(pack_depthwise, block=block))
        found = kernel("convolution_depthwise", storage=problem.storage, block=block, columns=TILE_COLUMNS)
        out_d, out_h, out_w = windows.output
        planes = problem.images * blocks
        params = [*windows.params, blocks, planes, int(residual is not None), *problem.activation]
        buffers = [x, weights, problem.bias(bias), y if residual is None else residual, y]
        size = (-(-out_w // TILE_COLUMNS), out_d * out_h, planes)
        problem.backend.commands.record(found, buffers, params, size, tile_group(problem.backend.device.profile, size))


class DirectPlan(Plan):
    """One output element per work item, all plain; weights and bias may be computed."""

    def __init__(self, problem: Problem, transposed: bool):
        super().__init__(problem)
        self.transposed = transposed

    @property
    def loop_steps(self) -> int:
        return nested(*self.windows.kernel, self.problem.inputs)

    @property
    def pieces(self) -> Sequence[int]:
        return ()

    def record(self, inputs: Tensors, y: DeviceTensor, scratch: DeviceTensor | None) -> None:
        x, w, bias, residual = (*inputs, None, None)[:4]
        problem = self.problem
        found = kernel("convolution_direct", storage=problem.storage, transposed=self.transposed)
        params = [
            *self.windows.params, problem.channels, problem.inputs, problem.outputs, int(bias is not None), int(residual is not None),
            *problem.activation,
        ]  # fmt: skip
        buffers = [x, w, y if bias is None else bias, y if residual is None else residual, y]
        problem.backend.commands.record(found, buffers, params, (self.windows.out_pixels, problem.channels, problem.images))
