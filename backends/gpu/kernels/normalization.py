"""Normalizations over rows (see rows.py)."""

from __future__ import annotations

import itertools

from mnnx.backends.gpu.constants import TEAM
from mnnx.backends.gpu.kernel import kernel_factory
from mnnx.backends.gpu.kernels.rows import each, forms, local, shared_result, shares, splat, start, total, vector
from mnnx.backends.gpu.source import AHEAD_BLOCK, FLOATS, Source, reads, writes


def _variants() -> list[dict]:
    kinds = [("element", 1), ("element", AHEAD_BLOCK), ("channel", 1), ("channel", AHEAD_BLOCK), ("lane", AHEAD_BLOCK)]
    found = itertools.product(FLOATS, kinds, (1, TEAM))
    plain = [{"storage": storage, "width": width, "per": per, "team": team, "skip": False} for storage, (per, width), team in found]
    return plain + [{**variant, "skip": True} for variant in plain if variant["per"] == "element"]


@kernel_factory("normalization.rows", _variants)
def rows(storage: str, width: int, per: str, team: int, skip: bool) -> Source:
    """y = (x - center * mean) / (sqrt(var + epsilon) + outside) * scale + bias, var the mean square of what is above the line.

    per: what scale and bias have a number for: each "element" of a row, each "channel" of its group, or (rows being lanes) each "lane".
    A row is `channels` channels of `span` vectors; row r of `groups` has the channels from r % groups * channels on. Lanes: row r has
    lane vector r % groups. skip: of the sums of x, a tensor whose `skip_rows` rows repeat, and a shift per element; it tells no
    means and factors. Work items: rows × team.
    """
    along = per != "lane" and width > 1
    t, lanes = vector(width), 1 if along else width
    body, read = start(team), ""
    if skip:
        body += "    int beside = row % skip_rows * count;\n"
        read = f"        {t} v = load_x(base + k) + load_skip(beside + k);\n        if (has_shift != 0) v = v + load_shift(k);\n"
    body += total("sum", width, team, "v", read)
    body += shared_result("mean", "sum", width, along, team, "+")
    body += f"    mean = mean * (center * share);\n    {t} middle = {splat(width, 'mean') if lanes == 1 else 'mean'};\n"
    body += total("squares", width, team, "(v - middle) * (v - middle)", read)
    body += shared_result("inverse", "squares", width, along, team, "+")
    body += f"""\
    inverse = 1.0f / (sqrt(inverse * share + epsilon) + outside);
    {t} factor = {splat(width, "inverse") if lanes == 1 else "inverse"};
    int channel = row % groups * channels;
"""
    if lanes == 1 and not skip:
        body += """\
    if (has_means != 0 && me == 0) store_means(row, mean);
    if (has_factors != 0 && me == 0) store_factors(row, inverse);
"""
    index, wide = {"element": ("k", width), "channel": ("channel + k / span", 1), "lane": ("channel", width)}[per]
    scaled = "load_scale(at_scale)" if wide == width else f"splat{width}(load_scale(at_scale))"
    biased = "load_bias(at_scale)" if wide == width else f"splat{width}(load_bias(at_scale))"
    walk = read + "        if (has_sums != 0) store_sums(at, v);\n" if skip else f"        {t} v = load_x(at);\n"
    body += each(
        team,
        f"""\
{walk}        int at_scale = {index};
        v = (v - middle) * factor;
        if (has_scale != 0) v = v * {scaled};
        if (has_bias != 0) v = v + {biased};
        store_y(at, v);
""",
    )
    buffers = [reads("x", storage, width), reads("scale", storage, wide), reads("bias", storage, wide), writes("y", storage, width)]
    params = "int rows, int count, int inner, int groups, int channels, int span, int has_scale, int has_bias, "
    if skip:
        buffers += [reads("skip", storage, width), reads("shift", storage, width), writes("sums", storage, width)]
        params += "int has_shift, int has_sums, int skip_rows, "
    else:
        buffers += [writes("means", storage), writes("factors", storage)]
        params += "int has_means, int has_factors, "
    params += "float center, float share, float epsilon, float outside"
    return Source(tuple(buffers), params, body, "", shares(width, along, team), local(team))


