"""Sequences and optionals. They live on the host: a sequence is a list of arrays, an absent optional is None."""

import numpy as np

from mnnx.schema.ops.base import DataDependent, Op, Spec, op, require

_SCALAR_INT64, _SCALAR_BOOL = Spec(np.dtype("int64"), ()), Spec(np.dtype(bool), ())


class _OfSequence(Op):
    """What takes a sequence, of which nothing is known before the run, as its first input."""

    def infer(self, sequence: Spec | None, *others: Spec | None) -> Spec:
        require(sequence is None, f"the first input must be a sequence; it is the tensor {sequence}")
        raise DataDependent


@op("SequenceEmpty")
class SequenceEmpty(Op):
    """() → an empty sequence; `dtype` is that of elements to come. SequenceEmpty-11."""

    dtype: np.dtype = np.dtype("float32")


@op("SequenceConstruct")
class SequenceConstruct(Op):
    """The inputs as a sequence. SequenceConstruct-11."""


@op("SequenceAt")
class SequenceAt(_OfSequence):
    """(sequence, position) → the tensor there; negative positions count from the back. SequenceAt-11."""


@op("SequenceInsert")
class SequenceInsert(_OfSequence):
    """(sequence, tensor, position?) → the sequence with the tensor put in before `position`, or at the end. SequenceInsert-11."""


@op("SequenceErase")
class SequenceErase(_OfSequence):
    """(sequence, position?) → the sequence without the tensor there, or without the last one. SequenceErase-11."""


@op("SequenceLength")
class SequenceLength(_OfSequence):
    """sequence → the number of its tensors, int64 scalar. SequenceLength-11."""

    def infer(self, sequence: Spec | None) -> Spec:
        require(sequence is None, f"the first input must be a sequence; it is the tensor {sequence}")
        return _SCALAR_INT64


@op("SplitToSequence")
class SplitToSequence(Op):
    """(x, split?) → the parts of x along `axis`: of equal length (scalar split; the last may be shorter), or of the given lengths.

    Without split the parts have length 1, and keepdims says whether they keep the axis. SplitToSequence-24.
    """

    axis: int = 0
    keepdims: bool = True


@op("ConcatFromSequence")
class ConcatFromSequence(_OfSequence):
    """The tensors of a sequence joined along `axis`, an existing one or a new one. ConcatFromSequence-11."""

    axis: int
    new_axis: bool = False


@op("Optional")
class Optional(Op):
    """The input, or without one an absent optional. Optional-28."""


@op("OptionalGetElement")
class OptionalGetElement(Op):
    """What an optional holds; a tensor or sequence is passed on. OptionalGetElement-28."""

    def infer(self, x: Spec | None) -> Spec:
        if x is None:
            raise DataDependent
        return x


@op("OptionalHasElement")
class OptionalHasElement(Op):
    """Whether the input is there and not an absent optional, bool scalar. OptionalHasElement-28."""

    def infer(self, x: Spec | None = None) -> Spec:
        return _SCALAR_BOOL
