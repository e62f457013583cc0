"""Linear quantization, and products of quantized tensors.

Integers of fewer bits than their storage (int4, uint4, int2, uint2) lie in its low bits. `bits` and `signed` say what they are.
"""

from __future__ import annotations

from collections.abc import Iterator

from mnnx.backends.gpu.constants import BYTE_ROWS, RANGE_GROUPS, RANGE_TEAM, WINDOW_DIMS
from mnnx.backends.gpu.epilogue import PARAMS, activate
from mnnx.backends.gpu.kernel import kernel_factory
from mnnx.backends.gpu.source import AHEAD_BLOCK, FLOATS, Source, lane, reads, writes

_START = """\
    int i = gid(0);
    if (i >= total) return;
"""
_NARROWED = """
int narrowed(int v, int bits, int is_signed) {
    int low = v & (bits == 32 ? -1 : (1 << bits) - 1);
    return is_signed != 0 && bits < 32 && ((low >> (bits - 1)) & 1) != 0 ? low - (1 << bits) : low;
}
"""
#: Rounded, with the zero point added, and no further than the two ends.
SATURATED = """
float saturated(float real, float zero, float lowest, float highest) {
    float v = m_round(real);
    v = v >= lowest - zero ? v : lowest - zero;
    return (v <= highest - zero ? v : highest - zero) + zero;
}
"""
_FUNCTIONS = _NARROWED + SATURATED
#: Which scale and zero point an element has: it is at `along` of `dim` positions of the axis.
_PARAMETER = """\
    int inside = i % inner, along = i / inner % dim, outside = i / inner / dim;
    int p = outside * outer_step + along / block * axis_step + inside * inner_step;
"""
_PARAMS = "int total, int inner, int dim, int outer_step, int axis_step, int inner_step, int block, int bits, int is_signed"


def _quantize_variants() -> Iterator[dict]:
    scales = (("float", "float"), ("half", "half"), ("half", "float"))
    return ({"storage": x, "scale": scale, "result": y} for x, scale in scales for y in ("char", "uchar"))


@kernel_factory("quantization.quantize", _quantize_variants)
def quantize(storage: str, scale: str, result: str) -> Source:
    """y = saturate(round(x / scale) + zero point)."""
    body = f"""{_START}{_PARAMETER}    float lowest = is_signed != 0 ? -to_float(1 << (bits - 1)) : 0.0f;
    float highest = to_float(1 << (bits - is_signed)) - 1.0f;
    float offset = to_float(narrowed(load_zero(p), bits, is_signed));
    int v = to_int(saturated({"load_x(i)" if storage in FLOATS else "to_float(load_x(i))"} / load_scale(p), offset, lowest, highest));
    store_y(i, bits < 8 ? v & ((1 << bits) - 1) : v);"""
    buffers = (reads("x", storage), reads("scale", scale), reads("zero", result), writes("y", result))
    return Source(buffers, _PARAMS, body, _FUNCTIONS)


def _dequantize_variants() -> Iterator[dict]:
    scales = (("float", "float"), ("half", "half"), ("half", "float"))
    sources = [("char", False), ("uchar", False), ("int", False), ("uchar", True)]
    return ({"storage": x, "scale": scale, "result": y, "coded": coded} for y, scale in scales for x, coded in sources)


@kernel_factory("quantization.dequantize", _dequantize_variants)
def dequantize(storage: str, scale: str, result: str, coded: bool) -> Source:
    """y = (x - zero point) * scale; `coded`: x and the zero point are bytes that stand for the floats of a table."""
    if coded:
        difference, more = "load_codes(load_x(i)) - load_codes(load_zero(p))", (reads("codes", "float"),)
    else:
        values = [f"narrowed({load}, bits, is_signed)" for load in ("load_x(i)", "load_zero(p)")]
        difference, more = f"to_float({values[0]} - {values[1]})", ()
    body = f"{_START}{_PARAMETER}    store_y(i, ({difference}) * load_scale(p));"
    buffers = (reads("x", storage), reads("scale", scale), reads("zero", storage), *more, writes("y", result))
    return Source(buffers, _PARAMS, body, _FUNCTIONS)


