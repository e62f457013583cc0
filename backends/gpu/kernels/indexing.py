"""Reading and writing elements at indices of int32 or int64, which `words` ints make up; an illegal one is reported.

x, y and updates are moved as they are, whatever their dtype, but for the reductions.
"""

from __future__ import annotations

from collections.abc import Iterator

from mnnx.backends.gpu.kernel import kernel_factory
from mnnx.backends.gpu.source import CHECKED, FLOATS, RAW, REPORT, Source, index_at, reads, writes

#: Storages of indices that OneHot takes.
CLASSES = ("int", *FLOATS)


def _raw() -> Iterator[dict]:
    return ({"storage": storage, "width": width} for storage, width in RAW.values())


_START = """\
    int i = gid(0);
    if (i >= total) return;
"""

#: Element i of an array whose dims stand in a table, innermost first, each as size, step and another step: the sums of both steps.
_STEPS = """\
    int rest = i, place = 0, other = 0;
    for (int d = 0; d < dims; d++) {
        int size = load_table(3 * d), j = rest % size;
        rest /= size;
        place += j * load_table(3 * d + 1);
        other += j * load_table(3 * d + 2);
    }
"""


@kernel_factory("indexing.copy", _raw)
def copy(storage: str, width: int) -> Source:
    """y[i] = x[i]."""
    return Source((reads("x", storage, width), writes("y", storage, width)), "int total", f"{_START}    store_y(i, load_x(i));")


@kernel_factory("indexing.gather", _raw)
def gather(storage: str, width: int) -> Source:
    """x [outer, rows, inner] at indices [count] → y [outer, count, inner]."""
    body = f"""{_START}    int j = i % inner, k = i / inner % count, outer = i / inner / count;
    {index_at("indices", "k")}
    int row = checked(low, high, rows);
    if (row < 0) {{ {REPORT} return; }}
    store_y(i, load_x((outer * rows + row) * inner + j));"""
    buffers = (reads("x", storage, width), reads("indices", "int"), writes("y", storage, width), writes("faults", "int"))
    return Source(buffers, "int total, int rows, int count, int inner, int words, int slot", body, CHECKED)


@kernel_factory("indexing.gather_elements", _raw)
def gather_elements(storage: str, width: int) -> Source:
    """y[i] = x[place + row * stride] with row = indices[i]; the dims of the table are y's, `step` that in x (0 along the axis)."""
    body = f"""{_START}{_STEPS}    {index_at("indices", "i")}
    int row = checked(low, high, rows);
    if (row < 0) {{ {REPORT} return; }}
    store_y(i, load_x(place + row * stride));"""
    buffers = (
        reads("x", storage, width), reads("indices", "int"), reads("table", "int"), writes("y", storage, width), writes("faults", "int"),
    )  # fmt: skip
    return Source(buffers, "int total, int dims, int rows, int stride, int words, int slot", body, CHECKED)


@kernel_factory("indexing.scatter_elements", _raw)
def scatter_elements(storage: str, width: int) -> Source:
    """y[place + row * stride] = updates[i] with row = indices[i]; the dims of the table are the updates', as of gather_elements."""
    body = f"""{_START}{_STEPS}    {index_at("indices", "i")}
    int row = checked(low, high, rows);
    if (row < 0) {{ {REPORT} return; }}
    store_y(place + row * stride, load_updates(i));"""
    buffers = (
        reads("updates", storage, width), reads("indices", "int"), reads("table", "int"), writes("y", storage, width),
        writes("faults", "int"),
    )  # fmt: skip
    return Source(buffers, "int total, int dims, int rows, int stride, int words, int slot", body, CHECKED)


#: The element of a tensor at which the slice of index tuple t begins: dims and their strides stand in a table.
_TUPLE = f"""\
    for (int d = 0; d < depth; d++) {{
        {index_at("indices", "t * depth + d")}
        int row = checked(low, high, load_table(2 * d));
        if (row < 0) {{ {REPORT} return; }}
        place += row * load_table(2 * d + 1);
    }}
"""


@kernel_factory("indexing.gather_nd", _raw)
def gather_nd(storage: str, width: int) -> Source:
    """x [batches, batch] at index tuples [batches, tuples, depth] → y [batches, tuples, inner]."""
    body = f"""{_START}    int t = i / inner;
    int place = t / tuples * batch + i % inner;
{_TUPLE}    store_y(i, load_x(place));"""
    buffers = (
        reads("x", storage, width), reads("indices", "int"), reads("table", "int"), writes("y", storage, width), writes("faults", "int"),
    )  # fmt: skip
    return Source(buffers, "int total, int tuples, int batch, int inner, int depth, int words, int slot", body, CHECKED)


