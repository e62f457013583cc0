"""Transposed convolutions in blocked layout: every output pixel gathers what reaches it."""

from __future__ import annotations

from mnnx.backends.gpu import epilogue, windows
from mnnx.backends.gpu.constants import TILE_COLUMNS
from mnnx.backends.gpu.kernel import kernel_factory
from mnnx.backends.gpu.kernels.products import accumulate, declare, finish
from mnnx.backends.gpu.source import AHEAD_BLOCK, FLOATS, Source, reads, writes


def _skip(axis: str, letter: str, out: str) -> str:
    """C that gives the input's index i<letter> of a tap, or goes on where the tap meets none. Divides no negative numbers."""
    far = f"kernel_{axis} * dilation_{axis}"
    return f"""\
        int t{letter} = {out} + begin_{axis} + ({far}) * stride_{axis} - k{letter} * dilation_{axis};
        if (t{letter} % stride_{axis} != 0) continue;
        int i{letter} = t{letter} / stride_{axis} - {far};
"""


@kernel_factory(
    "convolution_transposed", lambda: [{"storage": s, "block": AHEAD_BLOCK, "rows": TILE_COLUMNS, "inside": False} for s in FLOATS]
)
def transposed(storage: str, block: int, rows: int, inside: bool) -> Source:
    """y = activation(conv_transpose(x, w) + bias + residual): `rows` pixels of a row, stride_w from one to the next, times a block.

    Such pixels see the same taps, of neighbours in the input. x [N, in_blocks, in pixels, block], w [out_blocks, taps, in_blocks of a
    group, block, block], bias [out_blocks, block], y and residual [N, out_blocks, out pixels, block]. inside: all that tiles reach in the
    image is there. Work items: stride_w × tiles of a row's pixels of one phase, out_blocks, N × rows (of all planes).
    """
    scalars = block > 4
    unit = block if scalars else 1
    each_row = range(rows)
    if inside:
        at = f"        place_x a0 = at_x((image + (iz * in_h + iy) * in_w + ix + first) * {unit});\n" + "".join(
            f"        place_x a{r} = a0; move_x(a{r}, {r * unit});\n" for r in each_row[1:]
        )
    else:
        at = "        if (iz < 0 || iz >= in_d || iy < 0 || iy >= in_h) continue;\n" + "".join(
            f"        int x{r} = ix + first + {r};\n        bool in{r} = x{r} >= 0 && x{r} < in_w;\n"
            f"        place_x a{r} = at_x((in{r} ? image + (iz * in_h + iy) * in_w + x{r} : image) * {unit});\n"
            for r in each_row
        )
    body = f"""\
    int phase = gid(0) % stride_w, first = gid(0) / stride_w * {rows}, block = gid(1), n = gid(2) / (out_d * out_h);
    int line = gid(2) % (out_d * out_h);
    int pixels = out_d * out_h * out_w, in_pixels = in_d * in_h * in_w, step = in_pixels * {unit};
    if (phase + first * stride_w >= out_w || block >= out_blocks || n >= images) return;
    int oz = line / out_h, oy = line % out_h;
    int image = (n * in_blocks + block / group_out_blocks * group_in_blocks) * in_pixels;
{declare(block, rows, 1)}
    for (int kz = 0; kz < kernel_d; kz++) {{
{_skip("d", "z", "oz")}    for (int ky = 0; ky < kernel_h; ky++) {{
{_skip("h", "y", "oy")}    for (int kx = 0; kx < kernel_w; kx++) {{
{_skip("w", "x", "phase")}{at}\
        int tap = ((block * kernel_d + kz) * kernel_h + ky) * kernel_w + kx;
        place_w w0 = at_w(tap * group_in_blocks * {block});
        for (int i = 0; i < group_in_blocks; i++) {{
{accumulate(block, block, rows, 1, scalars, inside)}
{"".join(f"            move_x(a{r}, step);{chr(10)}" for r in each_row)}            move_w(w0, {block});
        }}
    }} }} }}
    int column = phase + first * stride_w;
{finish(block, block, rows, 1, "line * out_w + column + r * stride_w", "column + r * stride_w >= out_w")}"""
    buffers = (
        reads("x", storage, 1 if scalars else block),
        reads("w", storage, block),
        reads("bias", "float", block),
        reads("residual", storage, block),
        writes("y", storage, block),
    )
    params = (
        f"{windows.PARAMS}, int images, int in_blocks, int group_in_blocks, int out_blocks, int group_out_blocks, int has_residual, "
        f"{epilogue.PARAMS}"
    )
    return Source(buffers, params, body, epilogue.activate(block))
