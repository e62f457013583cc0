"""Products of matrices: c = activate(alpha * a b + beta * bias + residual), for every item of a batch.

b lies in vectors of `block` columns, zeros past the last one; the vector of columns j and depth k of an item is at j * b_block + k *
b_step. The table `items` has four numbers per item: where its matrices begin in a, b, c (and the residual) and the bias, in what these
buffers' indices count: a in vectors of `step` elements along the depth, c, residual and bias in vectors where they are `whole`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from mnnx.backends.gpu.constants import SPLIT_COLUMNS, SPLIT_DEPTH
from mnnx.backends.gpu.epilogue import PARAMS, activate
from mnnx.backends.gpu.kernel import kernel_factory
from mnnx.backends.gpu.source import AHEAD_BLOCK, FLOATS, Source, lane, reads, writes

_PARAMS = (
    "int rows, int columns, int depth, int blocks, int first, int a_row, int a_step, int b_block, int b_step, int c_row, "
    "int has_bias, int bias_row, int bias_column, int has_residual, float alpha, float beta, " + PARAMS
)
#: Rows × vectors of the tiles of devices for which kernels are compiled ahead of time.
_AHEAD_TILES = ((1, 1), (4, 1), (8, 1), (8, 2))


def _tile_variants() -> Iterator[dict[str, Any]]:
    for storage, (rows, vectors), whole, step in itertools.product(FLOATS, _AHEAD_TILES, (False, True), (1, 4)):
        yield {"storage": storage, "rows": rows, "vectors": vectors, "block": AHEAD_BLOCK, "whole": whole, "step": step}


def _buffers(storage: str, block: int, whole: bool, step: int):
    width = block if whole else 1
    return (
        reads("a", storage, step),
        reads("b", storage, block),
        reads("bias", storage, width),
        reads("residual", storage, width),
        reads("items", "int"),
        writes("c", storage, width),
    )


def _finish(block: int, whole: bool) -> str:
    """Stores v, the sums of the vector j of a row."""
    if whole:
        return """\
        int to = c_item + row * c_row + j;
        v = v * alpha;
        if (has_bias != 0) v += beta * load_bias(bias_item + row * bias_row + j);
        if (has_residual != 0) v += load_residual(to);
        store_c(to, activate(activation, activation_a, activation_b, v));
"""
    lanes = [(i, lane(block, i)) for i in range(block)]
    text = f"""\
        int column = j * {block};
        int to = c_item + row * c_row + column, from = bias_item + row * bias_row + column * bias_column;
        v = v * alpha;
"""
    for name, value in (("bias", "beta * load_bias(from + {} * bias_column)"), ("residual", "load_residual(to + {})")):
        text += f"        if (has_{name} != 0) {{\n"
        text += "".join(f"            if (column + {i} < columns) v{suffix} += {value.format(i)};\n" for i, suffix in lanes)
        text += "        }\n"
    text += "        v = activate(activation, activation_a, activation_b, v);\n"
    return text + "".join(f"        if (column + {i} < columns) store_c(to + {i}, v{suffix});\n" for i, suffix in lanes)


_ITEM = """\
    int word = item * 4;
    int a_item = load_items(word), b_item = load_items(word + 1), c_item = load_items(word + 2), bias_item = load_items(word + 3);
