"""Matrices made of nothing."""

from __future__ import annotations

from mnnx.backends.gpu.kernel import kernel_factory
from mnnx.backends.gpu.source import RAW, Source, reads, writes


@kernel_factory("generation.eye", lambda: [{"storage": storage, "width": width} for storage, width in RAW.values() if width < 4])
def eye(storage: str, width: int) -> Source:
    """y [rows, columns] = values[1] on the diagonal k, else values[0]."""
    body = """\
    int i = gid(0);
    if (i >= total) return;
    store_y(i, load_values(i % columns - i / columns == k ? 1 : 0));"""
    return Source((reads("values", storage, width), writes("y", storage, width)), "int total, int columns, int k", body)
