"""NumPy executions of the ops in schema/ops/slicing.py."""

import numpy as np

from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.schema import dtypes
from mnnx.schema.ops import slicing as ops
from mnnx.schema.ops.base import require, specs_of


def filled(shape, dtype):
    """An array of 0 (False, "")."""
    return np.full(shape, "" if dtype == dtypes.STRING else 0, dtype)


@numpy_execution(ops.Slice)
def slice_(op, data, starts, ends, axes=None, steps=None):
    for axis, (start, step, count) in enumerate(op.ranges(data.shape, *specs_of(starts, ends, axes, steps))):
        stop = start + step * count
        data = data[(slice(None),) * axis + (slice(start, stop if stop >= 0 else None, step),)]
    return data


@numpy_execution(ops.Pad)
def pad(op, data, pads, constant_value=None, axes=None):
    amounts = op.amounts(data.shape, *specs_of(pads, axes))
    kept = tuple(slice(max(0, -before), dim - max(0, -after)) for dim, (before, after) in zip(data.shape, amounts, strict=True))
    data = data[kept]
    amounts = [(max(0, before), max(0, after)) for before, after in amounts]
    shape = tuple(b + d + a for d, (b, a) in zip(data.shape, amounts, strict=True))
    if 0 in shape:
        return np.zeros(shape, data.dtype)
    if op.mode != "constant":
        for axis, (before, after) in enumerate(amounts):
            if before or after:
                data = np.take(data, _sources(op.mode, data.shape[axis], before, after), axis)
        return data
    result = filled(shape, data.dtype)
    if constant_value is not None and constant_value.size:
        result[...] = constant_value.reshape(())
    result[tuple(slice(b, b + d) for d, (b, _) in zip(data.shape, amounts, strict=True))] = data
    return result


def _sources(mode, dim, before, after):
    """For each index of a padded dim, the index in the dim of size `dim` that it shows."""
    index = np.arange(-before, dim + after)
    if mode == "edge":
        return index.clip(0, dim - 1)
    if mode == "wrap":
        return index % dim
    period = max(2 * (dim - 1), 1)
    index %= period
    return np.minimum(index, period - index) if dim > 1 else index


@numpy_execution(ops.Trilu)
def trilu(op, data, k=None):
    if data.size == 0:
        return data
    rows, columns = data.shape[-2:]
    # Beyond the matrix a diagonal changes nothing more; clamping it keeps the arithmetic within 64 bits.
    diagonal = 0 if k is None else min(max(int(k.item()), -rows - 1), columns + 1)
    below = np.arange(columns) - np.arange(rows)[:, None]
    return np.where(below >= diagonal if op.upper else below <= diagonal, data, filled((), data.dtype))


@numpy_execution(ops.CenterCropPad)
def center_crop_pad(op, data, shape):
    offsets = op.offsets(data.shape, *specs_of(shape))
    result = filled([size for _, _, _, size in offsets], data.dtype)
    source = tuple(slice(start, start + count) for start, _, count, _ in offsets)
    result[tuple(slice(start, start + count) for _, start, count, _ in offsets)] = data[source]
    return result


@numpy_execution(ops.ReverseSequence)
def reverse_sequence(op, data, sequence_lens):
    if data.size == 0:
        return data
    moved = np.moveaxis(data, (op.batch_axis, op.time_axis), (0, 1))
    length = moved.shape[1]
    require(
        ((sequence_lens >= 0) & (sequence_lens <= length)).all(), f"sequence_lens must be in [0, {length}], not {sequence_lens.tolist()}"
    )
    index = np.arange(length)
    ends = sequence_lens.astype(np.int64)[:, None]
    index = np.where(index < ends, ends - 1 - index, index)
    return np.moveaxis(moved[np.arange(len(moved))[:, None], index], (0, 1), (op.batch_axis, op.time_axis))


@numpy_execution(ops.Compress)
def compress(op, data, condition):
    return np.compress(condition, data, op.axis)
