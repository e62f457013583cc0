"""What surrounds the products of Winograd's algorithm, see `backends/gpu/winograd.py`; convolution.product makes these."""

from __future__ import annotations

from collections.abc import Sequence

from mnnx.backends.gpu import epilogue
from mnnx.backends.gpu.kernel import kernel_factory
from mnnx.backends.gpu.source import AHEAD_BLOCK, Source, reads, writes
from mnnx.backends.gpu.winograd import TRANSFORMS


def _variants() -> list[dict]:
    return [{"block": AHEAD_BLOCK, "tile": tile} for tile in TRANSFORMS]


def _sum(factors: Sequence[float], names: Sequence[str]) -> str:
    """C for the sum of products, without what is zero or one."""
    terms = [
        ("-" if factor < 0 else "+") + (f" {name}" if abs(factor) == 1 else f" {float(abs(factor))!r}f * {name}")
        for factor, name in zip(factors, names, strict=True)
        if factor
    ]
    return " ".join(terms).removeprefix("+ ")


def _both_ways(matrix: Sequence[Sequence[float]], block: int, load: str, store: str) -> str:
    """matrix @ d @ matrix': load and store are C with {row} and {column} in it, store with {value}."""
    size, results = range(len(matrix[0])), range(len(matrix))
    lines = []
    for column in size:
        lines += ["{"]
        lines += [f"    float{block} d{row} = {load.format(row=row, column=column)};" for row in size]
        lines += [f"    t{i}_{column} = {_sum(matrix[i], [f'd{row}' for row in size])};" for i in results]
        lines += ["}"]
    for i in results:
        for j in results:
            value = _sum(matrix[j], [f"t{i}_{column}" for column in size])
            lines.append(store.format(row=i, column=j, value=value))
    declared = [f"float{block} t{i}_{column};" for i in results for column in size]
    return "".join(f"    {line}\n" for line in [*declared, *lines])


@kernel_factory("winograd.image", _variants)
def image(block: int, tile: int) -> Source:
    """x [N, blocks, pixels, block] → y [(tile + 2)², blocks, N × tiles, block]. Work items: tiles, blocks, N."""
    there = "row{row} && left + {column} >= 0 && left + {column} < in_w"
    load = f"{there} ? load_x(place + {{row}} * in_w + {{column}}) : splat{block}(0.0f)"
    store = f"store_y(target + {{row}} * {(tile + 2)} * step + {{column}} * step, {{value}});"
    rows = "".join(f"    bool row{r} = top + {r} >= 0 && top + {r} < in_h;\n" for r in range(tile + 2))
    body = f"""\
    int t = gid(0), b = gid(1), n = gid(2);
    int tiles = tiles_h * tiles_w;
    if (t >= tiles || b >= blocks) return;
    int top = t / tiles_w * {tile} - begin_h, left = t % tiles_w * {tile} - begin_w;
    int place = ((n * blocks + b) * in_h + top) * in_w + left;
    int all_tiles = images * tiles, step = blocks * all_tiles, target = b * all_tiles + n * tiles + t;
{rows}{_both_ways(TRANSFORMS[tile].image, block, load, store)}"""
    params = "int images, int blocks, int in_h, int in_w, int begin_h, int begin_w, int tiles_h, int tiles_w"
    return Source((reads("x", "float", block), writes("y", "float", block)), params, body)


@kernel_factory("winograd.result", _variants)
def result(block: int, tile: int) -> Source:
    """x [(tile + 2)², blocks, N × tiles, block] → y = activation(… + bias + residual) [N, blocks, pixels, block].

    Work items: tiles, blocks, N.
    """
    load = f"load_x(place + {{row}} * {tile + 2} * step + {{column}} * step)"
    body = f"""\
    int t = gid(0), b = gid(1), n = gid(2);
    int tiles = tiles_h * tiles_w;
    if (t >= tiles || b >= blocks) return;
    int all_tiles = images * tiles, step = blocks * all_tiles, place = b * all_tiles + n * tiles + t;
    int top = t / tiles_w * {tile}, left = t % tiles_w * {tile};
    float{block} bias = load_bias(b), results[{tile * tile}];
{_both_ways(TRANSFORMS[tile].result, block, load, f"results[{{row}} * {tile} + {{column}}] = {{value}} + bias;")}\
    for (int i = 0; i < {tile * tile}; i++) {{
        int row = top + i / {tile}, column = left + i % {tile};
        if (row >= out_h || column >= out_w) continue;
        int target = ((n * blocks + b) * out_h + row) * out_w + column;
        float{block} value = results[i];
        if (has_residual != 0) value += load_residual(target);
        store_y(target, activate(activation, activation_a, activation_b, value));
    }}"""
    buffers = (reads("x", "float", block), reads("bias", "float", block), reads("residual", "float", block), writes("y", "float", block))
    params = f"int images, int blocks, int out_h, int out_w, int tiles_h, int tiles_w, int has_residual, {epilogue.PARAMS}"
    return Source(buffers, params, body, epilogue.activate(block))
