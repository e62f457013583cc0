"""NumPy executions of the ops in schema/ops/indexing.py."""

import numpy as np

from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.schema.ops import indexing as ops
from mnnx.schema.ops.base import require

_REDUCE = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def in_range(indices, dim, what="indices"):
    """`indices` counted from the front; raises RuleError where one isn't in [-dim, dim-1]."""
    if indices.size:
        low, high = int(indices.min()), int(indices.max())
        require(-dim <= low and high < dim, f"{what} must be in [{-dim}, {dim - 1}], found {low} … {high}")
    return np.where(indices < 0, indices + dim, indices).astype(np.intp)


@numpy_execution(ops.Gather)
def gather(op, data, indices):
    return np.asarray(np.take(data, in_range(indices, data.shape[op.axis]), op.axis))


def _element_index(axis, data, indices):
    """For each element of `indices`, the full index of the element of `data` that it names."""
    axis %= data.ndim
    index = list(np.ogrid[tuple(slice(n) for n in indices.shape)])
    index[axis] = in_range(indices, data.shape[axis])
    return tuple(index)


@numpy_execution(ops.GatherElements)
def gather_elements(op, data, indices):
    if indices.size == 0:
        return np.zeros(indices.shape, data.dtype)
    return data[_element_index(op.axis, data, indices)]


def _tuple_index(data, indices, batch_dims=0):
    """The index tuples in the last dim of `indices` as one index array per dim of `data`."""
    batch = np.ogrid[tuple(slice(n) for n in indices.shape[:batch_dims])] if batch_dims else ()
    batch = [b.reshape(b.shape + (1,) * (indices.ndim - 1 - batch_dims)) for b in batch]
    entries = [in_range(indices[..., i], data.shape[batch_dims + i]) for i in range(indices.shape[-1])]
    return (*batch, *entries)


@numpy_execution(ops.GatherND)
def gather_nd(op, data, indices):
    if 0 in indices.shape[:-1]:
        return np.zeros(indices.shape[:-1] + data.shape[op.batch_dims + indices.shape[-1] :], data.dtype)
    index = _tuple_index(data, indices, op.batch_dims)
    if indices.shape[-1]:
        return np.asarray(data[index])
    shape = indices.shape[:-1] + data.shape[op.batch_dims :]  # empty tuples: whole slices, repeated
    batch = op.batch_dims
    return np.broadcast_to(data.reshape(data.shape[:batch] + (1,) * (indices.ndim - 1 - batch) + data.shape[batch:]), shape)


def _scatter(op, data, index, updates):
    result = data.copy()
    if op.reduction == "none":
        result[index] = updates
    else:
        with np.errstate(all="ignore"):
            _REDUCE[op.reduction].at(result, index, updates)
    return result


@numpy_execution(ops.ScatterElements)
def scatter_elements(op, data, indices, updates):
    if indices.size == 0:
        return data
    return _scatter(op, data, _element_index(op.axis, data, indices), updates)


@numpy_execution(ops.ScatterND)
def scatter_nd(op, data, indices, updates):
    if updates.size == 0:
        return data
    return _scatter(op, data, _tuple_index(data, indices), updates)


@numpy_execution(ops.TensorScatter)
def tensor_scatter(op, past_cache, update, write_indices=None):
    if update.size == 0:
        return past_cache
    cache, update = (np.moveaxis(a, op.axis, 1) for a in (past_cache, update))
    batch, size = cache.shape[:2]
    length = update.shape[1]
    starts = np.zeros(batch, np.int64) if write_indices is None else write_indices.astype(np.int64)
    if op.mode == "circular":
        positions = (starts[:, None] % max(size, 1) + np.arange(length)) % max(size, 1)
    else:
        require(((starts >= 0) & (starts <= size - length)).all(), f"an update of {length} at {starts.tolist()} doesn't fit in {size}")
        positions = starts[:, None] + np.arange(length)
    result = cache.copy()
    result[np.arange(batch)[:, None], positions] = update
    return np.moveaxis(result, 1, op.axis)


@numpy_execution(ops.OneHot)
def one_hot(op, indices, depth, values):
    depth = int(depth.item())
    axis = op.axis % (indices.ndim + 1)
    if indices.size == 0:
        return np.zeros((*indices.shape[:axis], depth, *indices.shape[axis:]), values.dtype)
    indices = indices.astype(np.int64)
    indices = np.where(indices < 0, indices + depth, indices)
    classes = np.arange(depth).reshape((depth,) + (1,) * (indices.ndim - axis))
    return values[(np.expand_dims(indices, axis) == classes).astype(np.intp)]


@numpy_execution(ops.NonZero)
def non_zero(op, x):
    if x.ndim == 0:
        return np.zeros((0, int(x != 0)), np.int64)
    return np.stack(np.nonzero(x)).astype(np.int64)


@numpy_execution(ops.Unique)
def unique(op, x):
    keys = x
    if x.dtype.kind not in "biufc" or x.dtype.itemsize == 2:
        # Texts and narrow floats by their rank among the distinct values: NumPy can't compare slices of them.
        _, keys = np.unique(x if x.dtype.kind == "O" else x.astype(np.float64), return_inverse=True)
        keys = keys.reshape(x.shape)
    _, first, inverse, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True, axis=op.axis)
    inverse = inverse.reshape(-1)
    if not op.sorted:
        order = np.argsort(first)
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        first, counts, inverse = first[order], counts[order], place[inverse]
    values = x.reshape(-1)[first] if op.axis is None else np.take(x, first, op.axis)
    return values, *(a.astype(np.int64) for a in (first, inverse, counts))


@numpy_execution(ops.TopK)
def top_k(op, x, k):
    axis, count = op.axis % x.ndim, int(k.item())
    keys = np.moveaxis(x.astype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind not in "iu" else x, axis, -1)
    if op.largest:  # a stable sort of the reversed keys, read from its end, keeps the first of equal elements first
        order = keys.shape[-1] - 1 - np.argsort(keys[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    else:
        order = np.argsort(keys, axis=-1, kind="stable")
    order = np.moveaxis(order[..., :count], -1, axis)
    return np.take_along_axis(x, order, axis), order.astype(np.int64)
