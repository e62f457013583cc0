"""Sampling of images at given positions, grids of such positions, and regions of interest."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from mnnx.backends.gpu.kernel import kernel_factory
from mnnx.backends.gpu.source import CHECKED, FLOATS, LOWEST, REPORT, Source, index_at, reads, writes

_START = """\
    int i = gid(0);
    if (i >= total) return;
"""

# Modes: 0 nearest, 1 linear, 2 cubic. Padding: 0 zeros, 1 border, 2 reflection. `aligned`: -1 and 1 are the centres of the first and
# the last pixel, else their outer edges. Keys's cubic kernel has a = -0.75 (IEEE ASSP 29, 1981).
_SAMPLING = """
float reflected(float x, float low, float high) {
    float extent = high - low;
    if (extent <= 0.0f) return low;
    if (m_abs(x - (low + high) * 0.5f) <= extent * 0.5f) return x;
    float phase = m_mod(x - low, 2.0f * extent);
    return low + (phase < 2.0f * extent - phase ? phase : 2.0f * extent - phase);
}
float position_of(float g, int dim, int mode, int padding, int aligned) {
    float x = aligned != 0 ? (g + 1.0f) * 0.5f * to_float(dim - 1) : ((g + 1.0f) * to_float(dim) - 1.0f) * 0.5f;
    float low = aligned != 0 ? 0.0f : -0.5f, high = aligned != 0 ? to_float(dim - 1) : to_float(dim) - 0.5f;
    if (mode == 0) x = m_round(x);
    if (padding == 1 && (x < low || x > high)) x = clamp(x, 0.0f, to_float(dim - 1));
    if (padding == 2 && m_abs(x) < 1.0e9f) x = reflected(x, low, high);
    return m_abs(x) < 1.0e9f ? x : -100.0f;
}
float weight_of(float fraction, int tap, int mode) {
    if (mode == 0) return 1.0f;
    if (mode == 1) return tap == 0 ? 1.0f - fraction : fraction;
    float d = m_abs(fraction - to_float(tap - 1));
    if (d <= 1.0f) return (1.25f * d - 2.25f) * d * d + 1.0f;
    return d < 2.0f ? ((-0.75f * d + 3.75f) * d - 6.0f) * d + 3.0f : 0.0f;
}
int index_of(int place, int dim, int padding, int aligned) {
    if (padding == 0 && (place < 0 || place >= dim)) return -1;
    int index = place;
    if (padding == 2) {
        float low = aligned != 0 ? 0.0f : -0.5f, high = aligned != 0 ? to_float(dim - 1) : to_float(dim) - 0.5f;
        index = to_int(reflected(to_float(place), low, high));
    }
    return clamp(index, 0, dim - 1);
}
"""


@kernel_factory("image.sample", lambda: ({"storage": x, "grid": grid} for x, grid in itertools.product(FLOATS, FLOATS)))
def sample(storage: str, grid: str) -> Source:
    """x [N, channels, size0, size1, size2] at grid [N, points, dims], positions innermost first → y [N, channels, points]. Of fewer than
    three dims the first sizes are 1."""
    set_up = loops = ends = ""
    weight, place = "1.0f", "channel"
    for d in range(3):
        indent = "    " * (d + 1)
        set_up += f"""\
    float x{d} = dims > {2 - d} ? position_of(load_grid(at + {2 - d}), size{d}, mode, padding, aligned) : 0.0f;
    float base{d} = m_floor(x{d});
    int taps{d} = dims > {2 - d} ? taps : 1, from{d} = to_int(base{d}) - (dims > {2 - d} && mode == 2 ? 1 : 0);
