"""Means of bytes that stand for numbers: y = saturate(round(sum of (x - x_zero) * factor) + y_zero)."""

from __future__ import annotations

from collections.abc import Iterator

from mnnx.backends.gpu.constants import POOL_TEAM
from mnnx.backends.gpu.kernel import kernel_factory
from mnnx.backends.gpu.kernels.pooling import PLACE, WINDOWS, taps
from mnnx.backends.gpu.kernels.quantization import SATURATED
from mnnx.backends.gpu.source import Source, reads, writes

_ENDS = {"char": "-128.0f, 127.0f", "uchar": "0.0f, 255.0f"}


def _variants() -> Iterator[dict]:
    return ({"storage": storage, "result": result} for storage in _ENDS for result in _ENDS)


@kernel_factory("quantized_pooling.mean", _variants)
def mean(storage: str, result: str) -> Source:
    """A work item per window; `factors`: one, or with `several` one for each window of a channel."""
    body = f"""{PLACE}    int sum = 0;
{taps(f"{' ' * 16}sum += load_x(row + place) - x_zero;{chr(10)}")}\
    float real = to_float(sum) * load_factors(several != 0 ? i % (count0 * count1 * count2) : 0);
    store_y(i, to_int(saturated(real, y_zero, {_ENDS[result]})));"""
    buffers = (reads("x", storage), reads("factors", "float"), writes("y", result))
    return Source(buffers, f"int total, {WINDOWS}, int several, int x_zero, float y_zero", body, SATURATED)


@kernel_factory("quantized_pooling.whole", _variants)
def whole(storage: str, result: str) -> Source:
    """x [rows, columns] → y [rows]. A work group adds up a row."""
    body = f"""\
    int item = lid(0), row = group(0), sum = 0;
    if (row < rows) {{
        for (int column = item; column < columns; column += {POOL_TEAM}) sum += load_x(row * columns + column) - x_zero;
    }}
    part[item] = sum;
    for (int step = {POOL_TEAM // 2}; step > 0; step /= 2) {{
        barrier_local();
        if (item < step) part[item] += part[item + step];
    }}
    if (item == 0 && row < rows) store_y(row, to_int(saturated(to_float(part[0]) * factor, y_zero, {_ENDS[result]})));"""
    buffers = (reads("x", storage), writes("y", result))
    params = "int rows, int columns, int x_zero, float factor, float y_zero"
    return Source(buffers, params, body, SATURATED, (("int", "part", POOL_TEAM),), (POOL_TEAM, 1, 1))
