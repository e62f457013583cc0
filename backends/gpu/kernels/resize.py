"""Resize by tables of the positions and weights that make up each index of each dim."""

from __future__ import annotations

from collections.abc import Iterator

from mnnx.backends.gpu.constants import RESIZE_DIMS
from mnnx.backends.gpu.kernel import kernel_factory
from mnnx.backends.gpu.source import AHEAD_BLOCK, FLOATS, RAW, Source, reads, writes

#: Per dim its size in the result, its step in x, its number of taps (0: it stays), and where its table starts.
PARAMS = "int total, " + ", ".join(f"int {name}{d}" for name in ("size", "step", "taps", "start") for d in range(RESIZE_DIMS))

_PLACES = (
    """\
    int i = gid(0);
    if (i >= total) return;
    int rest = i;
"""
    + "".join(f"    int j{d} = rest % size{d};\n    rest /= size{d};\n" for d in reversed(range(1, RESIZE_DIMS)))
    + "    int j0 = rest;\n"
)


@kernel_factory("resize.weighted", lambda: ({"storage": storage, "width": width} for storage in FLOATS for width in (1, AHEAD_BLOCK)))
def weighted(storage: str, width: int) -> Source:
    """y = the sum over the taps of all dims of x times their weights. positions, weights: [size, taps] per dim from its start on; a
    position of -1 makes the element `outside`."""
    kind, zero = ("float", "0.0f") if width == 1 else (f"float{width}", f"splat{width}(0.0f)")
    loops = ends = ""
    weight, place = "1.0f", "0"
    for d in range(RESIZE_DIMS):
        indent = "    " * (d + 1)
        loops += f"""\
{indent}for (int t{d} = 0; t{d} < max(taps{d}, 1); t{d}++) {{
{indent}    int p{d} = j{d};
{indent}    float w{d} = {weight};
{indent}    if (taps{d} != 0) {{
{indent}        p{d} = load_positions(start{d} + j{d} * taps{d} + t{d});
{indent}        w{d} *= load_weights(start{d} + j{d} * taps{d} + t{d});
{indent}    }}
{indent}    if (p{d} < 0) beyond = true;
{indent}    int at{d} = {place} + max(p{d}, 0) * step{d};
"""
        weight, place = f"w{d}", f"at{d}"
        ends = f"{indent}}}\n{ends}"
    outside = "outside" if width == 1 else f"splat{width}(outside)"
    body = f"""{_PLACES}    {kind} sum = {zero};
    bool beyond = false;
{loops}                    sum += w{RESIZE_DIMS - 1} * load_x(at{RESIZE_DIMS - 1});
{ends}    if (beyond) sum = {outside};
    store_y(i, sum);"""
    buffers = (reads("x", storage, width), reads("positions", "int"), reads("weights", "float"), writes("y", storage, width))
    return Source(buffers, f"{PARAMS}, float outside", body)


def _nearest_variants() -> Iterator[dict]:
    yield from ({"storage": storage, "width": width} for storage, width in RAW.values())
    yield {"storage": "ushort", "width": AHEAD_BLOCK}


@kernel_factory("resize.nearest", _nearest_variants)
def nearest(storage: str, width: int) -> Source:
    """y = the one element of x at the positions, moved as it is."""
    places = "".join(f"    int p{d} = taps{d} != 0 ? load_positions(start{d} + j{d}) : j{d};\n" for d in range(RESIZE_DIMS))
    place = " + ".join(f"p{d} * step{d}" for d in range(RESIZE_DIMS))
    body = f"{_PLACES}{places}    store_y(i, load_x({place}));"
    return Source((reads("x", storage, width), reads("positions", "int"), writes("y", storage, width)), PARAMS, body)