"""
        loops += f"""\
{indent}for (int t{d} = 0; t{d} < taps{d}; t{d}++) {{
{indent}    int p{d} = index_of(from{d} + t{d}, size{d}, padding, aligned);
{indent}    if (p{d} < 0) continue;
{indent}    float w{d} = {weight} * (dims > {2 - d} ? weight_of(x{d} - base{d}, t{d}, mode) : 1.0f);
{indent}    int at{d} = {place} * size{d} + p{d};
"""
        weight, place = f"w{d}", f"at{d}"
        ends = f"{indent}}}\n{ends}"
    body = f"""{_START}    int channel = i / points, at = (channel / channels * points + i % points) * dims;
    int taps = mode == 0 ? 1 : 2 * mode;
    float sum = 0.0f;
{set_up}{loops}                sum += w2 * load_x(at2);
{ends}    store_y(i, sum);"""
    buffers = (reads("x", storage), reads("grid", grid), writes("y", storage))
    sizes = "int size0, int size1, int size2"
    return Source(buffers, f"int total, int channels, int points, int dims, {sizes}, int mode, int padding, int aligned", body, _SAMPLING)


@kernel_factory("image.affine_grid", lambda: [{"storage": storage} for storage in FLOATS])
def affine_grid(storage: str) -> Source:
    """theta [N, dims, dims + 1] → y [N, size0, size1, size2, dims]."""
    body = f"""{_START}    int j = i % dims, rest = i / dims;
    int k2 = rest % size2;
    rest /= size2;
    int k1 = rest % size1;
    rest /= size1;
    int row = (rest / size0 * dims + j) * (dims + 1);
    float sum = load_theta(row) * centre(k2, size2, aligned) + load_theta(row + 1) * centre(k1, size1, aligned);
    if (dims == 3) sum += load_theta(row + 2) * centre(rest % size0, size0, aligned);
    store_y(i, sum + load_theta(row + dims));"""
    functions = """
float centre(int k, int size, int aligned) {
    if (aligned == 0) return to_float(2 * k + 1) / to_float(size) - 1.0f;
    return size > 1 ? to_float(2 * k) / to_float(size - 1) - 1.0f : 0.0f;
}
"""
    params = "int total, int dims, int size0, int size1, int size2, int aligned"
    return Source((reads("theta", storage), writes("y", storage)), params, body, functions)


def _region_variants() -> Iterator[dict]:
    return ({"storage": storage, "largest": largest} for storage in FLOATS for largest in (False, True))


@kernel_factory("image.regions", _region_variants)
def regions(storage: str, largest: bool) -> Source:
    """x [N, channels, height, width], regions [R, 4] and their images' indices [R] → y [R, channels, rows, columns], the mean of a bin's
    bilinear samples, or the largest of their weighted corners. A region that can't be is reported by its number."""
    if largest:
        start, add, result = LOWEST, "best = m_max(best, m_max(m_max(a, b), m_max(c, d)));", "down * across > 0 ? best : 0.0f"
    else:
        start, add, result = "0.0f", "best += a + b + c + d;", "best / to_float(max(down * across, 1))"
    corners = "".join(
        f"            float {name} = {rows} * {columns} * load_x((plane + {row}) * width + {column});\n"
        for name, rows, columns, row, column in (
            ("a", "y0", "x0", "top", "left"),
            ("b", "y0", "x1", "top", "right"),
            ("c", "y1", "x0", "bottom", "left"),
            ("d", "y1", "x1", "bottom", "right"),
        )
    )
    body = f"""{_START}    int column = i % columns, row = i / columns % rows, channel = i / columns / rows % channels;
    int region = i / columns / rows / channels;
    {index_at("images", "region")}
    int image = checked(low, high, number);
    float left_edge = load_regions(4 * region) * scale - shift, top_edge = load_regions(4 * region + 1) * scale - shift;
    float wide = load_regions(4 * region + 2) * scale - shift - left_edge;
    float tall = load_regions(4 * region + 3) * scale - shift - top_edge;
    if (image < 0 || !(m_abs(wide) + m_abs(tall) + m_abs(left_edge) + m_abs(top_edge) < 1.0e9f)) {{
        low = region;
        high = 0;
        {REPORT}
        return;
    }}
    if (at_least_one != 0) {{
        wide = max(wide, 1.0f);
        tall = max(tall, 1.0f);
    }}
    wide /= to_float(columns);
    tall /= to_float(rows);
    int across = samples > 0 ? samples : max(to_int(m_ceil(wide)), 0), down = samples > 0 ? samples : max(to_int(m_ceil(tall)), 0);
    int plane = (image * channels + channel) * height;
    float best = {start};
    for (int k = 0; k < down; k++) {{
        float y = top_edge + to_float(row) * tall + (to_float(k) + 0.5f) * (tall / to_float(down));
        float seen = y >= -1.0f && y <= to_float(height) ? 1.0f : 0.0f;
        y = clamp(y, 0.0f, to_float(height - 1));
        int top = to_int(y), bottom = min(top + 1, height - 1);
        float y1 = (y - to_float(top)) * seen, y0 = seen - y1;
        for (int m = 0; m < across; m++) {{
            float x = left_edge + to_float(column) * wide + (to_float(m) + 0.5f) * (wide / to_float(across));
            float shown = x >= -1.0f && x <= to_float(width) ? 1.0f : 0.0f;
            x = clamp(x, 0.0f, to_float(width - 1));
            int left = to_int(x), right = min(left + 1, width - 1);
            float x1 = (x - to_float(left)) * shown, x0 = shown - x1;
{corners}            {add}
        }}
    }}
    store_y(i, {result});"""
    buffers = (reads("x", storage), reads("regions", storage), reads("images", "int"), writes("y", storage), writes("faults", "int"))
    params = (
        "int total, int number, int channels, int height, int width, int rows, int columns, int samples, int at_least_one, "
        "float scale, float shift, int words, int slot"
    )
    return Source(buffers, params, body, CHECKED)
