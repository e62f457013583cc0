"""Poolings, one dim after the other: maxima, sums and p-norms of a window follow from those along each of its dims."""

import numpy as np

from mnnx.backends.cpu.numpy_executions.precision import widened
from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.backends.cpu.numpy_executions.windows import taps
from mnnx.schema.ops.base import require
from mnnx.schema.ops.pooling import AveragePool, GlobalAveragePool, GlobalLpPool, GlobalMaxPool, LpPool, MaxPool, MaxUnpool, window_counts
from mnnx.schema.ops.windows import ConvGeometry


def _dims(geometry: ConvGeometry):
    """(axis, kernel, stride, dilation, begin, windows, size) per spatial dim, the last first."""
    g = geometry
    dims = zip(g.kernel, g.strides, g.dilations, g.begin, g.output, g.input, strict=True)
    return [(axis, *dim) for axis, dim in enumerate(dims, start=2)][::-1]


def _at(axis: int, where: slice) -> tuple:
    return (*(slice(None),) * axis, where)


def window_sums(x: np.ndarray, geometry: ConvGeometry) -> np.ndarray:
    """The sum of each window, in x's dtype."""
    for axis, kernel, stride, dilation, begin, count, size in _dims(geometry):
        result = np.zeros((*x.shape[:axis], count, *x.shape[axis + 1 :]), x.dtype)
        if kernel <= count:
            for tap in taps(kernel, stride, dilation, begin, count, size):
                result[_at(axis, tap.windows)] += x[_at(axis, tap.positions)]
        else:
            for window, positions in enumerate(_windows(kernel, stride, dilation, begin, count, size)):
                result[_at(axis, window)] = x[_at(axis, positions)].sum(axis)
        x = result
    return x


def _windows(kernel: int, stride: int, dilation: int, begin: int, count: int, size: int) -> list[slice]:
    """The positions inside the input that each window of a dim reads."""
    result = []
    for window in range(count):
        start = window * stride - begin
        first = max(0, -(start // dilation))
        result.append(slice(start + first * dilation, max(0, min(size, start + (kernel - 1) * dilation + 1)), dilation))
    return result


@numpy_execution(AveragePool)
def average_pool(op: AveragePool, x: np.ndarray) -> np.ndarray:
    geometry = op.geometry(x.shape)
    sums = window_sums(widened(x), geometry)
    sums /= np.maximum(1, window_counts(geometry, op.count_include_pad)).astype(sums.dtype)
    return sums.astype(x.dtype, copy=False)


@numpy_execution(LpPool)
def lp_pool(op: LpPool, x: np.ndarray) -> np.ndarray:
    sums = window_sums(_power(widened(x), op.p), op.geometry(x.shape))
    return _root(sums, op.p).astype(x.dtype, copy=False)


def _power(x: np.ndarray, p: int) -> np.ndarray:
    return np.abs(x) if p == 1 else np.square(x) if p == 2 else np.abs(x) ** p


def _root(x: np.ndarray, p: int) -> np.ndarray:
    return x if p == 1 else np.sqrt(x) if p == 2 else x ** (1 / p)


@numpy_execution(MaxPool)
def max_pool(op: MaxPool, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    geometry = op.geometry(x.shape)
    values, indices = x, _positions(x.shape, op.storage_order)
    lowest = np.array(-np.inf if x.dtype.kind not in "iu" else np.iinfo(x.dtype).min).astype(x.dtype)
    for axis, kernel, stride, dilation, begin, count, size in _dims(geometry):
        shape = (*values.shape[:axis], count, *values.shape[axis + 1 :])
        best, best_indices = np.full(shape, lowest), np.zeros(shape, np.int64)
        if kernel <= count:
            unset = np.ones(shape, bool)
            for tap in taps(kernel, stride, dilation, begin, count, size):
                windows, positions = _at(axis, tap.windows), _at(axis, tap.positions)
                wins = unset[windows] | (values[positions] > best[windows])
                np.copyto(best[windows], values[positions], where=wins)
                np.copyto(best_indices[windows], indices[positions], where=wins)
                unset[windows] = False
        else:
            for window, positions in enumerate(_windows(kernel, stride, dilation, begin, count, size)):
                candidates = values[_at(axis, positions)]
                if candidates.shape[axis]:
                    winner = np.expand_dims(candidates.argmax(axis), axis)
                    where = _at(axis, slice(window, window + 1))
                    best[where] = np.take_along_axis(candidates, winner, axis)
                    best_indices[where] = np.take_along_axis(indices[_at(axis, positions)], winner, axis)
        values, indices = best, best_indices
    return values, indices


def _positions(shape: tuple[int, ...], columns_first: bool) -> np.ndarray:
    """The index of each element in the flattened tensor; spatial dims in reverse order of significance where `columns_first`."""
    count = int(np.prod(shape))
    if not columns_first:
        return np.arange(count).reshape(shape)
    rank = len(shape)
    return np.arange(count).reshape(*shape[:2], *shape[:1:-1]).transpose(0, 1, *range(rank - 1, 1, -1))


@numpy_execution(GlobalAveragePool)
def global_average_pool(op: GlobalAveragePool, x: np.ndarray) -> np.ndarray:
    return np.asarray(widened(x).mean(axis=tuple(range(2, x.ndim)), keepdims=True)).astype(x.dtype, copy=False)


@numpy_execution(GlobalMaxPool)
def global_max_pool(op: GlobalMaxPool, x: np.ndarray) -> np.ndarray:
    return np.asarray(x.max(axis=tuple(range(2, x.ndim)), keepdims=True))


@numpy_execution(GlobalLpPool)
def global_lp_pool(op: GlobalLpPool, x: np.ndarray) -> np.ndarray:
    sums = np.asarray(_power(widened(x), op.p).sum(axis=tuple(range(2, x.ndim)), keepdims=True))
    return _root(sums, op.p).astype(x.dtype, copy=False)


@numpy_execution(MaxUnpool)
def max_unpool(op: MaxUnpool, x: np.ndarray, indices: np.ndarray, output_shape: np.ndarray | None = None) -> np.ndarray:
    shape = op.unpooled_shape(x.shape)
    target = shape if output_shape is None else tuple(int(v) for v in output_shape)
    require(
        not indices.size or 0 <= indices.min() <= indices.max() < np.prod(shape), f"indices must lie in the unpooled shape {list(shape)}"
    )
    y = np.zeros(target, x.dtype)
    where = np.unravel_index(indices, shape)
    inside = all(not i.size or i.max() < n for i, n in zip(where, target, strict=True))
    require(inside, f"indices must lie in the output shape {list(target)}")
    y[where] = x
    return y
