"""Sequences and optionals."""

import numpy as np

from mnnx.schema.ops.sequence import (
    ConcatFromSequence,
    OptionalGetElement,
    OptionalHasElement,
    SequenceAt,
    SequenceConstruct,
    SequenceErase,
    SequenceInsert,
    SequenceLength,
    SplitToSequence,
)
from tests.cases import case, f32, i64, integers

a, b, c = f32(2, 3), f32(4), integers("float32", 2, 3)


def scalar(value):
    return np.array(value, np.int64)


case(SequenceConstruct(), a, b, c, reference=lambda *tensors: (list(tensors),))
case(SequenceAt(), [a, b, c], scalar(1), reference=lambda s, i: b)
case(SequenceAt(), [a, b, c], scalar(-3), reference=lambda s, i: a)
case(SequenceInsert(), [a, b], c, reference=lambda *_: ([a, b, c],))
case(SequenceInsert(), [a, b], c, scalar(-1), reference=lambda *_: ([a, c, b],))
case(SequenceInsert(), [a, b], c, scalar(2), reference=lambda *_: ([a, b, c],))
case(SequenceErase(), [a, b, c], reference=lambda *_: ([a, b],))
case(SequenceErase(), [a, b, c], scalar(0), reference=lambda *_: ([b, c],))
case(SequenceLength(), [a, b], reference=lambda s: scalar(2))
case(SplitToSequence(), a, reference=lambda x: ([a[:1], a[1:]],))
case(SplitToSequence(axis=1, keepdims=False), a, reference=lambda x: ([a[:, 0], a[:, 1], a[:, 2]],))
case(SplitToSequence(axis=-1), a, scalar(2), reference=lambda *_: ([a[:, :2], a[:, 2:]],))
case(SplitToSequence(axis=1), a, i64(1, 0, 2), reference=lambda *_: ([a[:, :1], a[:, 1:1], a[:, 1:]],))
case(ConcatFromSequence(axis=-1), [a, c], reference=lambda s: np.hstack(s))
case(ConcatFromSequence(axis=-1, new_axis=True), [a, c], reference=lambda s: np.dstack(s))
case(OptionalGetElement(), a, reference=lambda x: x)
case(OptionalHasElement(), a, reference=lambda x: np.array(True))
case(OptionalHasElement(), None, reference=lambda x: np.array(False))