@kernel_factory("quantization.range", lambda: [{"storage": storage} for storage in FLOATS])
def value_range(storage: str) -> Source:
    """The lowest and highest of x and 0 among every RANGE_GROUPS-th part of x → ends [RANGE_GROUPS, 2]; NaNs don't count."""
    body = f"""\
    int item = lid(0);
    float low = 0.0f, high = 0.0f;
    for (int k = group(0) * {RANGE_TEAM} + item; k < total; k += {RANGE_GROUPS * RANGE_TEAM}) {{
        float v = load_x(k);
        low = v < low ? v : low;
        high = v > high ? v : high;
    }}
    lows[item] = low;
    highs[item] = high;
    for (int step = {RANGE_TEAM // 2}; step > 0; step /= 2) {{
        barrier_local();
        if (item < step) {{
            lows[item] = min(lows[item], lows[item + step]);
            highs[item] = max(highs[item], highs[item + step]);
        }}
    }}
    if (item == 0 && group(0) < {RANGE_GROUPS}) {{
        store_ends(2 * group(0), lows[0]);
        store_ends(2 * group(0) + 1, highs[0]);
    }}"""
    shared = (("float", "lows", RANGE_TEAM), ("float", "highs", RANGE_TEAM))
    return Source((reads("x", storage), writes("ends", "float")), "int total", body, "", shared, (RANGE_TEAM, 1, 1))


@kernel_factory("quantization.parameters", lambda: [{"storage": storage} for storage in FLOATS])
def parameters(storage: str) -> Source:
    """Scale and zero point (uint8) that spread the range over 0 … levels = 255, not a constant: a driver would multiply by 1 / 255."""
    body = f"""\
    if (gid(0) > 0) return;
    float low = 0.0f, high = 0.0f;
    for (int k = 0; k < {RANGE_GROUPS}; k++) {{
        low = min(low, load_ends(2 * k));
        high = max(high, load_ends(2 * k + 1));
    }}
    float step = low == high ? 1.0f : (high - low) / levels;
    store_scale(0, step);
    store_zero(0, to_int(saturated(-low / step, 0.0f, 0.0f, levels)));"""
    buffers = (reads("ends", "float"), writes("scale", storage), writes("zero", "uchar"))
    return Source(buffers, "float levels", body, _FUNCTIONS)


def _finish(result: str, factor: str) -> str:
    """C that stores a sum: as it is in int32, else times a factor, rounded, plus y's zero point and saturated."""
    if result == "int":
        return "store_y(i, sum);"
    lowest, highest = ("-128.0f", "127.0f") if result == "char" else ("0.0f", "255.0f")
    return f"""float factor = {factor};
    store_y(i, to_int(saturated(to_float(sum) * factor, to_float(load_y_zero(0)), {lowest}, {highest})));"""


def _product_variants() -> Iterator[dict]:
    for a in ("char", "uchar"):
        for b in ("char", "uchar"):
            yield from ({"a": a, "b": b, "result": result, "scale": "float"} for result in ("int", a))


@kernel_factory("quantization.product", _product_variants)
def product(a: str, b: str, result: str, scale: str) -> Source:
    """y [batches, rows, columns] of a [rows, depth] and b [depth, columns], whose first elements a table has for each batch, less their
    zero points: in int32; or times factors, rounded, plus y's zero point and saturated. Steps are 0 where there is one for all."""
    finish = _finish(result, "load_a_scale(row * a_scale_step) * load_b_scale(column * b_scale_step) / load_y_scale(0)")
    body = f"""{_START}    int column = i % columns, row = i / columns % rows, batch = i / columns / rows;
    int at = load_table(2 * batch) + row * depth, bt = load_table(2 * batch + 1) + column;
    int a_offset = load_a_zero(row * a_zero_step), b_offset = load_b_zero(column * b_zero_step), sum = 0;
    for (int k = 0; k < depth; k++) sum += (load_a(at + k) - a_offset) * (load_b(bt + k * columns) - b_offset);
    {finish}"""
    buffers = [reads("a", a), reads("a_zero", a), reads("b", b), reads("b_zero", b), reads("table", "int")]
    params = "int total, int rows, int columns, int depth, int a_zero_step, int b_zero_step"
    if result != "int":
        buffers += [reads("a_scale", scale), reads("b_scale", scale), reads("y_scale", scale), reads("y_zero", result)]
        params += ", int a_scale_step, int b_scale_step"
    return Source((*buffers, writes("y", result)), params, body, _FUNCTIONS)


