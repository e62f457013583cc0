"""Rows of the ops in schema/ops/slicing.py."""

import numpy as np

from mnnx.schema.ops import slicing as ops
from tests.cases import booleans, case, f16, f32, f64, i64, integers

LIMITS = np.iinfo(np.int64)

case(ops.Slice(), f32(5, 7), i64(1, 2), i64(4, 6))
case(ops.Slice(), f32(5, 7), i64(1), i64(100), i64(1))
case(ops.Slice(), f32(5, 7), i64(-2, 0), i64(LIMITS.max, -3), i64(-1, 0))
case(ops.Slice(), f32(5, 7, 9), i64(0, 1), i64(9, 7), i64(2, 1), i64(2, 3))
case(ops.Slice(), f32(5, 7), i64(-1), i64(LIMITS.min), i64(1), i64(-1))
case(ops.Slice(), f16(3, 8), i64(6, 2), i64(0, 0), i64(1, 0), i64(-2, -1))
case(ops.Slice(), f32(5), i64(4), i64(2))
case(ops.Slice(), booleans(4, 4), np.array([1], np.int32), np.array([3], np.int32), np.array([0], np.int32))
case(ops.Slice(), integers("uint8", 3, 64, 3), i64(16), i64(48), i64(1))
case(ops.Slice(), f64(3, 4), i64(), i64(), i64(), reference=lambda data, *_: data)

case(ops.Pad(), f32(2, 3), i64(1, 0, 0, 2))
case(ops.Pad(), f32(2, 3), i64(1, 2, 3, 4), np.array(1.5, np.float32))
case(ops.Pad(), f32(1, 3, 5, 7), i64(0, 0, 1, 2, 0, 0, 2, 1))
case(ops.Pad(), f16(3, 4), i64(2, 1), None, i64(-1))
case(ops.Pad(), integers("int32", 2, 2), i64(1, 1), np.array(-7, np.int32), i64(0))
case(ops.Pad(), f32(4, 5), i64(-1, 2, 0, -3), reference=lambda data, pads: np.pad(data[1:, :2], ((0, 0), (2, 0))))
case(ops.Pad(), f32(), i64(), reference=lambda data, pads: data)
case(ops.Pad(), f32(0, 2), i64(1, 0, 1, 1))
case(ops.Pad(), booleans(3), i64(1, 1))
for mode in ("reflect", "edge", "wrap"):
    case(ops.Pad(mode=mode), f32(4, 5), i64(2, 1, 3, 4))
    case(ops.Pad(mode=mode), f32(1, 2, 5, 6), i64(0, 0, 2, 1, 0, 0, 1, 3))
    case(ops.Pad(mode=mode), integers("uint8", 3, 3), i64(2, 2), None, i64(1))
case(ops.Pad(mode="wrap"), f32(3), i64(7, 8))
case(ops.Pad(mode="reflect"), f16(5), i64(-1, 2), reference=lambda data, pads: np.pad(data[1:], (0, 2), "reflect"))

for upper in (True, False):
    case(ops.Trilu(upper=upper), f32(4, 5))
    case(ops.Trilu(upper=upper), f32(2, 3, 5, 4), np.array(1, np.int64))
    case(ops.Trilu(upper=upper), integers("int64", 4, 3), np.array(-2, np.int64))
    case(ops.Trilu(upper=upper), booleans(3, 3), np.array(9, np.int64))
    case(ops.Trilu(upper=upper), f16(3, 0, 2))
case(ops.Trilu(), np.array([["a", "b"], ["c", "d"]], object), reference=lambda x: np.array([["a", "b"], ["", "d"]], object))

case(ops.CenterCropPad(), f32(5, 8), i64(3, 4))
case(ops.CenterCropPad(), f32(5, 8), i64(8, 11))
case(ops.CenterCropPad(axes=(1, -1)), f32(2, 7, 4), i64(4, 7))
case(ops.CenterCropPad(axes=(0,)), integers("int8", 3, 2), i64(0))

case(ops.ReverseSequence(), f32(5, 3), i64(5, 1, 3))
case(ops.ReverseSequence(batch_axis=0, time_axis=1), f32(3, 5, 2), i64(0, 4, 5), reference=lambda x, lens: _reversed(x, lens))
case(ops.ReverseSequence(), f16(4, 2, 3), i64(2, 4), reference=lambda x, lens: _reversed(x.swapaxes(0, 1), lens).swapaxes(0, 1))


def _reversed(x, lengths):
    return np.stack([np.concatenate([row[:n][::-1], row[n:]]) for row, n in zip(x, lengths, strict=True)])


case(ops.Compress(axis=1), f32(3, 4), np.array([True, False, True, True]))
case(ops.Compress(axis=0), f32(3, 4), np.array([False, True]))
case(ops.Compress(), f16(3, 4), np.array([False, True, True, False, True]))
case(ops.Compress(axis=-1), integers("int64", 2, 3), np.array([False, False, False]))
