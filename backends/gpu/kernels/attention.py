"""What attention needs beside products and softmax."""

from __future__ import annotations

import itertools

from mnnx.backends.gpu.kernel import kernel_factory
from mnnx.backends.gpu.source import FLOATS, Source, reads, writes


@kernel_factory("attention.mask", lambda: [{"storage": s, "mask": m} for s, m in itertools.product(FLOATS, ("same", "bool"))])
def mask(storage: str, mask: str) -> Source:
    """What is added to the scores [items, queries, keys]: the mask's number (bool: 0 or -inf) where query i may see key j, else -inf.

    mask: its storage, or "same" as that of the scores; the numbers of the first query begin at `start`. Work items: keys, queries, items
    of the mask.
    """
    found = "load_x(from) ? 0.0f : -INFINITY" if mask == "bool" else "load_x(from)"
    body = f"""\
    int j = gid(0), i = gid(1), item = gid(2);
    if (j >= keys || i >= queries) return;
    int from = start + item * item_step + i * row_step + j;
    float v = -INFINITY;
    if (j - i >= first && j - i <= last) {{
        v = 0.0f;
        if (has_mask != 0) v = {found};
    }}
    store_y((item * queries + i) * keys + j, v);"""
    params = "int queries, int keys, int first, int last, int has_mask, int start, int item_step, int row_step"
    return Source((reads("x", storage if mask == "same" else mask), writes("y", storage)), params, body)
