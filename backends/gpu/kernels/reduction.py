"""Reductions, indices of extremes, and running sums of rows (see rows.py)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from mnnx.backends.gpu.constants import TEAM, TERMS
from mnnx.backends.gpu.kernel import kernel_factory
from mnnx.backends.gpu.kernels.rows import folded, forms, result_width, splat, start, vector
from mnnx.backends.gpu.source import AHEAD_BLOCK, FLOATS, Source, lane, reads, writes

#: kind → the value of nothing, and how a vector is added to what there is.
_KINDS = {"sum": ("0.0f", "{0} + {1}"), "product": ("1.0f", "{0} * {1}"), "max": ("-INFINITY", "larger({0}, {1})")}


def _variants() -> Iterator[dict[str, Any]]:
    for kind, source, result, (width, along) in itertools.product(_KINDS, FLOATS, FLOATS, forms(AHEAD_BLOCK)):
        yield {"kind": kind, "source": source, "result": result, "width": width, "along": along}


def _lane_by_lane(name: str, width: int, arguments: str, expression: str) -> str:
    """A function of vectors, whose expression has `@` for the lane."""
    t = vector(width)
    if width == 1:
        return f"float {name}({arguments.replace('T', t)}) {{ return {expression.replace('@', '')}; }}\n"
    lines = "".join(f"    result{suffix} = {expression.replace('@', suffix)};\n" for suffix in (lane(width, i) for i in range(width)))
    return f"{t} {name}({arguments.replace('T', t)}) {{\n    {t} result;\n{lines}    return result;\n}}\n"


@kernel_factory("reduction.rows", _variants)
def rows(kind: str, source: str, result: str, width: int, along: bool) -> Source:
    """y [outer, parts, inner] from x [outer, count, inner]: what the vectors of each part of a row come to.

    Part p has every `step`-th of the `span` vectors from p * part_step on. kind: "sum" of the terms (term 0: x, 1: |x|, 2: x², 3: exp(x
    - peak), peak [outer, inner]), "product", or "max" of factor * x, NaN where one is. The result is multiplied by factor and finished: 1:
    square root; 2: logarithm; 3: logarithm + peak. Work items: rows × parts.
    """
    t, lanes, (nothing, combine) = vector(width), result_width(width, along), _KINDS[kind]
    terms = {
        "sum": """\
            if (term == 1) v = abs_of(v);
            if (term == 2) v = v * v;
            if (term == 3) v = exp(v - shift);
""",
        "product": "",
        "max": "            v = v * factor;\n",
    }[kind]
    peak = f"""\
    {vector(lanes)} peak = {splat(lanes, "0.0f")};
    if (term == 3 || finish == 3) peak = finite_of(load_peak(o * inner + i));
    {t} shift = {splat(width, "peak") if lanes == 1 else "peak"};
"""
    finish = """\
    if (finish == 1) value = sqrt(value);
    if (finish >= 2) value = log(value) + peak;
