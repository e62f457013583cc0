"""Casts from and to dtypes of 8 bits and less, by tables; bits read as another dtype."""

from __future__ import annotations

from collections.abc import Iterator

from mnnx.backends.gpu.kernel import kernel_factory
from mnnx.backends.gpu.source import FLOATS, RAW, Source, reads, writes

_START = """\
    int i = gid(0);
    if (i >= total) return;
"""


@kernel_factory("cast.table", lambda: [{"storage": storage, "width": width} for storage, width in RAW.values() if width < 4])
def table(storage: str, width: int) -> Source:
    """y[i] = the table's element x[i], a byte."""
    buffers = (reads("x", "uchar"), reads("table", storage, width), writes("y", storage, width))
    return Source(buffers, "int total", f"{_START}    store_y(i, load_table(load_x(i)));")


@kernel_factory("cast.low_bits", lambda: [{"storage": storage} for storage in (*FLOATS, "int", "char", "uchar", "short", "ushort")])
def low_bits(storage: str) -> Source:
    """y[i] = the table's byte at the low bits of x[i], truncated to an integer."""
    whole = "to_int(load_x(i))" if storage in FLOATS else "load_x(i)"
    body = f"{_START}    store_y(i, load_table({whole} & mask));"
    return Source((reads("x", storage), reads("table", "uchar"), writes("y", "uchar")), "int total, int mask", body)


@kernel_factory("cast.steps", lambda: [{"storage": storage} for storage in FLOATS])
def steps(storage: str) -> Source:
    """y[i] = a byte for the sign and magnitude of x[i]: that of the last step which isn't beyond its bits as an integer.

    The table holds the bits at which the `positive` steps begin, their bytes, and the same for the `negative` ones.
    """
    body = f"""{_START}    int bits = bits_of(load_x(i));
    int size = bits & 2147483647, count = bits < 0 ? negative : positive, start = bits < 0 ? 2 * positive : 0;
    int low = 0, high = count;
    while (high - low > 1) {{
        int middle = (low + high) / 2;
        if (load_table(start + middle) <= size) low = middle;
        else high = middle;
    }}
    store_y(i, load_table(start + count + low));"""
    return Source((reads("x", storage), reads("table", "int"), writes("y", "uchar")), "int total, int positive, int negative", body)


def _bits_variants() -> Iterator[dict]:
    return ({"storage": storage, "whole": whole} for storage in FLOATS for whole in ("int", "uint"))


@kernel_factory("cast.bits_of_float", _bits_variants)
def bits_of_float(storage: str, whole: str) -> Source:
    """y[i] = the bits of the float32 x[i], however it is stored."""
    value = "bits_of(load_x(i))" if whole == "int" else "to_uint(bits_of(load_x(i)))"
    return Source((reads("x", storage), writes("y", whole)), "int total", f"{_START}    store_y(i, {value});")


@kernel_factory("cast.float_of_bits", _bits_variants)
def float_of_bits(storage: str, whole: str) -> Source:
    """y[i] = the float32 of the bits x[i]."""
    return Source((reads("x", whole), writes("y", storage)), "int total", f"{_START}    store_y(i, float_of(to_int(load_x(i))));")