"""


@kernel_factory("product.tile", _tile_variants)
def tile(storage: str, rows: int, vectors: int, block: int, whole: bool, step: int) -> Source:
    """A work item makes `rows` rows × `vectors` vectors of c. Work items: tiles of vectors and tiles of rows (the other way round where
    `turned`), items of the batch from `first` on."""
    body = [
        "    int tile_x = turned != 0 ? gid(1) : gid(0), tile_y = turned != 0 ? gid(0) : gid(1), item = first + gid(2);",
        f"    int first_j = tile_x * {vectors}, first_row = tile_y * {rows};",
        "    if (first_j >= blocks || first_row >= rows) return;",
        _ITEM.rstrip(),
    ]
    body += [f"    int a{r} = a_item + min(first_row + {r}, rows - 1) * a_row;" for r in range(rows)]
    body += [f"    int b{v} = b_item + min(first_j + {v}, blocks - 1) * b_block;" for v in range(vectors)]
    chains = 4 if rows == 1 else 1  # sums of one row by themselves would each wait for the one before
    names = [[[f"s{r}_{v}_{i}" for i in range(chains)] for v in range(vectors)] for r in range(rows)]
    body += [f"    float{block} {s} = splat{block}(0.0f);" for row_names in names for vector in row_names for s in vector]

    def steps(count: int) -> list[str]:
        """The text that adds `count` products of the depth."""
        lines = []
        if step == 4:
            lines += [f"        float4 x{r} = load_a(a{r} + k / 4);" for r in range(rows)]
        for i in range(count):
            lines += [f"        float{block} y{v}_{i} = load_b(b{v} + (k + {i}) * b_step);" for v in range(vectors)]
            for r in range(rows):
                if step == 1:
                    lines.append(f"        float x{r}_{i} = load_a(a{r} + (k + {i}) * a_step);")
                x = f"x{r}_{i}" if step == 1 else f"x{r}{lane(4, i)}"
                for v in range(vectors):
                    s = names[r][v][i % chains]
                    lines.append(f"        {s} = madd(splat{block}({x}), y{v}_{i}, {s});")
        return lines

    count = max(chains, step)
    body += ["    int k = 0;", f"    for (; k + {count} <= depth; k += {count}) {{", *steps(count), "    }"]
    if count > step:
        body += ["    for (; k < depth; k++) {", *steps(1), "    }"]
    body.append(f"    float{block} results[{rows * vectors}];")
    for r, v in itertools.product(range(rows), range(vectors)):
        s = names[r][v][0] if chains == 1 else "({} + {}) + ({} + {})".format(*names[r][v])
        body.append(f"    results[{r * vectors + v}] = {s};")
    body += [
        f"    for (int i = 0; i < {rows * vectors}; i++) {{",
        f"        int row = first_row + i / {vectors}, j = first_j + i % {vectors};",
        "        if (row >= rows || j >= blocks) continue;",
        f"        float{block} v = results[i];",
        _finish(block, whole) + "    }",
    ]
    return Source(_buffers(storage, block, whole, step), f"int turned, {_PARAMS}", "\n".join(body), activate(block))


def _split_variants() -> Iterator[dict[str, Any]]:
    for storage, whole in itertools.product(FLOATS, (False, True)):
        yield {"storage": storage, "block": AHEAD_BLOCK, "whole": whole}


@kernel_factory("product.split", _split_variants)
def split(storage: str, block: int, whole: bool) -> Source:
    """For few rows: a group makes SPLIT_COLUMNS vectors of a row, and SPLIT_DEPTH work items share the depth of each.

    Work items: vectors, SPLIT_DEPTH, items of the batch × rows.
    """
    body = f"""\
    int place = gid(2);
    int item = first + place / rows, row = place % rows;
    int j = gid(0), x = lid(0), y = lid(1);
{_ITEM}    int a0 = a_item + row * a_row, b0 = b_item + min(j, blocks - 1) * b_block;
    float{block} s = splat{block}(0.0f);
    for (int k = y; k < depth; k += {SPLIT_DEPTH}) {{
        s = madd(splat{block}(load_a(a0 + k * a_step)), load_b(b0 + k * b_step), s);
    }}
    parts[y * {SPLIT_COLUMNS} + x] = s;
    barrier_local();
    for (int half_of = {SPLIT_DEPTH // 2}; half_of > 0; half_of /= 2) {{
        if (y < half_of) parts[y * {SPLIT_COLUMNS} + x] = parts[y * {SPLIT_COLUMNS} + x] + parts[(y + half_of) * {SPLIT_COLUMNS} + x];
        barrier_local();
    }}
    if (y == 0 && j < blocks) {{
        float{block} v = parts[x];
{_finish(block, whole)}    }}"""
    shared = ((f"float{block}", "parts", SPLIT_COLUMNS * SPLIT_DEPTH),)
    return Source(_buffers(storage, block, whole, 1), _PARAMS, body, activate(block), shared, (SPLIT_COLUMNS, SPLIT_DEPTH, 1))


@kernel_factory("product.pack", lambda: [{"storage": storage, "block": AHEAD_BLOCK} for storage in FLOATS])
def pack(storage: str, block: int) -> Source:
    """A right operand as vectors of columns. Work items: vectors, depth, items; `items` has where each one's matrix begins in x."""
    loads = "".join(f"    if (column + {i} < columns) v{lane(block, i)} = load_x(from + {i} * column_step);\n" for i in range(block))
    body = f"""\
    int j = gid(0), k = gid(1), item = gid(2);
    if (j >= blocks || k >= depth) return;
    int column = j * {block};
    int from = load_items(item) + k * depth_step + column * column_step;
    float{block} v = splat{block}(0.0f);
{loads}    store_y(item * blocks * depth + j * b_block + k * b_step, v);"""
    params = "int blocks, int depth, int columns, int depth_step, int column_step, int b_block, int b_step"
    return Source((reads("x", storage), reads("items", "int"), writes("y", storage, block)), params, body)