@kernel_factory("indexing.scatter_nd", _raw)
def scatter_nd(storage: str, width: int) -> Source:
    """updates [tuples, inner] → y at index tuples [tuples, depth]."""
    body = f"""{_START}    int t = i / inner, place = i % inner;
{_TUPLE}    store_y(place, load_updates(i));"""
    buffers = (
        reads("updates", storage, width), reads("indices", "int"), reads("table", "int"), writes("y", storage, width),
        writes("faults", "int"),
    )  # fmt: skip
    return Source(buffers, "int total, int inner, int depth, int words, int slot", body, CHECKED)


def _reduced(storage: str) -> str:
    """`reduced(reduction, a, b)`; reductions are numbered as in constants.REDUCTIONS, from 1."""
    kind, prefix = ("float", "m") if storage in FLOATS else ("int", "i")
    return f"""
{kind} reduced(int reduction, {kind} a, {kind} b) {{
    if (reduction == 1) return a + b;
    if (reduction == 2) return a * b;
    return reduction == 3 ? {prefix}_max(a, b) : {prefix}_min(a, b);
}}
"""


def _numbers() -> Iterator[dict]:
    return ({"storage": storage} for storage in (*FLOATS, "int"))


@kernel_factory("indexing.reduce_elements", _numbers)
def reduce_elements(storage: str) -> Source:
    """As scatter_elements, reduced in the order of the updates. A work item for each line along the axis, over whose `count` updates it
    walks; the table's dims are the others, with steps in y and in the updates."""
    body = f"""{_START}{_STEPS}    for (int k = 0; k < count; k++) {{
        int from = other + k * step;
        {index_at("indices", "from")}
        int row = checked(low, high, rows);
        if (row < 0) {{ {REPORT} return; }}
        int to = place + row * stride;
        store_y(to, reduced(reduction, load_y(to), load_updates(from)));
    }}"""
    buffers = (reads("updates", storage), reads("indices", "int"), reads("table", "int"), writes("y", storage), writes("faults", "int"))
    params = "int total, int dims, int rows, int stride, int count, int step, int reduction, int words, int slot"
    return Source(buffers, params, body, CHECKED + _reduced(storage))


@kernel_factory("indexing.reduce_nd", _numbers)
def reduce_nd(storage: str) -> Source:
    """As scatter_nd, reduced in the order of the updates. A work item for each of the slices' elements (`total`), which walks over the
    tuples."""
    body = f"""{_START}    for (int t = 0; t < tuples; t++) {{
        int place = i;
    {_TUPLE}        store_y(place, reduced(reduction, load_y(place), load_updates(t * total + i)));
    }}"""
    buffers = (reads("updates", storage), reads("indices", "int"), reads("table", "int"), writes("y", storage), writes("faults", "int"))
    params = "int total, int tuples, int depth, int reduction, int words, int slot"
    return Source(buffers, params, body, CHECKED + _reduced(storage))


@kernel_factory("indexing.one_hot", lambda: ({**raw, "classes": classes} for raw in _raw() for classes in CLASSES))
def one_hot(storage: str, width: int, classes: str) -> Source:
    """y [outer, depth, inner] = values[1] where the class [outer, inner] is the index along depth, else values[0]."""
    if classes == "int":
        chosen = f"{index_at('classes', 'at')}\n    int found = high == (low < 0 ? -1 : 0) ? low : -depth - 1;"
    else:
        chosen = "float named = load_classes(at);\n    int found = m_abs(named) < 1.0e9f ? to_int(named) : -depth - 1;"
    body = f"""{_START}    int at = i / inner / depth * inner + i % inner, index = i / inner % depth;
    {chosen}
    if (found < 0) found += depth;
    store_y(i, load_values(found == index ? 1 : 0));"""
    buffers = (reads("classes", classes), reads("values", storage, width), writes("y", storage, width))
    return Source(buffers, "int total, int depth, int inner, int words", body)


@kernel_factory("indexing.tensor_scatter", _raw)
def tensor_scatter(storage: str, width: int) -> Source:
    """updates [batches, outer, count, inner] → y [batches, outer, rows, inner] from the row that indices [batches] name; where `circular`
    is 1, rows count modulo their number."""
    body = f"""{_START}    int k = i / inner % count, line = i / inner / count;
    {index_at("indices", "line / outer")}
    int row = low;
    if (circular != 0) {{
        row %= rows;
        row = (row < 0 ? row + rows : row) + k;
        row = row >= rows ? row - rows : row;
    }} else {{
        if (high != 0 || low < 0 || low > rows - count) {{ {REPORT} return; }}
        row += k;
    }}
    store_y((line * rows + row) * inner + i % inner, load_updates(i));"""
    buffers = (reads("updates", storage, width), reads("indices", "int"), writes("y", storage, width), writes("faults", "int"))
    return Source(buffers, "int total, int outer, int rows, int count, int inner, int circular, int words, int slot", body)
