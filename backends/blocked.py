"""The blocked layout NC/cHWc: [N, C, *S] float32 lies as [N, ceil(C / lanes), *S, lanes], so that a vector holds channels of one pixel.

`lanes` is the width of a block, a device's own (`Backend.block_width`). Only float32 tensors of rank 3 and more are ever blocked. Lanes
past C hold any finite numbers: whoever reads them must not let them leak, whoever writes them must not write NaN or infinities.
"""

from __future__ import annotations

import math

import numpy as np

from mnnx.schema.ops.base import Spec

_FLOAT32 = np.dtype("float32")


def can_block(spec: Spec) -> bool:
    """Whether such a tensor may be blocked at all."""
    return spec.dtype == _FLOAT32 and spec.rank >= 3


def blocked_shape(shape: tuple[int, ...], lanes: int) -> tuple[int, ...]:
    """[N, C, *S] → (N, ceil(C / lanes), *S, lanes)."""
    return (shape[0], -(-shape[1] // lanes), *shape[2:], lanes)


def blocked_bytes(shape: tuple[int, ...], lanes: int) -> int:
    return math.prod(blocked_shape(shape, lanes)) * _FLOAT32.itemsize


def tensor_bytes(spec: Spec, layout: int) -> int:
    """What a tensor takes in a layout (0: plain)."""
    return blocked_bytes(spec.shape, layout) if layout else spec.nbytes


def same_bytes(shape: tuple[int, ...], lanes: int) -> bool:
    """Whether a tensor is the same bytes in both layouts: one pixel per channel, and whole blocks."""
    return math.prod(shape[2:]) == 1 and shape[1] % lanes == 0


def is_piece(source: Spec, result: Spec, offset: int, lanes: int) -> bool:
    """Whether `result`, which in plain layout lies in `source` from the byte `offset` on, lies just there when both are blocked."""
    pixels = math.prod(source.shape[2:])
    if not can_block(source) or not can_block(result) or math.prod(result.shape[2:]) != pixels:
        return False
    if offset == 0 and result.shape[:2] == source.shape[:2]:
        return True
    first, rest = divmod(offset, pixels * _FLOAT32.itemsize)
    whole = result.shape[1] % lanes == 0 or first + result.shape[1] == source.shape[1]
    return source.shape[0] == result.shape[0] == 1 and rest == 0 and first % lanes == 0 and whole


def block(array: np.ndarray, lanes: int) -> np.ndarray:
    """[N, C, *S] → blocked, channels past C zero."""
    n, channels, *spatial = array.shape
    blocks = -(-channels // lanes)
    padded = np.zeros((n, blocks * lanes, *spatial), array.dtype)
    padded[:, :channels] = array
    return np.ascontiguousarray(np.moveaxis(padded.reshape(n, blocks, lanes, *spatial), 2, -1))


def unblock(array: np.ndarray, channels: int) -> np.ndarray:
    """[N, ceil(C / lanes), *S, lanes] → [N, C, *S], a fresh array."""
    n, blocks, *spatial, lanes = array.shape
    return np.moveaxis(array, -1, 2).reshape(n, blocks * lanes, *spatial)[:, :channels].copy()
