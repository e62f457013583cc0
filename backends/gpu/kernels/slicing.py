"""Triangles and reversed sequences, whatever their dtype."""

from __future__ import annotations

from mnnx.backends.gpu.kernel import kernel_factory
from mnnx.backends.gpu.source import RAW, REPORT, Source, index_at, reads, writes


def _raw() -> list[dict]:
    return [{"storage": storage, "width": width} for storage, width in RAW.values()]


@kernel_factory("slicing.triangle", _raw)
def triangle(storage: str, width: int) -> Source:
    """y = x, matrices of `rows` × `columns`, on the diagonal k and above (`upper` 1) or below it; `zero` elsewhere."""
    body = f"""\
    int i = gid(0);
    if (i >= total) return;
    {index_at("diagonal", "0")}
    int k = high == (low < 0 ? -1 : 0) ? low : high < 0 ? -rows - columns : rows + columns;
    k = min(max(k, -rows - 1), columns + 1);
    int below = i % columns - i / columns % rows;
    bool kept = upper != 0 ? below >= k : below <= k;
    if (kept) store_y(i, load_x(i));
    else store_y(i, load_zero(0));"""
    buffers = (reads("x", storage, width), reads("diagonal", "int"), reads("zero", storage, width), writes("y", storage, width))
    return Source(buffers, "int total, int rows, int columns, int upper, int words", body)


@kernel_factory("slicing.reverse", _raw)
def reverse(storage: str, width: int) -> Source:
    """The first lengths[b] elements along the time axis in reverse; steps: elements from one index of an axis to the next."""
    body = f"""\
    int i = gid(0);
    if (i >= total) return;
    int batch = i / batch_step % batches, time = i / time_step % times;
    {index_at("lengths", "batch")}
    if (high != 0 || low < 0 || low > times) {{ {REPORT} return; }}
    int from = time < low ? low - 1 - time : time;
    store_y(i, load_x(i + (from - time) * time_step));"""
    buffers = (reads("x", storage, width), reads("lengths", "int"), writes("y", storage, width), writes("faults", "int"))
    return Source(buffers, "int total, int batches, int batch_step, int times, int time_step, int words, int slot", body)
