"""Where the rows of windows begin, for convolutions in the blocked layout."""

from __future__ import annotations

import numpy as np

from mnnx.backends.cpu.windows import Windows


def row_table(windows: Windows, pixel_bytes: int, target_row_bytes: int, row_steps: int) -> np.ndarray:
    """Per output row: its offset in the source (of the windows' first kernel row, inside the image or not) and in the target, and the
    first step and the number of steps of the kernel rows that lie inside the image, with `row_steps` steps to a kernel row."""
    (_, kernel_height, _), (_, height, width), (_, rows, _) = windows.kernel, windows.input, windows.output
    stride, dilation = windows.strides[1], windows.dilations[1]
    top = np.arange(rows, dtype=np.int64) * stride - windows.begin[1]
    first = np.clip(-(top // dilation), 0, kernel_height)  # the first k with top + k * dilation >= 0
    end = np.clip(-((top - height) // dilation), first, kernel_height)
    table = np.stack([top * width * pixel_bytes, np.arange(rows) * target_row_bytes, first * row_steps, (end - first) * row_steps], 1)
    return np.ascontiguousarray(table, np.int64)
