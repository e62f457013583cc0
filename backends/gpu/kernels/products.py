"""Text of kernels in which a work item makes `rows` × `vectors` vectors of a product, each a variable of its own.

Every variable is named, not an element of an array, so that no compiler keeps them in memory.
"""

from __future__ import annotations

from mnnx.backends.gpu.source import lane


def declare(block: int, rows: int, vectors: int) -> str:
    """The accumulators s<row>_<vector>, zero."""
    return "\n".join(f"    float{block} s{r}_{v} = splat{block}(0.0f);" for r in range(rows) for v in range(vectors))


def accumulate(source: int, block: int, rows: int, vectors: int, scalars: bool, inside: bool) -> str:
    """Adds `source` terms: x at the vectors a<row> (0 where not in<row>), weights at the vectors w<vector> and those after them.

    scalars: x is read element by element, which on CPUs costs nothing, while to take a lane from a vector does.
    """
    lines = []
    if not scalars:
        values = [f"load_x_from(a{r}, 0)" for r in range(rows)]
        lines += [
            f"float{source} e{r} = {value if inside else f'in{r} ? {value} : splat{source}(0.0f)'};" for r, value in enumerate(values)
        ]
    for i in range(source):
        lines += ["{", *(f"float{block} v{v} = load_w_from(w{v}, {i});" for v in range(vectors))]
        for r in range(rows):
            value = (
                f"e{r}{lane(source, i)}"
                if not scalars
                else f"load_x_from(a{r}, {i})"
                if inside
                else f"in{r} ? load_x_from(a{r}, {i}) : 0.0f"
            )
            lines += ["{", f"float{block} x = splat{block}({value});"]
            lines += [f"s{r}_{v} = madd(x, v{v}, s{r}_{v});" for v in range(vectors)]
            lines.append("}")
        lines.append("}")
    return "\n".join(f"            {line}" for line in lines)


def finish(block: int, target: int, rows: int, vectors: int, pixel: str, beyond: str) -> str:
    """Adds bias and residual, activates and stores the pixels of the blocks block … of image n; see convolution.product.

    pixel: C for the pixel of row r, beyond: for whether that lies outside of the image."""
    results = "".join(f"    results[{r * vectors + v}] = s{r}_{v};\n" for r in range(rows) for v in range(vectors))
    if target == 1:
        each = [(f"channel + {i} < group_channels", f"place + {i} * pixels", f"value{lane(block, i)}") for i in range(block)]
        residuals = "".join(f"        if (has_residual != 0 && {there}) {value} += load_residual({at});\n" for there, at, value in each)
        stores = "".join(f"        if ({there}) store_y({at}, {value});\n" for there, at, value in each)
        store = f"""\
        int channel = (b % group_out_blocks) * {block};
        int place = ((n * (out_blocks / group_out_blocks) + b / group_out_blocks) * group_channels + channel) * pixels + pixel;
        float{block} value = results[i] + load_bias(b);
{residuals}        value = activate(activation, activation_a, activation_b, value);
{stores}"""
    else:
        store = f"""\
        int place = (n * out_blocks + b) * pixels + pixel;
        float{block} value = results[i] + load_bias(b);
        if (has_residual != 0) value += load_residual(place);
        store_y(place, activate(activation, activation_a, activation_b, value));
"""
    return f"""\
    float{block} results[{rows * vectors}];
{results}    for (int i = 0; i < {rows * vectors}; i++) {{
        int r = i / {vectors}, b = block + i % {vectors};
        if ({beyond} || b >= out_blocks) continue;
        int pixel = {pixel};
{store}    }}"""
