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
    if scalars:
        values = [f"load_x(a{r} * {source} + lane)" if source > 1 else f"load_x(a{r})" for r in range(rows)]
        loads = [f"float x = {value if inside else f'in{r} ? {value} : 0.0f'};" for r, value in enumerate(values)]
        terms = [
            f"{{ {load} {' '.join(f's{r}_{v} = madd(splat{block}(x), v{v}, s{r}_{v});' for v in range(vectors))} }}"
            for r, load in enumerate(loads)
        ]
        weights = "".join(f"                float{block} v{v} = load_w(w{v} + lane);\n" for v in range(vectors))
        return (
            f"            for (int lane = 0; lane < {source}; lane++) {{\n{weights}"
            + "".join(f"                {t}\n" for t in terms)
            + "            }"
        )
    zero = f"splat{source}(0.0f)"
    lines = [f"float{source} e{r} = {f'load_x(a{r})' if inside else f'in{r} ? load_x(a{r}) : {zero}'};" for r in range(rows)]
    for i in range(source):
        lines.append("{")
        lines += [f"float{block} v{v} = load_w(w{v} + {i});" for v in range(vectors)]
        lines += [f"s{r}_{v} = madd(splat{block}(e{r}{lane(source, i)}), v{v}, s{r}_{v});" for r in range(rows) for v in range(vectors)]
        lines.append("}")
    return "\n".join(f"            {line}" for line in lines)


def finish(block: int, target: int, rows: int, vectors: int) -> str:
    """Adds bias and residual, activates and stores the pixels first … of the blocks block … of image n; see convolution.product."""
    results = "".join(f"    results[{r * vectors + v}] = s{r}_{v};\n" for r in range(rows) for v in range(vectors))
    if target == 1:
        store = (
            f"""\
        int channel = (b % group_out_blocks) * {block};
        int place = ((n * (out_blocks / group_out_blocks) + b / group_out_blocks) * group_channels + channel) * pixels + pixel;
        float{block} value = results[i] + load_bias(b);
"""
            + "".join(
                f"        if (has_residual != 0 && channel + {i} < group_channels) value{lane(block, i)} += load_residual(place + {i} * pixels);\n"
                for i in range(block)
            )
            + "        value = activate(activation, activation_a, activation_b, value);\n"
            + "".join(
                f"        if (channel + {i} < group_channels) store_y(place + {i} * pixels, value{lane(block, i)});\n" for i in range(block)
            )
        )
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
        int pixel = first + i / {vectors}, b = block + i % {vectors};
        if (pixel >= pixels || b >= out_blocks) continue;
{store}    }}"""
