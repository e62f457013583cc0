"""Losses of classes: the scores of labels, and their sum."""

from __future__ import annotations

import itertools

from mnnx.backends.gpu.constants import TEAM, TERMS
from mnnx.backends.gpu.kernel import kernel_factory
from mnnx.backends.gpu.source import FLOATS, REPORT, Source, reads, writes


@kernel_factory("loss.each", lambda: [{"storage": s, "result": r} for s, r in itertools.product(FLOATS, FLOATS)])
def each(storage: str, result: str) -> Source:
    """losses [outer, inner], minus the scores x [outer, classes, inner] of the labels times their weights, and these weights as `factors`.

    Labels, of `words` ints, that are ignored_low and ignored_high have the weight 0. Work items: labels.
    """
    body = f"""\
    int i = gid(0);
    if (i >= total) return;
    int low = load_labels(i * words), high = low < 0 ? -1 : 0;
    if (words == 2) high = load_labels(i * words + 1);
    float factor = 0.0f, loss = 0.0f;
    if (ignores == 0 || low != ignored_low || high != ignored_high) {{
        if (high != 0 || low < 0 || low >= classes) {{ {REPORT} return; }}
        factor = 1.0f;
        if (has_weights != 0) factor = load_weights(low);
        loss = -load_x((i / inner * classes + low) * inner + i % inner) * factor;
    }}
    store_losses(i, loss);
    store_factors(i, factor);"""
    params = "int total, int classes, int inner, int words, int ignores, int ignored_low, int ignored_high, int has_weights, int slot"
    buffers = (
        reads("x", storage), reads("labels", "int"), reads("weights", storage), writes("losses", result), writes("factors", "float"),
        writes("faults", "int"),
    )  # fmt: skip
    return Source(buffers, params, body)


@kernel_factory("loss.total", lambda: [{"storage": s, "team": team} for s, team in itertools.product(FLOATS, (1, TEAM))])
def total(storage: str, team: int) -> Source:
    """y, the sum of the losses; divides: by that of the factors. One group of `team` work items."""
    shared = f"""\
    shares[me] = pack2(sum, weight);
    barrier_local();
    for (int half_of = {team // 2}; half_of > 0; half_of /= 2) {{
        if (me < half_of) shares[me] = shares[me] + shares[me + half_of];
        barrier_local();
    }}
    sum = shares[0].x;
    weight = shares[0].y;
"""
    body = f"""\
    int me = gid(0);
{"" if team > 1 else "    if (me > 0) return;" + chr(10)}    float sum = 0.0f, weight = 0.0f;
    for (int i0 = me; i0 < total; i0 += {team * TERMS}) {{
        float some = 0.0f, factors = 0.0f;
        int end = min(total, i0 + {team * TERMS});
        for (int i = i0; i < end; i += {team}) {{
            some += load_losses(i);
            factors += load_factors(i);
        }}
        sum += some;
        weight += factors;
    }}
{shared if team > 1 else ""}    if (me == 0) store_y(0, divides != 0 ? sum / weight : sum);"""
    arrays = (("float2", "shares", TEAM),) if team > 1 else ()
    buffers = (reads("losses", "float"), reads("factors", "float"), writes("y", storage))
    return Source(buffers, "int total, int divides", body, "", arrays, (TEAM, 1, 1))
