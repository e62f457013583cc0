"""What attention needs beside products and softmax."""

from __future__ import annotations

import itertools

from mnnx.backends.gpu.kernel import kernel_factory
from mnnx.backends.gpu.source import FLOATS, REPORT, Source, reads, writes


@kernel_factory("attention.mask", lambda: [{"storage": s, "mask": m} for s, m in itertools.product(FLOATS, ("same", "bool"))])
def mask(storage: str, mask: str) -> Source:
    """What is added to the scores [items, queries, keys]: the mask's number (bool: 0 or -inf) where query i may see key j, else -inf. The
    mask has numbers for the first mask_keys.

    mask: its storage, or "same" as that of the scores. The table has for each item where its mask begins, the numbers of the first query
    being `start` further, and its number in lengths (of int64): the keys that there are, of which the last belongs to the last of
    all_queries; one outside 0 … keys is reported. Work items: keys, queries, items of the mask.
    """
    found = "load_x(from) ? 0.0f : -INFINITY" if mask == "bool" else "load_x(from)"
    body = f"""\
    int j = gid(0), i = gid(1), item = gid(2);
    if (j >= keys || i >= queries || item >= items) return;
    int from = load_table(2 * item) + start + i * row_step + j, length = keys, shift = 0;
    if (has_lengths != 0) {{
        int at = 2 * load_table(2 * item + 1), low = load_lengths(at), high = load_lengths(at + 1);
        if (high != 0 || low < 0 || low > keys) {{ {REPORT} return; }}
        length = low;
        shift = length - all_queries;
    }}
    float v = -INFINITY;
    if (j < length && j - i >= first + shift && j - i <= last + shift) {{
        v = 0.0f;
        if (has_mask != 0) v = j < mask_keys ? ({found}) : -INFINITY;
    }}
    store_y((item * queries + i) * keys + j, v);"""
    params = (
        "int queries, int keys, int items, int first, int last, int has_mask, int mask_keys, int start, int row_step, int has_lengths, "
        "int all_queries, int slot"
    )
    buffers = (reads("x", storage if mask == "same" else mask), reads("table", "int"), reads("lengths", "int"), writes("y", storage))
    return Source((*buffers, writes("faults", "int")), params, body)


@kernel_factory("attention.cap", lambda: [{"storage": storage} for storage in FLOATS])
def cap(storage: str) -> Source:
    """scores [items, queries, keys] = cap * tanh(scores / cap), and then the bias; that of each item begins where the table says. Work
    items: keys, queries, items."""
    body = """\
    int j = gid(0), i = gid(1), item = gid(2);
    if (j >= keys || i >= queries || item >= items) return;
    int at = (item * queries + i) * keys + j;
    float v = cap * m_tanh(load_y(at) / cap);
    if (has_bias != 0) v = v + load_bias(load_table(item) + i * row_step + j);
    store_y(at, v);"""
    params = "int queries, int keys, int items, int has_bias, int row_step, float cap"
    return Source((reads("bias", storage), reads("table", "int"), writes("y", storage)), params, body)


@kernel_factory("attention.rotary", lambda: [{"storage": storage} for storage in FLOATS])
def rotary(storage: str) -> Source:
    """y, x [batch, outer, inner, size] with pairs of the first `rotated` elements turned by their position's angle.

    The position is one of the outer dim where heads_inside, else of the inner one; its row in cos and sin, [rows, rotated / 2], is what
    positions (of int64) say, or where `rows` is 0, its own.
    """
    body = f"""\
    int i = gid(0);
    if (i >= total) return;
    int d = i % size, b = i / size % inner, a = i / size / inner % outer, item = i / size / inner / outer;
    float v = load_x(i);
    if (d >= rotated) {{
        store_y(i, v);
        return;
    }}
    int row = heads_inside != 0 ? item * outer + a : item * inner + b, pair_of = d / 2, step_of = d % 2 == 0 ? 1 : -1;
    if (interleaved == 0) {{
        pair_of = d % (rotated / 2);
        step_of = d < rotated / 2 ? rotated / 2 : -(rotated / 2);
    }}
    if (rows > 0) {{
        int low = load_positions(2 * row), high = load_positions(2 * row + 1);
        if (high != 0 || low < 0 || low >= rows) {{ {REPORT} return; }}
        row = low;
    }}
    float other = load_x(i + step_of), c = load_cos(row * (rotated / 2) + pair_of), s = load_sin(row * (rotated / 2) + pair_of);
    store_y(i, c * v + (step_of > 0 ? -s : s) * other);"""
    params = "int total, int outer, int inner, int heads_inside, int size, int rotated, int interleaved, int rows, int slot"
    buffers = (
        reads("x", storage), reads("cos", storage), reads("sin", storage), reads("positions", "int"), writes("y", storage),
        writes("faults", "int"),
    )  # fmt: skip
    return Source(buffers, params, body)
