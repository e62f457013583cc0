"""Movements of blocked tensors move what the op moves, and write every lane."""

import numpy as np
import pytest

from mnnx.backends.blocked import block, is_piece, same_bytes, unblock
from mnnx.backends.cpu.numpy_executions import registry as executions
from mnnx.interpreter.geometry.blocked import rewrite_blocked
from mnnx.schema.ops import Spec
from mnnx.schema.ops.shape import Concat, Split, Transpose
from mnnx.schema.ops.slicing import Pad, Slice
from tests.interpreter.test_geometry import ints, move

LANES = 4


def numbers(*shape):
    return np.arange(1, 1 + int(np.prod(shape)), dtype=np.float32).reshape(shape)


def blocked_rasters(op, *inputs):
    specs = [None if i is None else Spec.of(i) for i in inputs]
    outputs = op.infer(*specs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return [rewrite_blocked(op, specs, outputs, slot, LANES) for slot in range(len(outputs))]


def check(op, *inputs):
    arrays = [block(i, LANES) if isinstance(i, np.ndarray) and i.dtype == np.float32 and i.ndim > 2 else i for i in inputs]
    for raster, expected in zip(blocked_rasters(op, *inputs), executions.run(op, list(inputs)), strict=True):
        raster.infer(*(None if i is None else Spec.of(i) for i in arrays))
        np.testing.assert_array_equal(unblock(move(raster, arrays), expected.shape[1]), expected)


@pytest.mark.parametrize("parts", [(4, 8), (4, 8, 3), (3, 5), (2, 2, 2, 2, 2), (5, 8, 4), (1, 1, 1), (8,), (6, 2), (4, 9)], ids=str)
@pytest.mark.parametrize("rest", [(3, 5), (7,), (1, 1), (2, 2, 3)], ids=str)
def test_channels_are_concatenated_and_split(parts, rest):
    for batch in (1, 2):
        arrays = [numbers(batch, n, *rest) for n in parts]
        check(Concat(axis=1), *arrays)
        check(Concat(axis=-1 - len(rest)), *arrays)
        check(Split(axis=1, num_outputs=len(parts)), np.concatenate(arrays, 1), ints(*parts))


@pytest.mark.parametrize("channels", [8, 6, 3])
def test_pixels_and_images_are_concatenated_and_split(channels):
    for axis, sizes in ((0, (1, 1)), (2, (3, 1)), (3, (2, 4))):
        check(Concat(axis=axis), numbers(2, channels, 3, 4), numbers(2, channels, 3, 4))
        check(Split(axis=axis, num_outputs=2), numbers(2, channels, 4, 6), ints(*sizes))


def test_slices():
    x = numbers(2, 11, 5, 7)
    for start, end in ((0, 8), (4, 8), (4, 11), (3, 9), (1, 2), (5, 11)):
        check(Slice(), x, ints(start), ints(end), ints(1))
    check(Slice(), x, ints(4, 1), ints(8, 5), ints(1, 2), ints(1, 2))
    check(Slice(), x, ints(1, -1), ints(2, -8), ints(0, 3), ints(1, -2))
    assert blocked_rasters(Slice(), x, ints(0), ints(11), ints(1), ints(2)) == [None]


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize("channels", [8, 6])
def test_pads(mode, channels):
    x = numbers(2, channels, 5, 7)
    check(Pad(mode=mode), x, ints(0, 0, 1, 2, 0, 0, 3, 0))
    check(Pad(mode=mode), x, ints(0, 0, -1, 2, 0, 0, 3, -2))
    assert blocked_rasters(Pad(mode=mode), x, ints(0, 1, 0, 0, 0, 0, 0, 0)) == [None]


def test_pad_values():
    x = numbers(1, 6, 2, 2)
    check(Pad(), x, ints(1, 1, 1, 1), np.array(9, np.float32), ints(2, 3))
    assert blocked_rasters(Pad(), x, ints(1, 1, 1, 1), np.array(-np.inf, np.float32), ints(2, 3)) == [None]


def test_other_tensors_and_ops_are_left_alone():
    assert blocked_rasters(Transpose(perm=(0, 2, 1)), numbers(1, 8, 2)) == [None]
    assert blocked_rasters(Concat(axis=1), numbers(1, 8), numbers(1, 8)) == [None]
    assert blocked_rasters(Concat(axis=1), ints(1, 2).reshape(1, 2, 1), ints(1, 2).reshape(1, 2, 1)) == [None]


def test_pieces():
    def spec(*shape):
        return Spec(np.dtype(np.float32), shape)

    x = spec(1, 11, 3, 5)
    assert is_piece(x, spec(1, 11, 3, 5), 0, LANES)
    assert is_piece(x, spec(1, 11, 15), 0, LANES)
    assert is_piece(x, spec(1, 4, 3, 5), 4 * 4 * 15, LANES)
    assert is_piece(x, spec(1, 7, 3, 5), 4 * 4 * 15, LANES)
    assert not is_piece(x, spec(1, 3, 3, 5), 4 * 4 * 15, LANES)  # its last block holds channels of another tensor
    assert not is_piece(x, spec(1, 4, 3, 5), 4 * 3 * 15, LANES)
    assert not is_piece(x, spec(1, 11, 5, 3, 1, 5), 0, LANES)
    assert not is_piece(x, spec(1, 165), 0, LANES)
    assert not is_piece(spec(8), spec(1, 8, 1), 0, LANES)
    assert not is_piece(spec(2, 8, 3), spec(1, 4, 3), 0, LANES)
    assert is_piece(spec(2, 8, 3), spec(2, 8, 1, 3), 0, LANES)
    assert same_bytes((3, 8, 1, 1), LANES)
    assert not same_bytes((3, 6, 1, 1), LANES)
    assert not same_bytes((3, 8, 1, 2), LANES)