def _tile_variants() -> Iterator[dict]:
    return ({"a": a, "b": b, "block": AHEAD_BLOCK, "step": 4} for a in ("char", "uchar") for b in ("char", "uchar"))


@kernel_factory("quantization.tile", _tile_variants)
def tile(a: str, b: str, block: int, step: int) -> Source:
    """The int32 sums of quantization.product where b lies in vectors of columns, as of products of floats (kernels/product.py). A work item
    makes BYTE_ROWS rows × one vector; a is read in vectors of `step` along the depth, of which that is a multiple. items: where each item's
    matrices begin, in such vectors.

    Work items: vectors, tiles of rows (the other way round where `turned`), items."""
    rows = [f"min(first_row + {r}, rows - 1)" for r in range(BYTE_ROWS)]
    lines = [
        "    int j = turned != 0 ? gid(1) : gid(0), first_row = (turned != 0 ? gid(0) : gid(1)) * @, item = gid(2);",
        "    if (j >= blocks || first_row >= rows) return;",
        "    int bt = load_items(2 * item + 1) + j * b_block;",
        f"    int{block} offset = load_b_zero(j);",
    ]
    for r, row in enumerate(rows):
        lines.append(f"    int a{r} = load_items(2 * item) + {row} * a_row, offset{r} = load_a_zero({row} * a_zero_step);")
        lines.append(f"    int{block} s{r} = offset * 0;")
    vector = "int" if step == 1 else f"int{step}"
    lines.append(f"    for (int k = 0; k < depth; k += {step}) {{")
    lines += [f"        {vector} x{r} = load_a(a{r} + k / {step}) - offset{r};" for r in range(BYTE_ROWS)]
    for i in range(step):
        lines.append(f"        int{block} y{i} = load_b(bt + (k + {i}) * b_step) - offset;")
        lines += [f"        s{r} += y{i} * x{r}{'' if step == 1 else lane(step, i)};" for r in range(BYTE_ROWS)]
    lines += ["    }", f"    int{block} results[@];", *(f"    results[{r}] = s{r};" for r in range(BYTE_ROWS))]
    lines += [
        "    for (int r = 0; r < @ && first_row + r < rows; r++) {",
        f"        int column = j * {block}, to = (item * rows + first_row + r) * columns + column;",
        *(f"        if (column + {i} < columns) store_y(to + {i}, results[r]{lane(block, i)});" for i in range(block)),
        "    }",
    ]
    buffers = (reads("a", a, step), reads("a_zero", a), reads("b", b, block), reads("b_zero", "int", block), reads("items", "int"))
    params = "int turned, int rows, int columns, int depth, int blocks, int a_row, int a_zero_step, int b_block, int b_step"
    return Source((*buffers, writes("y", "int")), params, "\n".join(lines).replace("@", str(BYTE_ROWS)))


