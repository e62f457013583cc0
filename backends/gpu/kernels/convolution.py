"""Convolutions as products of matrices whose left one, the windows' pixels, is never laid out (implicit GEMM)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mnnx.backends.gpu import epilogue, windows
from mnnx.backends.gpu.constants import TILES, TILES_OF_PLAIN, TILES_TO_PLAIN
from mnnx.backends.gpu.kernel import kernel_factory
from mnnx.backends.gpu.kernels.products import accumulate, declare, finish
from mnnx.backends.gpu.source import AHEAD_BLOCK, FLOATS, Source, reads, writes


def _variants() -> Iterator[dict[str, Any]]:
    for storage in FLOATS:
        for source, target, tiles in ((1, 1, TILES_TO_PLAIN), (1, AHEAD_BLOCK, TILES_OF_PLAIN), (AHEAD_BLOCK, AHEAD_BLOCK, TILES)):
            for rows, vectors in tiles:
                sizes = {"source": source, "block": AHEAD_BLOCK, "target": target, "rows": rows, "vectors": vectors}
                yield {"storage": storage, "inside": False, **sizes}


def _windows(rows: int, inside: bool) -> str:
    """Where the windows of `rows` pixels from (oz, oy, ox) on begin: z<row>, y<row>, x<row>, and where all are inside the pixel p<row>."""
    text = ""
    for r in range(rows):
        text += f"    int z{r} = oz * stride_d - begin_d, y{r} = oy * stride_h - begin_h, x{r} = ox * stride_w - begin_w;\n"
        if r + 1 < rows:
            text += f"    if (first + {r + 1} < pixels) {{\n        ox += 1;\n"
            text += "        if (ox == out_w) { ox = 0; oy += 1; if (oy == out_h) { oy = 0; oz += 1; } }\n    }\n"
    places = (f"    int p{r} = image + (z{r} * in_h + y{r}) * in_w + x{r};\n" for r in range(rows))
    return text + "".join(places if inside else ())


def _pixels(rows: int, unit: int, inside: bool) -> str:
    """The places a<row> of the windows' pixels under tap (kz, ky, kx); in<row>: whether these are in the image, where not all are."""
    if inside:
        places = (f"        place_x a{r} = at_x((p{r} + tap) * {unit});\n" for r in range(rows))
        return "        int tap = (kz * dilation_d * in_h + ky * dilation_h) * in_w + kx * dilation_w;\n" + "".join(places)
    return "        int tz = kz * dilation_d, ty = ky * dilation_h, tx = kx * dilation_w;\n" + "".join(
        f"        bool in{r} = z{r} + tz >= 0 && z{r} + tz < in_d && y{r} + ty >= 0 && y{r} + ty < in_h"
        f" && x{r} + tx >= 0 && x{r} + tx < in_w;\n"
        f"        place_x a{r} = at_x((in{r} ? image + ((z{r} + tz) * in_h + y{r} + ty) * in_w + x{r} + tx : image) * {unit});\n"
        for r in range(rows)
    )


@kernel_factory("convolution.product", _variants)
def product(storage: str, source: int, block: int, target: int, rows: int, vectors: int, inside: bool) -> Source:
    """y = activation(conv(x, w) + bias + residual), `rows` pixels times `vectors` blocks of output channels per work item.

    x [N, in_blocks of all groups, in pixels, source], w [out_blocks, taps, in_blocks of a group, source, block], bias [out_blocks, block];
    y and residual [N, out_blocks, out pixels, block] for the target `block`, [N, channels, out pixels] for the target 1. Blocks of output
    channels begin anew with each group. inside: no window reaches beyond the image. weights_step: vectors of w from one image to the next.
    Work items: tiles of pixels, of blocks, N.
    """
    scalars = source == 1 or block > 4
    unit = source if scalars else 1
    weights = "".join(f"    place_w w{v} = at_w(n * weights_step + min(block + {v}, out_blocks - 1) * depth);\n" for v in range(vectors))
    moves = "".join(f"            move_x(a{r}, step);\n" for r in range(rows))
    moves += "".join(f"            move_w(w{v}, {source});\n" for v in range(vectors))
    body = f"""\
    int first = gid(0) * {rows}, block = gid(1) * {vectors}, n = gid(2);
    int pixels = out_d * out_h * out_w, in_pixels = in_d * in_h * in_w, step = in_pixels * {unit};
    if (first >= pixels || block >= out_blocks) return;
    int group = block / group_out_blocks;
    int image = (n * in_blocks + group * group_in_blocks) * in_pixels;
    int ox = first % out_w, oy = first / out_w % out_h, oz = first / (out_w * out_h);
{_windows(rows, inside)}{declare(block, rows, vectors)}
    int depth = kernel_d * kernel_h * kernel_w * group_in_blocks * {source};
{weights}    for (int kz = 0; kz < kernel_d; kz++)
    for (int ky = 0; ky < kernel_h; ky++)
    for (int kx = 0; kx < kernel_w; kx++) {{
{_pixels(rows, unit, inside)}        for (int i = 0; i < group_in_blocks; i++) {{
{accumulate(source, block, rows, vectors, scalars, inside)}
{moves}\
        }}
    }}
{finish(block, target, rows, vectors, "first + r", "first + r >= pixels")}"""
    buffers = (
        reads("x", storage, 1 if scalars else source),
        reads("w", storage, block),
        reads("bias", "float", block),
        reads("residual", storage, target),
        writes("y", storage, target),
    )
    params = (
        f"{windows.PARAMS}, int in_blocks, int group_in_blocks, int out_blocks, int group_out_blocks, int group_channels, "
        f"int weights_step, int has_residual, {epilogue.PARAMS}"
    )
    return Source(buffers, params, body, epilogue.activate(block))


