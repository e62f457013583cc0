"""Poolings of [rows, depth, height, width]: rows are channels, or in the blocked layout blocks of channels, with a vector per pixel."""

from __future__ import annotations

from collections.abc import Iterator

from mnnx.backends.gpu.constants import POOL_TEAM, WINDOW_DIMS
from mnnx.backends.gpu.kernel import kernel_factory
from mnnx.backends.gpu.source import AHEAD_BLOCK, FLOATS, LOWEST, Source, reads, writes

#: Of windows, in each of three spatial dims: the input's size, taps, stride, dilation, padding before and after, how many windows.
WINDOWS = ", ".join(
    f"int {name}{d}" for name in ("size", "taps", "stride", "dilation", "begin", "end", "count") for d in range(WINDOW_DIMS)
)

#: The first pixel of a work item's window, and the channel that it lies in.
PLACE = """\
    int i = gid(0);
    if (i >= total) return;
    int x2 = i % count2, rest = i / count2;
    int x1 = rest % count1;
    rest /= count1;
    int x0 = rest % count0;
    int row = (rest / count0) * size0 * size1 * size2;
    x0 = x0 * stride0 - begin0;
    x1 = x1 * stride1 - begin1;
    x2 = x2 * stride2 - begin2;
"""


def taps(inner: str) -> str:
    """Loops over the taps of a window that lie inside: `place` is such a tap's pixel."""
    text = ""
    for d in range(WINDOW_DIMS):
        indent = "    " * (d + 1)
        text += f"{indent}for (int t{d} = 0; t{d} < taps{d}; t{d}++) {{\n{indent}    int p{d} = x{d} + t{d} * dilation{d};\n"
        text += f"{indent}    if (p{d} < 0 || p{d} >= size{d}) continue;\n"
    return text + f"{' ' * 16}int place = (p0 * size1 + p1) * size2 + p2;\n{inner}        }}\n    }}\n    }}\n"


def _layouts() -> Iterator[dict]:
    return ({"storage": storage, "width": width} for storage in FLOATS for width in (1, AHEAD_BLOCK))


def _vector(width: int) -> str:
    return "float" if width == 1 else f"float{width}"


def _splat(width: int, value: str) -> str:
    return value if width == 1 else f"splat{width}({value})"


@kernel_factory("pooling.max", lambda: (*_layouts(), {"storage": "char", "width": 1}, {"storage": "uchar", "width": 1}))
def largest(storage: str, width: int) -> Source:
    """y = the largest pixel of each window, NaN where there is one; a work item for each."""
    if "char" in storage:
        body = f"""{PLACE}    int best = {"-128" if storage == "char" else "0"};
{taps(f"{' ' * 16}best = max(best, load_x(row + place));{chr(10)}")}    store_y(i, best);"""
    else:
        vector, indent = _vector(width), " " * 16
        body = f"""{PLACE}    {vector} best = {_splat(width, LOWEST)}, nan = {_splat(width, "0.0f")};
{taps(f"{indent}{vector} v = load_x(row + place);{chr(10)}{indent}best = max(best, v);{chr(10)}{indent}nan = keep_nan(nan, v);{chr(10)}")}\
    store_y(i, keep_nan(best, nan));"""
    return Source((reads("x", storage, width), writes("y", storage, width)), f"int total, {WINDOWS}", body)


@kernel_factory("pooling.max_indices", lambda: [{"storage": storage} for storage in (*FLOATS, "char", "uchar")])
def largest_with_index(storage: str) -> Source:
    """As pooling.max, with the first place of the largest pixel, or of a NaN, in the flattened input, as int64; spatial dims count in
    reverse order of significance where `columns` is 1."""
    kind = "int" if "char" in storage else "float"
    inner = """\
                KIND value = load_x(row + place);
                if (found < 0 || value > bestUNORDERED) {
                    best = value;
                    found = row + (columns != 0 ? (p2 * size1 + p1) * size0 + p0 : place);
                }
""".replace("KIND", kind).replace("UNORDERED", "" if kind == "int" else " || (m_isnan(value) && !m_isnan(best))")
    lowest = {"char": "-128", "uchar": "0"}.get(storage, LOWEST)
    body = f"""{PLACE}    {kind} best = {lowest};
    int found = -1;
{taps(inner)}    store_y(i, best);
    store_index(2 * i, max(found, 0));
    store_index(2 * i + 1, 0);"""
    return Source((reads("x", storage), writes("y", storage), writes("index", "int")), f"int total, {WINDOWS}, int columns", body)


