"""Rotary position embeddings of float32: pairs of each head's elements turned by their position's angle."""

from mnnx.backends.cpu.kernels.intrinsics import load_i64, load_in, pointer_to, quotient, report, share, store_out
from mnnx.backends.cpu.kernels.registry import kernel_factory


@kernel_factory("rotary", fastmath=("contract",))
def make(interleaved: bool):
    """Rows of x [batch, outer, inner, size] with the first `rotated` elements turned; a position outside of the tables is reported.

    Arguments: x, y like it, cos and sin [positions, rotated / 2], row of cos and sin for each position of the batch (int64) or 0, rows
    of x, outer, inner, whether the outer dim is that of positions (else the inner one is), size, rotated, rows of cos and sin, address
    and code for reports. Without rows given, the positions have them in order, those of the whole batch or of each item.
    """
    floats, indices = pointer_to("float32"), pointer_to("int64")

    def run(args, part, parts):
        outer, inner, size, half = load_i64(args + 48), load_i64(args + 56), load_i64(args + 72), load_i64(args + 80) // 2
        first, last = share(load_i64(args + 40), part, parts, 1)
        for item in range(first, last):
            position = quotient(item, inner)
            if load_i64(args + 64) == 0:
                position = quotient(position, outer) * inner + item - position * inner
            if load_i64(args + 32) == 0:
                position -= quotient(position, load_i64(args + 88)) * load_i64(args + 88)
            else:
                position = indices(load_i64(args + 32))[position]
                if position < 0 or position >= load_i64(args + 88):
                    report(load_i64(args + 96), load_i64(args + 104), position)
                    continue
            x, y = floats(load_i64(args) + 4 * size * item), floats(load_i64(args + 8) + 4 * size * item)
            cos, sin = floats(load_i64(args + 16) + 4 * half * position), floats(load_i64(args + 24) + 4 * half * position)
            for i in range(half):
                one, other = (2 * i, 2 * i + 1) if interleaved else (i, i + half)
                a, b, c, s = load_in(x, one), load_in(x, other), load_in(cos, i), load_in(sin, i)
                store_out(y, one, c * a - s * b)
                store_out(y, other, s * a + c * b)
            for i in range(2 * half, size):
                store_out(y, i, load_in(x, i))

    return run