@kernel_factory("convolution.pad", lambda: ())
def pad(storage: str, width: int) -> Source:
    """x [N, in pixels] vectors in the middle of zeros → y [N, out pixels] vectors. Work items: columns, rows (of all planes), N."""
    zero = "0.0f" if width == 1 else f"splat{width}(0.0f)"
    body = f"""\
    int column = gid(0), line = gid(1), n = gid(2);
    if (column >= out_w || line >= out_d * out_h) return;
    int x = column - begin_w, y = line % out_h - begin_h, z = line / out_h - begin_d;
    bool inside = z >= 0 && z < in_d && y >= 0 && y < in_h && x >= 0 && x < in_w;
    int place = inside ? ((n * in_d + z) * in_h + y) * in_w + x : n * in_d * in_h * in_w;
    store_y((n * out_d * out_h + line) * out_w + column, inside ? load_x(place) : {zero});"""
    names = ("in", "out", "begin")
    params = ", ".join(f"int {name}_{axis}" for name in names for axis in ("d", "h", "w"))
    return Source((reads("x", storage, width), writes("y", storage, width)), params, body)


@kernel_factory("convolution.deformed", lambda: [{"storage": storage} for storage in FLOATS])
def deformed(storage: str) -> Source:
    """y [channels * taps, pitch]: the pixels of an image x [N, channels, in_h, in_w] under the windows' taps.

    offset [N, groups, taps, 2, pixels] moves the taps (down, right), and mask [N, groups, taps, pixels] scales what they find, where there
    is one. Bilinear; 0 outside.
    Work items: pixels, channels * taps.
    """
    body = """\
    int pixel = gid(0), line = gid(1), taps = kernel_h * kernel_w, pixels = out_h * out_w;
    if (pixel >= pixels || line >= channels * taps) return;
    int tap = line % taps, channel = line / taps, plane = (image * channels + channel) * in_h * in_w;
    int at = (image * groups + channel / (channels / groups)) * taps + tap;
    float row = load_offset(2 * at * pixels + pixel) + to_float(pixel / out_w * stride_h - begin_h + tap / kernel_w * dilation_h);
    float column = load_offset((2 * at + 1) * pixels + pixel) + to_float(pixel % out_w * stride_w - begin_w + tap % kernel_w * dilation_w);
    float v = 0.0f;
    if (row > -1.0f && row < to_float(in_h) && column > -1.0f && column < to_float(in_w)) {
        float top = m_floor(row), left = m_floor(column), down = row - top, right = column - left;
        int y0 = to_int(top), x0 = to_int(left), from = plane + y0 * in_w + x0;
        bool above = y0 >= 0, below = y0 + 1 < in_h, before = x0 >= 0, after = x0 + 1 < in_w;
        if (above && before) v = v + (1.0f - down) * (1.0f - right) * load_x(from);
        if (above && after) v = v + (1.0f - down) * right * load_x(from + 1);
        if (below && before) v = v + down * (1.0f - right) * load_x(from + in_w);
        if (below && after) v = v + down * right * load_x(from + in_w + 1);
    }
    if (has_mask != 0) v = v * load_mask(at * pixels + pixel);
    store_y(line * pitch + pixel, v);"""
    names = ("in", "out", "kernel", "stride", "dilation", "begin")
    params = ", ".join(f"int {name}_{axis}" for name in names for axis in ("h", "w"))
    buffers = (reads("x", storage), reads("offset", storage), reads("mask", storage), writes("y", storage))
    return Source(buffers, f"{params}, int image, int channels, int groups, int pitch, int has_mask", body)
