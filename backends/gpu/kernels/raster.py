"""Movement of data: regions of strided elements."""

from __future__ import annotations

from mnnx.backends.gpu.kernel import kernel_factory
from mnnx.backends.gpu.source import RAW, Source, reads, writes
from mnnx.schema.ops.raster import MAX_DIMS

#: Ints of a region in the table: number of elements, offset in the source, offset in the target, then per dim (innermost first) its
#: size, the source's stride and the target's.
REGION_WORDS = 3 + 3 * MAX_DIMS


@kernel_factory("raster", lambda: [{"storage": storage, "width": width} for storage, width in RAW.values()])
def raster(storage: str, width: int) -> Source:
    """Copies the regions first … first + gid(1) of a table from x to y, one element of `width` words of `storage` per work item."""
    body = f"""\
    int i = gid(0);
    int region = (first + gid(1)) * {REGION_WORDS};
    if (i >= load_table(region)) return;
    int source = load_table(region + 1), target = load_table(region + 2);
    for (int d = region + 3; d < region + 3 + 3 * dims; d += 3) {{
        int size = load_table(d);
        int index = i % size;
        i /= size;
        source += index * load_table(d + 1);
        target += index * load_table(d + 2);
    }}
    store_y(target, load_x(source));"""
    return Source((reads("x", storage, width), reads("table", "int"), writes("y", storage, width)), "int first, int dims", body)