@kernel_factory("pooling.mean", _layouts)
def mean(storage: str, width: int) -> Source:
    """y = the mean of each window: over the pixels inside, or where `padded` is 1 inside the padded input; 0 where there are none."""
    counts = "".join(
        f"    int low{d} = padded != 0 ? -begin{d} : 0, high{d} = padded != 0 ? size{d} + end{d} : size{d};\n"
        f"    int first{d} = max(0, (low{d} - x{d} + dilation{d} - 1) / dilation{d});\n"
        f"    int last{d} = min(taps{d} - 1, high{d} - 1 < x{d} ? -1 : (high{d} - 1 - x{d}) / dilation{d});\n"
        for d in range(WINDOW_DIMS)
    )
    body = f"""{PLACE}    {_vector(width)} sum = {_splat(width, "0.0f")};
{taps(f"{' ' * 16}sum += load_x(row + place);{chr(10)}")}{counts}\
    int counted = max(0, last0 - first0 + 1) * max(0, last1 - first1 + 1) * max(0, last2 - first2 + 1);
    store_y(i, sum / to_float(max(counted, 1)));"""
    return Source((reads("x", storage, width), writes("y", storage, width)), f"int total, {WINDOWS}, int padded", body)


_POWER = """
float power(float x, int p) {
    float a = m_abs(x), result = a;
    for (int k = 1; k < p; k++) result *= a;
    return result;
}
float root(float x, int p) {
    return p == 1 ? x : p == 2 ? m_sqrt(x) : m_pow(x, 1.0f / to_float(p));
}
"""


@kernel_factory("pooling.norm", lambda: [{"storage": storage} for storage in FLOATS])
def norm(storage: str) -> Source:
    """y = the p-norm of each window."""
    body = f"""{PLACE}    float sum = 0.0f;
{taps(f"{' ' * 16}sum += power(load_x(row + place), p);{chr(10)}")}    store_y(i, root(sum, p));"""
    return Source((reads("x", storage), writes("y", storage)), f"int total, {WINDOWS}, int p", body, _POWER)


def _whole_variants() -> Iterator[dict]:
    yield from ({**layout, "combine": combine} for combine in ("max", "mean") for layout in _layouts())
    yield from ({"storage": storage, "width": 1, "combine": "norm"} for storage in FLOATS)


@kernel_factory("pooling.whole", _whole_variants)
def whole(storage: str, width: int, combine: str) -> Source:
    """x [rows, columns] → y [rows]: the largest of each row, its mean or its p-norm. A work group reduces a row."""
    start = _splat(width, LOWEST if combine == "max" else "0.0f")
    value = {"max": "keep_nan(keep_nan(max(sum, v), sum), v)", "mean": "sum + v", "norm": "sum + power(v, p)"}[combine]
    a, b = "part[item]", "part[item + step]"
    both = f"keep_nan(keep_nan(max({a}, {b}), {a}), {b})" if combine == "max" else f"{a} + {b}"
    result = {"max": "part[0]", "mean": "part[0] / to_float(columns)", "norm": "root(part[0], p)"}[combine]
    body = f"""\
    int item = lid(0), row = group(0);
    {_vector(width)} sum = {start};
    if (row < rows) {{
        for (int column = item; column < columns; column += {POOL_TEAM}) {{
            {_vector(width)} v = load_x(row * columns + column);
            sum = {value};
        }}
    }}
    part[item] = sum;
    for (int step = {POOL_TEAM // 2}; step > 0; step /= 2) {{
        barrier_local();
        if (item < step) part[item] = {both};
    }}
    if (item == 0 && row < rows) store_y(row, {result});"""
    return Source(
        (reads("x", storage, width), writes("y", storage, width)),
        "int rows, int columns, int p",
        body,
        _POWER if combine == "norm" else "",
        ((_vector(width), "part", POOL_TEAM),),
        (POOL_TEAM, 1, 1),
    )
