"""Convolutions 3 × 3 of stride 1 by Winograd's algorithm: transforms, and a product for each point of a tile."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from mnnx.backends.backend import Tensors
from mnnx.backends.gpu.device import Dispatch
from mnnx.backends.gpu.epilogue import activation_params
from mnnx.backends.gpu.executions.convolution_plans import LEAST_LANES, Plan, Problem, pack_weights, product_tiles, tile_group
from mnnx.backends.gpu.kernel import kernel
from mnnx.backends.gpu.steps import nested
from mnnx.backends.gpu.winograd import TRANSFORMS, transform_weights
from mnnx.backends.gpu.working_memory import bytes_of, cut
from mnnx.backends.tensor import DeviceTensor

#: What it costs to transform a vector of one point, and to fetch a vector of weights, in multiplications of vectors.
_TRANSFORM, _FETCH = 20, 12
#: Scratch that it may take, in bytes.
_MOST_SCRATCH = 1 << 27


def pack_points(w: np.ndarray, tile: int, block: int) -> np.ndarray:
    """[M, C, 3, 3] → [points, blocks of M, blocks of C, block, block]."""
    return np.stack([pack_weights(point[..., None], 1, block, block) for point in transform_weights(w, tile)])


def _product_cost(problem: Problem, pixels: int, times: int, matrices: int) -> float:
    """Of multiplying so many pixels (work items beyond them run for nothing) by so many matrices of weights, a number of `times`."""
    profile = problem.backend.device.profile
    at_once = profile.rows * min(profile.tile_group[0], LEAST_LANES)
    return (times * (-(-pixels // at_once) * at_once) + matrices * _FETCH) * problem.in_blocks * problem.block * problem.out_blocks


class WinogradPlan(Plan):
    def __init__(self, problem: Problem, tile: int):
        super().__init__(problem)
        self.tile, self.points = tile, (tile + 2) ** 2
        self.tiles = tuple(-(-n // tile) for n in self.windows.output[1:])
        self.all_tiles = problem.images * self.tiles[0] * self.tiles[1]
        #: Bytes of working memory: the transformed image, and its products.
        self.parts = tuple(4 * problem.block * self.points * self.all_tiles * blocks for blocks in (problem.in_blocks, problem.out_blocks))
        self.scratch_bytes = bytes_of(problem.backend, self.parts)

    @property
    def pieces(self) -> Sequence[int]:
        weights = self.points * self.problem.weight_bytes(self.problem.block) // math.prod(self.windows.kernel)
        return *self.parts, weights

    @property
    def loop_steps(self) -> int:
        return nested(1, 1, 1, self.problem.in_blocks)

    @property
    def cost(self) -> float:
        """In multiplications of vectors."""
        blocks = self.problem.in_blocks + self.problem.out_blocks
        return _product_cost(self.problem, self.all_tiles, self.points, self.points) + _TRANSFORM * self.points * self.all_tiles * blocks

    @classmethod
    def best(cls, problem: Problem) -> WinogradPlan | None:
        """The one that costs least, where that is less than the sums by themselves cost."""
        windows = problem.windows
        flat = windows.input[0] == windows.output[0] == windows.kernel[0] == 1 and windows.begin[0] == 0
        if not flat or windows.kernel[1:] != (3, 3) or windows.strides[1:] != (1, 1) or windows.dilations[1:] != (1, 1):
            return None
        if problem.groups > 1 or problem.source == 1 or problem.storage != "float" or problem.backend.saves_memory:
            return None
        direct = _product_cost(problem, windows.out_pixels, 9 * problem.images, 9)
        plan = min((cls(problem, tile) for tile in TRANSFORMS), key=lambda plan: plan.cost)
        small = plan.scratch_bytes <= _MOST_SCRATCH and max(plan.pieces) <= problem.backend.device.largest
        return plan if plan.cost < direct and small else None

    def record(self, inputs: Tensors, y: DeviceTensor, scratch: DeviceTensor | None) -> None:
        x, w, bias, residual = (*inputs, None, None)[:4]
        problem, windows, block, tile = self.problem, self.windows, self.problem.block, self.tile
        backend, profile, tiles = problem.backend, problem.backend.device.profile, self.tiles[0] * self.tiles[1]
        image, product = cut(scratch, self.parts)
        params = [problem.images, problem.in_blocks, *windows.input[1:], *windows.begin[1:], *self.tiles]
        size = (tiles, problem.in_blocks, problem.images)
        backend.commands.record(kernel("winograd.image", block=block, tile=tile), [x, image], params, size, tile_group(profile, size))

        weights = backend.packed(("winograd", tile, block), w.constant, functools.partial(pack_points, tile=tile, block=block))
        sizes = {"source": block, "block": block, "target": block}
        ones, row = (1, 1, 1), (1, 1, self.all_tiles)
        params = [
            *row, *row, *ones, *ones, *ones, 0, 0, 0, problem.in_blocks, problem.in_blocks, problem.out_blocks, problem.out_blocks,
            problem.outputs, problem.out_blocks * problem.in_blocks * block, 0, *activation_params("", ()),
        ]  # fmt: skip
        ways, buffers = {}, [image, weights, problem.bias(None), product, product]
        for rows, vectors in product_tiles(problem, self.all_tiles, self.points):
            found = kernel("convolution.product", storage="float", rows=rows, vectors=vectors, inside=profile.pads, **sizes)
            size = (-(-self.all_tiles // rows), -(-problem.out_blocks // vectors), self.points)
            ways[f"{rows}x{vectors}"] = Dispatch(found, buffers, params, size, tile_group(profile, size))
        backend.commands.record_fastest(ways)

        params = [
            problem.images, problem.out_blocks, *windows.output[1:], *self.tiles, int(residual is not None), *problem.activation
        ]  # fmt: skip
        size = (tiles, problem.out_blocks, problem.images)
        buffers = [product, problem.bias(bias), y if residual is None else residual, y]
        backend.commands.record(kernel("winograd.result", block=block, tile=tile), buffers, params, size, tile_group(profile, size))