"""
    value = folded("all", width, {"sum": "+", "product": "*", "max": "m_max"}[kind]) if along else "all"
    body = f"""\
    int row = gid(0);
    if (row >= rows) return;
    int i = row % inner, p = row / inner % parts, o = row / inner / parts;
    int base = o * count * inner + i, first = p * part_step, last = min(count, first + span);
{peak if kind == "sum" else ""}\
    {t} all = {splat(width, nothing)};
    for (int k0 = first; k0 < last; k0 += {TERMS} * step) {{
        {t} part = {splat(width, nothing)};
        int end = min(last, k0 + {TERMS} * step);
        for (int k = k0; k < end; k += step) {{
            {t} v = load_x(base + k * inner);
{terms}            part = {combine.format("part", "v")};
        }}
        all = {combine.format("all", "part")};
    }}
    {vector(lanes)} value = ({value}) * factor;
{finish if kind == "sum" else ""}\
    store_y(row, value);"""
    functions = {
        "sum": _lane_by_lane("finite_of", lanes, "T v", "abs_of(v@) == INFINITY ? 0.0f : v@"),
        "product": "",
        "max": _lane_by_lane("larger", width, "T a, T b", "m_max(a@, b@)"),
    }[kind]
    buffers = (reads("x", source, width), reads("peak", "float", lanes), writes("y", result, lanes))
    params = "int rows, int count, int inner, int parts, int part_step, int step, int span, int term, int finish, float factor"
    return Source(buffers, params, body, functions)


@kernel_factory("reduction.ints", lambda: [{}])
def ints() -> Source:
    """y [outer, inner] from x [outer, count, inner] of int32; kind: a place in constants.INT_KINDS. Work items: rows."""
    body = f"""\
{start(1)}    int all = 0;
    if (kind == 1) all = 1;
    if (kind == 2) all = INT_MIN;
    if (kind == 3) all = INT_MAX;
    for (int k = 0; k < count; k++) {{
        int v = load_x(base + k * inner);
        if (kind == 0) all = all + v;
        if (kind == 1) all = all * v;
        if (kind == 2) all = max(all, v);
        if (kind == 3) all = min(all, v);
        if (kind == 4) all = all + (v < 0 ? -v : v);
        if (kind == 5) all = all + v * v;
    }}
    store_y(row, all);"""
    return Source((reads("x", "int"), writes("y", "int")), "int rows, int count, int inner, int kind", body)


@kernel_factory("reduction.arg", lambda: [{"storage": s, "team": team} for s, team in itertools.product(FLOATS, (1, TEAM))])
def arg(storage: str, team: int) -> Source:
    """y, the int64 place of the largest sign * x of a row, the first or the last such one; NaN is larger than all. Work items: rows ×
    team."""
    shared = f"""\
    values[me] = high;
    places[me] = best;
    barrier_local();
    for (int half_of = {team // 2}; half_of > 0; half_of /= 2) {{
        if (me < half_of && is_better(values[me + half_of], places[me + half_of], values[me], places[me], last)) {{
            values[me] = values[me + half_of];
            places[me] = places[me + half_of];
        }}
        barrier_local();
    }}
    best = places[0];
"""
    body = f"""\
{start(team)}    float high = 0.0f;
    int best = -1;
    for (int k = me; k < count; k += {team}) {{
        float v = sign * load_x(base + k * inner);
        if (is_better(v, k, high, best, last)) {{
            high = v;
            best = k;
        }}
    }}
{shared if team > 1 else ""}    if (me == 0) {{
        store_y(2 * row, best);
        store_y(2 * row + 1, 0);
    }}"""
    functions = """\
bool is_better(float v, int place, float high, int best, int last) {
    if (place < 0 || best < 0) return place >= 0;
    bool unlike = v > high || (v != v && high == high);
    bool alike = v == high || (v != v && high != high);
    return unlike || (alike && (last != 0 ? place > best : place < best));
}
"""
    arrays = (("float", "values", TEAM), ("int", "places", TEAM)) if team > 1 else ()
    params = "int rows, int count, int inner, float sign, int last"
    return Source((reads("x", storage), writes("y", "int")), params, body, functions, arrays, (TEAM, 1, 1))


@kernel_factory("reduction.running", lambda: [{"storage": storage} for storage in (*FLOATS, "int")])
def running(storage: str) -> Source:
    """y: sums (products: products) of the elements of a row up to each one, from its end where reverse; exclusive: without it. Work items:
    rows."""
    kind, suffix = ("int", "") if storage == "int" else ("float", ".0f")
    body = f"""\
{start(1)}    {kind} all = products != 0 ? 1{suffix} : 0{suffix};
    for (int i = 0; i < count; i++) {{
        int at = base + (reverse != 0 ? count - 1 - i : i) * inner;
        {kind} v = load_x(at), before = all;
        all = products != 0 ? all * v : all + v;
        store_y(at, exclusive != 0 ? before : all);
    }}"""
    params = "int rows, int count, int inner, int products, int reverse, int exclusive"
    return Source((reads("x", storage), writes("y", storage)), params, body)
