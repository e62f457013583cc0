"""Resize of float32 planes: each output row is a weighted sum of input rows, each of its elements one of that row's elements."""

import numpy as np

from mnnx.backends.cpu.kernels.intrinsics import load_i64, load_in, pointer_to, quotient, share, store_out
from mnnx.backends.cpu.kernels.registry import kernel_factory

F = np.float32


@kernel_factory("resize")
def make(row_taps: int, column_taps: int):
    """y[p, i, j] = sum over taps a, b of row_weights[a, i] * column_weights[b, j] * x[p, rows[a, i], columns[b, j]]; 0 taps: as many as
    the arguments say. Sums run over rows first.

    Arguments: x [planes, height, width], y [planes, rows, columns], their sizes planes, height, width, rows, columns; row positions int32
    [row_taps, rows] and weights float32, the same for columns, taps of both, parts × width float32 of working memory.
    """
    at, index_at = pointer_to("float32"), pointer_to("int32")

    def run(args, part, parts):
        planes, height, width = load_i64(args + 16), load_i64(args + 24), load_i64(args + 32)
        rows, columns = load_i64(args + 40), load_i64(args + 48)
        row_index, row_weight = index_at(load_i64(args + 56)), at(load_i64(args + 64))
        row_count = row_taps if row_taps else load_i64(args + 88)
        column_count = column_taps if column_taps else load_i64(args + 96)
        mixed = at(load_i64(args + 104) + 4 * part * width)
        first, last = share(planes * rows, part, parts, 1)
        for item in range(first, last):
            plane = quotient(item, rows)
            row = item - plane * rows
            source = load_i64(args) + 4 * plane * height * width
            x, weight = at(source + 4 * width * np.int64(row_index[row])), row_weight[row]
            for j in range(width):
                mixed[j] = load_in(x, j) * weight
            for a in range(1, row_count):
                x, weight = at(source + 4 * width * np.int64(row_index[a * rows + row])), row_weight[a * rows + row]
                for j in range(width):
                    mixed[j] += load_in(x, j) * weight
            y = at(load_i64(args + 8) + 4 * item * columns)
            index, weights = index_at(load_i64(args + 72)), at(load_i64(args + 80))
            for j in range(columns):
                value = F(0)
                for b in range(column_count):
                    value += load_in(weights, b * columns + j) * load_in(mixed, np.int64(load_in(index, b * columns + j)))
                store_out(y, j, value)

    return run
