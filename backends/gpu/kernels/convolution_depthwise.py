"""Depthwise convolutions in blocked layout."""

from __future__ import annotations

from mnnx.backends.gpu import epilogue, windows
from mnnx.backends.gpu.constants import TILE_COLUMNS
from mnnx.backends.gpu.kernel import kernel_factory
from mnnx.backends.gpu.source import AHEAD_BLOCK, FLOATS, Source, reads, writes


@kernel_factory(
    "convolution_depthwise", lambda: [{"storage": s, "block": AHEAD_BLOCK, "columns": c} for s in FLOATS for c in (1, TILE_COLUMNS)]
)
def depthwise(storage: str, block: int, columns: int) -> Source:
    """y = activation(conv(x, w) + bias + residual), each channel on its own; `columns` neighbours in a row per work item.

    x [N, blocks, in pixels, block], w [blocks, taps, block], bias [blocks, block], y and residual [N, blocks, out pixels, block].
    Work items: tiles of a row, rows (of all planes), N * blocks.
    """
    each, zero = range(columns), f"splat{block}(0.0f)"
    taps = "".join(
        f"            {{ int ix = x + {c} * stride_w; s{c} = madd(row && ix >= 0 && ix < in_w ? load_x(place + ix) : {zero}, v, s{c}); }}\n"
        for c in each
    )
    body = f"""\
    int first = gid(0) * {columns}, line = gid(1), plane = gid(2);
    if (first >= out_w || line >= out_d * out_h || plane >= planes) return;
    int oz = line / out_h, oy = line % out_h, b = plane % blocks;
    int wi = b * kernel_d * kernel_h * kernel_w;
{"".join(f"    float{block} s{c} = {zero};{chr(10)}" for c in each)}\
    for (int kz = 0; kz < kernel_d; kz++)
    for (int ky = 0; ky < kernel_h; ky++) {{
        int iz = oz * stride_d - begin_d + kz * dilation_d, iy = oy * stride_h - begin_h + ky * dilation_h;
        bool row = iz >= 0 && iz < in_d && iy >= 0 && iy < in_h;
        int place = row ? ((plane * in_d + iz) * in_h + iy) * in_w : 0;
        int x = first * stride_w - begin_w;
        for (int kx = 0; kx < kernel_w; kx++) {{
            float{block} v = load_w(wi);
{taps}            wi++;
            x += dilation_w;
        }}
    }}
    float{block} results[{columns}];
{"".join(f"    results[{c}] = s{c};{chr(10)}" for c in each)}\
    for (int c = 0; c < {columns}; c++) {{
        if (first + c >= out_w) continue;
        int target = (plane * out_d * out_h + line) * out_w + first + c;
        float{block} value = results[c] + load_bias(b);
        if (has_residual != 0) value += load_residual(target);
        store_y(target, activate(activation, activation_a, activation_b, value));
    }}"""
    buffers = (
        reads("x", storage, block),
        reads("w", storage, block),
        reads("bias", "float", block),
        reads("residual", storage, block),
        writes("y", storage, block),
    )
    params = f"{windows.PARAMS}, int blocks, int planes, int has_residual, {epilogue.PARAMS}"
    return Source(buffers, params, body, epilogue.activate(block))
