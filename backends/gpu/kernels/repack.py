"""Between the plain and the blocked layout (`backends/blocked.py`)."""

from __future__ import annotations

from mnnx.backends.gpu.kernel import kernel_factory
from mnnx.backends.gpu.source import AHEAD_BLOCK, FLOATS, Source, lane, reads, writes


def _variants() -> list[dict]:
    return [{"storage": storage, "block": AHEAD_BLOCK} for storage in FLOATS]


@kernel_factory("repack.to_blocks", _variants)
def to_blocks(storage: str, block: int) -> Source:
    """x [N, C, P] → y [N, blocks, P] vectors; lanes past C are 0. Work items: pixels, blocks, N."""
    loads = "".join(f"    if (channel + {i} < channels) v{lane(block, i)} = load_x(place + {i} * pixels);\n" for i in range(block))
    body = f"""\
    int pixel = gid(0), block = gid(1), n = gid(2);
    if (pixel >= pixels || block >= blocks) return;
    int channel = block * {block};
    int place = (n * channels + channel) * pixels + pixel;
    float{block} v = splat{block}(0.0f);
{loads}    store_y((n * blocks + block) * pixels + pixel, v);"""
    return Source((reads("x", storage), writes("y", storage, block)), "int pixels, int channels, int blocks", body)


@kernel_factory("repack.from_blocks", _variants)
def from_blocks(storage: str, block: int) -> Source:
    """x [N, blocks, P] vectors → y [N, C, P]. Work items: pixels, blocks, N."""
    stores = "".join(f"    if (channel + {i} < channels) store_y(place + {i} * pixels, v{lane(block, i)});\n" for i in range(block))
    body = f"""\
    int pixel = gid(0), block = gid(1), n = gid(2);
    if (pixel >= pixels || block >= blocks) return;
    int channel = block * {block};
    int place = (n * channels + channel) * pixels + pixel;
    float{block} v = load_x((n * blocks + block) * pixels + pixel);
{stores}"""
    return Source((reads("x", storage, block), writes("y", storage)), "int pixels, int channels, int blocks", body)
