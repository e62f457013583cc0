"""Softmax and its kin over rows (see rows.py)."""

from __future__ import annotations

import itertools

from mnnx.backends.gpu.constants import TEAM
from mnnx.backends.gpu.kernel import kernel_factory
from mnnx.backends.gpu.kernels.rows import each, forms, local, shared_result, shares, splat, start, total, vector
from mnnx.backends.gpu.source import AHEAD_BLOCK, FLOATS, Source, reads, writes


def _variants() -> list[dict]:
    found = itertools.product(FLOATS, forms(AHEAD_BLOCK), (1, TEAM))
    return [{"storage": storage, "width": width, "along": along, "team": team} for storage, (width, along), team in found]


@kernel_factory("softmax.rows", _variants)
def rows(storage: str, width: int, along: bool, team: int) -> Source:
    """y = exp(x - max) / sum, or its logarithm. blind: rows of nothing but -inf give 0, not NaN. Work items: rows × team."""
    t = vector(width)
    largest = "max"
    body = start(team)
    body += f"    {t} high = {splat(width, '-INFINITY')};\n"
    body += each(team, "        high = max(high, load_x(at));\n")
    body += shared_result("peak", "high", width, along, team, largest)
    lanes = 1 if along else width
    if lanes == 1:
        body += "    if (blind != 0 && peak == -INFINITY) peak = 0.0f;\n"
    body += f"    {t} shift = {splat(width, 'peak') if lanes == 1 else 'peak'};\n"
    body += total("sum", width, team, "exp(v - shift)")
    body += shared_result("all", "sum", width, along, team, "+")
    if lanes == 1:
        body += "    if (blind != 0 && all == 0.0f) all = 1.0f;\n"
    body += f"    {t} factor = {splat(width, 'all') if lanes == 1 else 'all'};\n"
    body += f"""\
    if (logarithm != 0) {{
        factor = log(factor);
{_indented(each(team, "        store_y(at, load_x(at) - shift - factor);" + chr(10)))}    }} else {{
        factor = 1.0f / factor;
{_indented(each(team, "        store_y(at, exp(load_x(at) - shift) * factor);" + chr(10)))}    }}
"""
    buffers = (reads("x", storage, width), writes("y", storage, width))
    params = "int rows, int count, int inner, int logarithm, int blind"
    return Source(buffers, params, body, "", shares(width, along, team), local(team))


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


@kernel_factory("softmax.hard", lambda: [{"storage": storage} for storage in FLOATS])
def hard(storage: str) -> Source:
    """y = 1 at the first largest element of a row, else 0. Work items: rows."""
    body = f"""\
{start(1)}    int best = 0;
    float high = load_x(base);
    for (int k = 1; k < count; k++) {{
        float v = load_x(base + k * inner);
        if (v > high || (v != v && high == high)) {{
            high = v;
            best = k;
        }}
    }}
{each(1, "        store_y(at, k == best ? 1.0f : 0.0f);" + chr(10))}"""
    return Source((reads("x", storage), writes("y", storage)), "int rows, int count, int inner", body)
