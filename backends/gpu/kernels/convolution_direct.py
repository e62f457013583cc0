"""Convolutions of any kind, one output element per work item: for what has no faster kernel, such as weights that are computed."""

from __future__ import annotations

from mnnx.backends.gpu import epilogue, windows
from mnnx.backends.gpu.kernel import kernel_factory
from mnnx.backends.gpu.source import FLOATS, Source, reads, writes

_FORWARD = """\
    int iz = oz * stride_d - begin_d + kz * dilation_d, iy = oy * stride_h - begin_h + ky * dilation_h;
    int ix = ox * stride_w - begin_w + kx * dilation_w;
    if (iz < 0 || iz >= in_d || iy < 0 || iy >= in_h || ix < 0 || ix >= in_w) continue;
"""
_TRANSPOSED = """\
    int iz = oz + begin_d - kz * dilation_d, iy = oy + begin_h - ky * dilation_h, ix = ox + begin_w - kx * dilation_w;
    if (iz < 0 || iy < 0 || ix < 0 || iz % stride_d != 0 || iy % stride_h != 0 || ix % stride_w != 0) continue;
    iz /= stride_d; iy /= stride_h; ix /= stride_w;
    if (iz >= in_d || iy >= in_h || ix >= in_w) continue;
"""


@kernel_factory("convolution_direct", lambda: [{"storage": s, "transposed": t} for s in FLOATS for t in (False, True)])
def direct(storage: str, transposed: bool) -> Source:
    """y = activation(conv(x, w) + bias + residual), all in plain layout. Work items: output pixels, output channels, N.

    w [M, C / groups, taps]; transposed: [C, M / groups, taps]. group_in, group_out: channels of a group.
    """
    weight = "(first + c) * group_out + m % group_out" if transposed else "m * group_in + c"
    body = f"""\
    int pixel = gid(0), m = gid(1), n = gid(2);
    int pixels = out_d * out_h * out_w, in_pixels = in_d * in_h * in_w, taps = kernel_d * kernel_h * kernel_w;
    if (pixel >= pixels || m >= channels) return;
    int ox = pixel % out_w, oy = pixel / out_w % out_h, oz = pixel / (out_w * out_h);
    int first = m / group_out * group_in, in_channels = channels / group_out * group_in;
    float sum = 0.0f;
    for (int kz = 0; kz < kernel_d; kz++)
    for (int ky = 0; ky < kernel_h; ky++)
    for (int kx = 0; kx < kernel_w; kx++) {{
{_TRANSPOSED if transposed else _FORWARD}\
    int tap = (kz * kernel_h + ky) * kernel_w + kx, place = (iz * in_h + iy) * in_w + ix;
    for (int c = 0; c < group_in; c++)
        sum = madd(load_x((n * in_channels + first + c) * in_pixels + place), load_w(({weight}) * taps + tap), sum);
    }}
    int target = (n * channels + m) * pixels + pixel;
    if (has_bias != 0) sum += load_bias(m);
    if (has_residual != 0) sum += load_residual(target);
    store_y(target, activate(activation, activation_a, activation_b, sum));"""
    buffers = (reads("x", storage), reads("w", storage), reads("bias", storage), reads("residual", storage), writes("y", storage))
    params = f"{windows.PARAMS}, int channels, int group_in, int group_out, int has_bias, int has_residual, {epilogue.PARAMS}"
    return Source(buffers, params, body, epilogue.activate(1))