def _norm_variants() -> list[dict]:
    found = itertools.product(FLOATS, forms(AHEAD_BLOCK), (1, TEAM))
    return [{"storage": storage, "width": width, "along": along, "team": team} for storage, (width, along), team in found]


@kernel_factory("normalization.norm", _norm_variants)
def norm(storage: str, width: int, along: bool, team: int) -> Source:
    """y = x / norm of its row, 0 where that is 0; the norm is the sum of absolute values, or (squared) the root of the sum of squares.
    Work items: rows × team."""
    t, lanes = vector(width), 1 if along else width
    body = start(team)
    body += total("sum", width, team, "(squared != 0 ? v * v : abs_of(v))" if width == 1 else "mixed(v, squared)")
    body += shared_result("all", "sum", width, along, team, "+")
    body += f"""\
    {t} length = {splat(width, "all") if lanes == 1 else "all"};
    if (squared != 0) length = sqrt(length);
    length = keep_nan(max(length, {splat(width, "1.0e-37f")}), length);
{each(team, "        store_y(at, load_x(at) / length);" + chr(10))}"""
    functions = "" if width == 1 else f"{t} mixed({t} v, int squared) {{ if (squared != 0) return v * v; return abs_of(v); }}\n"
    buffers = (reads("x", storage, width), writes("y", storage, width))
    params = "int rows, int count, int inner, int squared"
    return Source(buffers, params, body, functions, shares(width, along, team), local(team))


def _affine_variants() -> list[dict]:
    forms = ((1, False), (AHEAD_BLOCK, False), (AHEAD_BLOCK, True))
    return [{"storage": s, "width": width, "blocked": blocked} for s, (width, blocked) in itertools.product(FLOATS, forms)]


@kernel_factory("normalization.affine", _affine_variants)
def affine(storage: str, width: int, blocked: bool) -> Source:
    """y = (x - mean) / sqrt(variance + epsilon) * scale + bias per channel; blocked: per vector of channels. Work items: vectors of a
    channel, channels of all images."""
    t, wide = vector(width), width if blocked else 1
    put = (lambda text: text) if wide == width else (lambda text: f"splat{width}({text})")
    body = f"""\
    int pixel = gid(0), place = gid(1);
    if (pixel >= pixels || place >= places) return;
    int channel = place % channels, at = place * pixels + pixel;
    {vector(wide)} factor = load_scale(channel) / sqrt(load_variance(channel) + epsilon);
    {t} v = (load_x(at) - {put("load_mean(channel)")}) * {put("factor")} + {put("load_bias(channel)")};
    store_y(at, v);"""
    parameters = (reads(name, storage, wide) for name in ("scale", "bias", "mean", "variance"))
    buffers = (reads("x", storage, width), *parameters, writes("y", storage, width))
    return Source(buffers, "int pixels, int places, int channels, float epsilon", body)


@kernel_factory("normalization.lrn", lambda: [{"storage": s, "width": w} for s, w in itertools.product(FLOATS, (1, AHEAD_BLOCK))])
def lrn(storage: str, width: int) -> Source:
    """y = x / (bias + alpha * sum of squares of the channels - before … + behind) ** beta. Work items: vectors of a channel, channels,
    images."""
    t = vector(width)
    body = f"""\
    int pixel = gid(0), channel = gid(1), image = gid(2) * channels;
    if (pixel >= pixels || channel >= channels) return;
    {t} sum = {splat(width, "0.0f")};
    for (int c = max(0, channel - before); c <= min(channels - 1, channel + behind); c++) {{
        {t} v = load_x((image + c) * pixels + pixel);
        sum = madd(v, v, sum);
    }}
    int at = (image + channel) * pixels + pixel;
    store_y(at, load_x(at) / pow(bias + alpha * sum, {splat(width, "beta")}));"""
    params = "int pixels, int channels, int before, int behind, float alpha, float beta, float bias"
    return Source((reads("x", storage, width), writes("y", storage, width)), params, body)
