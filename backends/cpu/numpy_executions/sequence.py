"""Executions of sequence and optional ops: sequences are lists, which are never changed in place.

A sequence may outlive the memory of the tensors that it was made of, so it gets copies.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.schema.ops.axes import normalize_axis
from mnnx.schema.ops.base import require
from mnnx.schema.ops.sequence import (
    ConcatFromSequence,
    Optional,
    OptionalGetElement,
    OptionalHasElement,
    SequenceAt,
    SequenceConstruct,
    SequenceEmpty,
    SequenceErase,
    SequenceInsert,
    SequenceLength,
    SplitToSequence,
)

Sequence = list[Any]

_LONGEST = 1 << 20  # tensors in a sequence that one op makes: a short file must not ask for more than memory holds


def _in(sequence: Sequence, position: np.ndarray, end: int) -> int:
    """The index that `position` means, negative ones counted from the back; it must be in -len … end-1."""
    require(position.size == 1, f"a position must be a scalar; its shape is {list(position.shape)}")
    index, length = int(position.reshape(())), len(sequence)
    require(-length <= index < end, f"the position must be in {-length} … {end - 1}; it is {index}")
    return index + length if index < 0 else index


def _copy(tensor: np.ndarray) -> np.ndarray:
    require(isinstance(tensor, np.ndarray), "a sequence holds tensors, no sequences")
    return tensor.copy()


@numpy_execution(SequenceEmpty)
def sequence_empty(op: SequenceEmpty) -> Sequence:
    return []


@numpy_execution(SequenceConstruct)
def sequence_construct(op: SequenceConstruct, *tensors: np.ndarray) -> Sequence:
    return [_copy(tensor) for tensor in tensors]


@numpy_execution(SequenceAt)
def sequence_at(op: SequenceAt, sequence: Sequence, position: np.ndarray) -> Any:
    return sequence[_in(sequence, position, len(sequence))]


@numpy_execution(SequenceInsert)
def sequence_insert(op: SequenceInsert, sequence: Sequence, tensor: np.ndarray, position: np.ndarray | None = None) -> Sequence:
    if position is None:
        return [*sequence, _copy(tensor)]
    index = _in(sequence, position, len(sequence) + 1)
    return [*sequence[:index], _copy(tensor), *sequence[index:]]


@numpy_execution(SequenceErase)
def sequence_erase(op: SequenceErase, sequence: Sequence, position: np.ndarray | None = None) -> Sequence:
    index = _in(sequence, np.array(-1) if position is None else position, len(sequence))
    return [*sequence[:index], *sequence[index + 1 :]]


@numpy_execution(SequenceLength)
def sequence_length(op: SequenceLength, sequence: Sequence) -> np.ndarray:
    return np.array(len(sequence), np.int64)


@numpy_execution(SplitToSequence)
def split_to_sequence(op: SplitToSequence, x: np.ndarray, split: np.ndarray | None = None) -> Sequence:
    axis = normalize_axis(op.axis, x.ndim)
    size = x.shape[axis]
    length = 1 if split is None else int(split) if split.ndim == 0 else size
    require(length > 0 or size == 0, f"split must be positive; it is {length}")
    require(size <= length * _LONGEST, f"splitting {size} by {length} would make more than {_LONGEST} tensors")
    if split is None:
        parts = np.split(x, size, axis) if size else []
        return [(part if op.keepdims else part.squeeze(axis)).copy() for part in parts]
    if split.ndim == 0:
        return [part.copy() for part in np.split(x, range(length, size, length), axis)]
    lengths = [int(n) for n in split.reshape(-1)]
    require(all(n >= 0 for n in lengths) and sum(lengths) == size, f"split {lengths} must sum up to the axis's {size}")
    return [part.copy() for part in np.split(x, np.cumsum(lengths)[:-1], axis)] if lengths else []


@numpy_execution(ConcatFromSequence)
def concat_from_sequence(op: ConcatFromSequence, sequence: Sequence) -> np.ndarray:
    require(sequence, "an empty sequence can't be joined")
    rank = sequence[0].ndim
    axis = normalize_axis(op.axis, rank + op.new_axis)
    shapes = {t.shape if op.new_axis else (*t.shape[:axis], *t.shape[axis + 1 :]) for t in sequence}
    require(len(shapes) == 1 and all(t.ndim == rank for t in sequence), f"shapes must agree: {[t.shape for t in sequence][:8]}")
    return np.stack(sequence, axis) if op.new_axis else np.concatenate(sequence, axis)


@numpy_execution(Optional)
def optional(op: Optional, x: Any = None) -> Any:
    return x


@numpy_execution(OptionalGetElement)
def optional_get_element(op: OptionalGetElement, x: Any) -> Any:
    require(x is not None, "the optional holds nothing")
    return x


@numpy_execution(OptionalHasElement)
def optional_has_element(op: OptionalHasElement, x: Any = None) -> np.ndarray:
    return np.array(x is not None)
