"""Normalizations of sums of float32 rows: while a row is in the cache, it is summed up and normalized."""

from mnnx.backends.cpu.kernels.intrinsics import inlined, load_f32, load_i64, load_in, pointer_to, quotient, report, share, store_out
from mnnx.backends.cpu.kernels.normalization import make_row
from mnnx.backends.cpu.kernels.ordering import settle_stores
from mnnx.backends.cpu.kernels.registry import kernel_factory


@kernel_factory("skip_normalization.rows")
def make_skip_rows(center: bool, bias: bool):
    """normalization.rows of the sums x + skip + shift.

    Arguments: those of normalization.rows; then skip [skip rows, n], which repeats along the rows of x, the number of its rows, shift [n]
    or 0, sums like x or 0. y may be x, where there are no sums it holds them meanwhile.
    """
    at, normalize = pointer_to("float32"), make_row(center, bias)

    def run(args, part, parts):
        n, size = load_i64(args + 24), 4 * load_i64(args + 24)
        scale, beta = at(load_i64(args + 32)), at(load_i64(args + 40))
        means, deviations = load_i64(args + 56), load_i64(args + 64)
        skip_rows, shift, sums = load_i64(args + 80), load_i64(args + 88), load_i64(args + 96)
        first, last = share(load_i64(args + 16), part, parts, 1)
        for row in range(first, last):
            x, y = at(load_i64(args) + size * row), at(load_i64(args + 8) + size * row)
            skip = at(load_i64(args + 72) + size * (row - quotient(row, skip_rows) * skip_rows))
            total = at(sums + size * row) if sums != 0 else y
            if shift != 0:
                for i in range(n):
                    store_out(total, i, load_in(x, i) + load_in(skip, i) + load_in(at(shift), i))
            else:
                for i in range(n):
                    store_out(total, i, load_in(x, i) + load_in(skip, i))
            settle_stores()
            mean, factor = normalize(total, y, n, scale, beta, load_f32(args + 48))
            if means != 0:
                at(means)[row] = mean
            if deviations != 0:
                at(deviations)[row] = factor

    return run


@kernel_factory("skip_normalization.embeddings")
def make_embeddings(index: str, segments: bool):
    """LayerNormalization of sums of rows of two tables or three: words, positions and, where it says so, segments.

    index: the dtype of what picks rows: ids, where there are none row r of y has id r % count.
    Arguments: y [rows, n], sums like y or 0, rows, n, scale [n], bias [n], float32 epsilon, address for reports; then of each table:
    ids [count] or 0, count, the table [size, n], size, code for reports.
    """
    at, index_at, normalize = pointer_to("float32"), pointer_to(index), make_row(True, True)

    @inlined
    def picked(table, row, n, reports):
        """The address of the row of a table for a row of y; 0, and a report, where the table has no such row."""
        ids, count, size = load_i64(table), load_i64(table + 8), load_i64(table + 24)
        given = row - quotient(row, count) * count
        if ids != 0:
            given = int(index_at(ids)[given])
        place = given + size if given < 0 else given
        if place < 0 or place >= size:
            report(reports, load_i64(table + 32), given)
            return 0
        return load_i64(table + 16) + 4 * n * place

    def run(args, part, parts):
        n, sums, reports = load_i64(args + 24), load_i64(args + 8), load_i64(args + 56)
        scale, bias = at(load_i64(args + 32)), at(load_i64(args + 40))
        first, last = share(load_i64(args + 16), part, parts, 1)
        for row in range(first, last):
            word, position = picked(args + 64, row, n, reports), picked(args + 104, row, n, reports)
            segment = picked(args + 144, row, n, reports) if segments else position
            if word == 0 or position == 0 or segment == 0:
                continue
            a, b, c = at(word), at(position), at(segment)
            y = at(load_i64(args) + 4 * n * row)
            total = at(sums + 4 * n * row) if sums != 0 else y
            for i in range(n):
                value = load_in(a, i) + load_in(b, i)
                store_out(total, i, value + load_in(c, i) if segments else value)
            settle_stores()
            normalize(total, y, n, scale, bias, load_f32(args + 48))

    return run
