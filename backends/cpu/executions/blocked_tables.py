"""Where the windows of convolutions in the blocked layout lie: tables for kernels, shared by layers and sessions with equal ones."""

from __future__ import annotations

import functools
import math

import numpy as np

from mnnx.backends.cpu.arguments import address_of
from mnnx.backends.cpu.windows import Windows
from mnnx.schema.records import Row


@functools.lru_cache(256)
def row_table(windows: Windows, pixel_bytes: int, target_row_bytes: int, row_steps: int) -> np.ndarray:
    """Per output row: its offset in the source (of the windows' first kernel row, inside the image or not) and in the target, and the
    first step and the number of steps of the kernel rows that lie inside the image, with `row_steps` steps to a kernel row."""
    (_, kernel_height, _), (_, height, width), (_, rows, _) = windows.kernel, windows.input, windows.output
    stride, dilation = windows.strides[1], windows.dilations[1]
    table = []
    for row in range(rows):
        top = row * stride - windows.begin[1]
        first = min(max(-(top // dilation), 0), kernel_height)  # the first k with top + k * dilation >= 0
        end = min(max(-((top - height) // dilation), first), kernel_height)
        table.append((top * width * pixel_bytes, row * target_row_bytes, first * row_steps, (end - first) * row_steps))
    return np.array(table, np.int64)


class Columns(Row):
    """The tiles of an output row. `masks` keeps what the table points to."""

    table: np.ndarray  # per tile: its offset in the source row, in the target row, and the address of its masks
    edges: int  # how many of a tile's first or last pixels may have taps outside
    masks: list[np.ndarray]


@functools.lru_cache(256)
def column_tiles(windows: Windows, rows: int, taps_of_steps: tuple[int, ...], source_bytes: int, target_bytes: int) -> Columns:
    """Tiles of `rows` pixels of an output row, whose pixels lie `target_bytes` apart; pixels of the source lie `source_bytes` apart.

    A mask has a bit per pixel of the tile, set where the tap of a step lies outside the image; tiles without such have address 0.
    `taps_of_steps`: the column of each step among the taps of a kernel row.
    """
    stride, begin, width = windows.strides[2], windows.begin[2], windows.output[2]
    starts = np.minimum(np.arange(0, width, rows), width - rows)
    first_columns = starts * stride - begin
    beyond = first_columns + (rows - 1) * stride + (windows.kernel[2] - 1) * windows.dilations[2] >= windows.input[2]
    table = np.zeros((len(starts), 3), np.int64)
    table[:, 0], table[:, 1] = first_columns * source_bytes, starts * target_bytes
    edges, masks = 0, {}
    for tile in np.flatnonzero(beyond | (first_columns < 0)):
        inside = [_inside(windows, int(starts[tile]), rows, tap) for tap in range(windows.kernel[2])]
        key = tuple(((1 << first) - 1) | ((1 << rows) - (1 << max(first, end))) for first, end in inside)
        if key not in masks:
            masks[key] = np.array(key, np.int64)[list(taps_of_steps)]
            edges = max(edges, *(min(row + 1, rows - row) for row in range(rows) if any(bits >> row & 1 for bits in key)))
        table[tile, 2] = address_of(masks[key])
    if stride > 1:
        edges = max(edges, 1)  # one kernel for all windows of a stride
    return Columns(table, edges, list(masks.values()))


def _inside(windows: Windows, start: int, rows: int, tap: int) -> tuple[int, int]:
    """The first of a tile's pixels for which a tap lies inside the image, and the first one after them."""
    stride = windows.strides[2]
    column = start * stride - windows.begin[2] + tap * windows.dilations[2]  # of pixel 0
    first, end = -(column // stride), -((column - windows.input[2]) // stride)
    return min(max(first, 0), rows), min(max(end, 0), rows)


@functools.lru_cache(256)
def step_places(windows: Windows, channels: int, run: int, lanes: int) -> tuple[np.ndarray, tuple[int, ...]]:
    """Where each run of floats begins, in bytes from the first pixel of the window, and its column among the taps of a kernel row.

    In a plain image (`lanes` 1) the taps of a row are the innermost, in a blocked one the channels.
    """
    (_, height, width), pixels, across = windows.kernel, math.prod(windows.input), windows.dilations[2]
    places, taps = [], []
    parts = [channel // lanes * pixels * lanes + channel % lanes for channel in range(0, channels, run)]
    columns = [(tap, tap * across * lanes) for tap in range(width)]
    for row in range(height):
        down = row * windows.dilations[1] * windows.input[2] * lanes
        if lanes > 1:
            places += [down + column + part for _, column in columns for part in parts]
            taps += [tap for tap, _ in columns for _ in parts]
        else:
            places += [down + part + column for part in parts for _, column in columns]
            taps += [tap for _ in parts for tap, _ in columns]
    return 4 * np.array(places, np.int64), tuple(taps)