@kernel_factory("quantization.finish", lambda: [{"result": result} for result in (*FLOATS, "char", "uchar")])
def finished(result: str) -> Source:
    """What follows the sums of a product, see FusedQLinearMatMul: y or, where `quantizes`, its activated real value in bytes; in floats the
    latter as it is. factors: what a sum counts in units of y's scale, one for each column or one for all, times a computed multiplier of
    all. Unless it `rounds`, y isn't made bytes on the way: see FusedMatMulInteger."""
    if result in FLOATS:
        store = "store_y(i, real);"
    else:
        store = "store_y(i, to_int(quantizes != 0 ? saturated(real / scale, offset, lowest, highest) : y));"
    body = f"""{_START}    int column = i % columns;
    int sum = load_sums(i);
    if (has_bias != 0) sum += load_bias(column);
    float y = to_float(sum) * (load_multiplier(0) * load_factors(column * factor_step)), real = y;
    if (rounds != 0) {{
        y = saturated(y, y_offset, y_lowest, y_highest);
        real = (y - y_offset) * y_scale;
    }}
    if (has_addend != 0) real += load_addend(column);
    real = activate(activation, activation_a, activation_b, real);
    {store}"""
    multiplier = reads("multiplier", result if result in FLOATS else "float")
    rows = (reads("bias", "int"), reads("factors", "float"), reads("addend", "float"))
    buffers = (reads("sums", "int"), *rows, multiplier, writes("y", result))
    params = "int total, int columns, int has_bias, int has_addend, int factor_step, int rounds, int quantizes, float y_scale, "
    params += f"float y_offset, float y_lowest, float y_highest, float scale, float offset, float lowest, float highest, {PARAMS}"
    return Source(buffers, params, body, SATURATED + activate(1))


#: Of three spatial dims: as in kernels/pooling.py.
_WINDOWS = ", ".join(f"int {name}{d}" for name in ("size", "taps", "stride", "dilation", "begin", "count") for d in range(WINDOW_DIMS))


def _convolution_variants() -> Iterator[dict]:
    for x in ("char", "uchar"):
        for w in ("char", "uchar"):
            yield from ({"x": x, "w": w, "result": result, "scale": "float"} for result in ("int", x))


@kernel_factory("quantization.convolution", _convolution_variants)
def convolution(x: str, w: str, result: str, scale: str) -> Source:
    """y [N, outputs, windows] of x [N, groups * channels, pixels] and w [outputs, channels, taps], less their zero points, plus bias; as of
    the product, w's zero point and scale being one for each output or one for all."""
    loops = ""
    for d in range(WINDOW_DIMS):
        indent = "    " * (d + 2)
        loops += f"{indent}for (int t{d} = 0; t{d} < taps{d}; t{d}++) {{\n{indent}    int p{d} = x{d} + t{d} * dilation{d};\n"
        loops += f"{indent}    if (p{d} < 0 || p{d} >= size{d}) continue;\n"
    body = f"""{_START}    int x2 = i % count2, rest = i / count2;
    int x1 = rest % count1;
    rest /= count1;
    int x0 = rest % count0;
    rest /= count0;
    int channel_out = rest % outputs, image = rest / outputs;
    x0 = x0 * stride0 - begin0;
    x1 = x1 * stride1 - begin1;
    x2 = x2 * stride2 - begin2;
    int first = image * groups + channel_out / (outputs / groups);
    int x_offset = load_x_zero(0), w_offset = load_w_zero(channel_out * w_zero_step);
    int sum = load_bias(channel_out * bias_step);
    for (int channel = 0; channel < channels; channel++) {{
        int plane = (first * channels + channel) * size0, kernel_at = (channel_out * channels + channel) * taps0;
{loops}                    int v = load_x(((plane + p0) * size1 + p1) * size2 + p2) - x_offset;
                    sum += v * (load_w(((kernel_at + t0) * taps1 + t1) * taps2 + t2) - w_offset);
                }}
            }}
        }}
    }}
    {_finish(result, "load_x_scale(0) * load_w_scale(channel_out * w_scale_step) / load_y_scale(0)")}"""
    buffers = [reads("x", x), reads("x_zero", x), reads("w", w), reads("w_zero", w), reads("bias", "int")]
    params = f"int total, int outputs, int groups, int channels, {_WINDOWS}, int w_zero_step, int bias_step"
    if result != "int":
        buffers += [reads("x_scale", scale), reads("w_scale", scale), reads("y_scale", scale), reads("y_zero", result)]
        params += ", int w_scale_step"
    return Source((*buffers, writes("y", result)), params, body, _FUNCTIONS)
