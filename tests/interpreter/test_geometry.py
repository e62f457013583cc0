"""Geometry: whatever an op moves, its Raster's regions must move to the same places."""

import itertools

import numpy as np
import pytest

from mnnx.backends.cpu.numpy_executions import registry as executions
from mnnx.interpreter.geometry import piece, rewrite
from mnnx.interpreter.geometry.region import normalize, tidy
from mnnx.schema.ops import Spec, specs_of
from mnnx.schema.ops.indexing import Gather
from mnnx.schema.ops.raster import FILL, MAX_DIMS, Raster, Region
from mnnx.schema.ops.resize import NEAREST_MODES, Resize
from mnnx.schema.ops.shape import (
    Concat,
    DepthToSpace,
    Expand,
    Flatten,
    Identity,
    Reshape,
    SpaceToDepth,
    Split,
    Squeeze,
    Tile,
    Transpose,
    Unsqueeze,
)
from mnnx.schema.ops.slicing import CenterCropPad, Pad, Slice

RNG = np.random.default_rng(11)


def ints(*values):
    return np.array(values, np.int64)


def numbers(*shape):
    """All elements differ, and none is the 0 of a fill."""
    return np.arange(1, 1 + int(np.prod(shape)), dtype=np.int32).reshape(shape)


def move(raster, inputs):
    """The regions one element at a time, which also sees an element written twice or not at all."""
    result = np.zeros(int(np.prod(raster.shape)), raster.dtype)
    written = np.zeros(result.size, int)
    for region in raster.regions:
        source = raster.fill.reshape(1) if region.source_index == FILL else inputs[region.source_index].reshape(-1)
        for index in itertools.product(*map(range, region.size)):
            target = region.target_offset + sum(i * s for i, s in zip(index, region.target_strides, strict=True))
            origin = region.source_offset + sum(i * s for i, s in zip(index, region.source_strides, strict=True))
            assert min(target, origin) >= 0
            result[target] = source[origin]
            written[target] += 1
    assert (written == 1).all()
    return result.reshape(raster.shape)


def rasters(op, *inputs):
    specs = specs_of(*inputs)
    return rewrite(op, specs, op.infer_all(*specs))


def check(op, *inputs):
    expected = executions.run(op, list(inputs))
    made = rasters(op, *inputs)
    assert len(made) == len(expected)
    for raster, right in zip(made, expected, strict=True):
        raster.infer(*specs_of(*inputs))
        for region in raster.regions:
            assert list(region.target_strides) == sorted(region.target_strides, reverse=True)
        np.testing.assert_array_equal(move(raster, inputs), right)
        np.testing.assert_array_equal(executions.run(raster, list(inputs))[0], right)


def some_shape(rank, low=1, high=4):
    return tuple(int(n) for n in RNG.integers(low, high + 1, rank))


@pytest.mark.parametrize("rank", [0, 1, 2, 3, 4, 6])
def test_transpose_in_every_rank(rank):
    for _ in range(8):
        check(Transpose(perm=tuple(RNG.permutation(rank).tolist())), numbers(*some_shape(rank)))
    check(Transpose(), numbers(*some_shape(rank)))


def test_transpose_of_ten_dims_becomes_regions_of_few_dims():
    data = numbers(*(2,) * 10)
    op = Transpose(perm=tuple(reversed(range(10))))
    check(op, data)
    assert all(len(r.size) <= MAX_DIMS for r in rasters(op, data)[0].regions)


def test_transpose_that_would_need_too_many_regions_is_left_alone():
    assert rasters(Transpose(), np.zeros((2,) * 17, np.int8)) is None


def test_slice_with_steps_of_both_signs():
    for _ in range(40):
        shape = some_shape(3, 1, 6)
        axes = RNG.permutation(3)[: RNG.integers(1, 4)] - 3 * RNG.integers(0, 2)
        starts, ends = RNG.integers(-8, 9, len(axes)), RNG.integers(-8, 9, len(axes))
        steps = RNG.choice([-3, -2, -1, 1, 2, 3], len(axes))
        check(Slice(), numbers(*shape), starts, ends, axes, steps)


def test_slice_to_the_ends_of_the_number_range():
    limits = np.iinfo(np.int64)
    check(Slice(), numbers(5), ints(limits.max), ints(limits.min), ints(0), ints(-1))
    check(Slice(), numbers(5), ints(limits.min), ints(limits.max), ints(0), ints(limits.max))


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_concat_and_split(axis):
    for _ in range(6):
        shape, sizes = list(some_shape(3)), [int(n) for n in RNG.integers(0, 4, 3)]
        parts = []
        for size in sizes:
            shape[axis] = size
            parts.append(numbers(*shape))
        check(Concat(axis=axis), *parts)
        shape[axis] = sum(sizes)
        check(Split(num_outputs=3, axis=axis), numbers(*shape), ints(*sizes))
    check(Split(num_outputs=3, axis=axis), numbers(7, 7, 7), None)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_pad_and_crop(mode):
    for _ in range(25):
        shape = some_shape(3, 3, 5)
        before, after = RNG.integers(-1, 4, 3), RNG.integers(-1, 4, 3)
        check(Pad(mode=mode), numbers(*shape), np.concatenate([before, after]))
    check(Pad(mode=mode), numbers(2, 3), ints(5, 7), None, ints(-1))
    check(Pad(mode=mode), numbers(1, 3), ints(2, 3), None, ints(0))


def test_pad_with_a_constant_of_the_model():
    check(Pad(), numbers(2, 3), ints(1, 0, 0, 2), np.array(-7, np.int32))


def test_pad_with_a_constant_that_is_computed_is_left_alone():
    op, data, pads = Pad(), Spec.of(numbers(2, 3)), Spec.of(ints(1, 0, 0, 2))
    value = Spec(np.dtype("int32"), ())
    assert rewrite(op, [data, pads, value], (op.infer(data, pads, value),)) is None


def test_center_crop_pad():
    for _ in range(15):
        check(CenterCropPad(), numbers(*some_shape(3, 1, 6)), RNG.integers(0, 7, 3))
    check(CenterCropPad(axes=(-1,)), numbers(3, 4), ints(7))


def test_expand_and_tile():
    check(Expand(), numbers(3, 1), ints(2, 1, 4))
    check(Expand(), numbers(), ints(2, 3))
    check(Expand(), numbers(2, 3), ints(1))
    for rank in range(5):
        check(Tile(), numbers(*some_shape(rank)), RNG.integers(0, 4, rank))


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_blocks_of_depth_and_space(mode):
    check(DepthToSpace(blocksize=2, mode=mode), numbers(2, 12, 3, 4))
    check(DepthToSpace(blocksize=3, mode=mode), numbers(1, 9, 2, 1))
    check(SpaceToDepth(blocksize=2, mode=mode), numbers(2, 3, 4, 6))
    check(SpaceToDepth(blocksize=1, mode=mode), numbers(2, 3, 4, 6))


def test_gather_at_known_indices():
    for axis in (0, 1, -1):
        data = numbers(4, 5, 6)
        for indices in (ints(), ints(0), np.array(-1), ints(3, 2, 1, 0, -1, -2), ints(0, 2, 2, 3), RNG.integers(-4, 4, (2, 3))):
            check(Gather(axis=axis), data, indices)


def test_gather_at_indices_that_are_computed_is_left_alone():
    data, indices = Spec.of(numbers(4, 5)), Spec(np.dtype("int64"), (2,))
    op = Gather()
    assert rewrite(op, [data, indices], (op.infer(data, indices),)) is None


def test_gather_out_of_range_is_an_error():
    with pytest.raises(ValueError, match="indices must be in"):
        rasters(Gather(), numbers(4, 5), ints(0, 4))


@pytest.mark.parametrize("nearest_mode", NEAREST_MODES)
def test_nearest_resize_by_whole_factors(nearest_mode):
    for transformation in ("asymmetric", "half_pixel"):
        op = Resize(nearest_mode=nearest_mode, coordinate_transformation_mode=transformation)
        for scales in ([1, 2, 3], [2, 1, 1], [1, 0.5, 0.5], [1, 1, 1]):
            made = rasters(op, numbers(2, 4, 6), None, np.array(scales, np.float32))
            if transformation == "asymmetric" and nearest_mode == "floor":
                assert made is not None
            if made is not None:
                check(op, numbers(2, 4, 6), None, np.array(scales, np.float32))


def test_resize_that_mixes_or_skips_elements_unevenly_is_left_alone():
    assert rasters(Resize(mode="linear"), numbers(1, 4).astype(np.float32), None, None, ints(1, 8)) is None
    assert rasters(Resize(), numbers(1, 5), None, None, ints(1, 7)) is None


@pytest.mark.parametrize(
    ("op", "others"),
    [
        (Identity(), ()),
        (Reshape(), (ints(-1, 2),)),
        (Flatten(axis=2), ()),
        (Squeeze(), ()),
        (Unsqueeze(), (ints(0, -1),)),
        (Transpose(perm=(0, 2, 1, 3)), ()),
        (Slice(), (ints(0), ints(9))),
        (Expand(), (ints(1, 1, 4),)),
    ],
    ids=lambda x: getattr(x, "name", None),
)
def test_movement_that_changes_nothing_in_memory_is_a_view(op, others):
    data = numbers(2, 1, 3, 4)
    check(op, data, *others)
    assert piece(rasters(op, data, *others)[0]) == (0, 0)


def test_part_along_the_outermost_dim_is_a_piece():
    first, second = rasters(Split(num_outputs=2), numbers(4, 3), None)
    assert (piece(first), piece(second)) == ((0, 0), (0, 6))
    assert piece(rasters(Transpose(), numbers(4, 3))[0]) is None


def test_text_is_left_alone():
    assert rasters(Transpose(), np.array([["a", "b"]], object)) is None


def test_normalize_merges_what_moves_as_one():
    region = Region(0, 5, (12, 4, 1, 1), 7, (24, 8, 2, 2), (2, 3, 4, 1))
    assert normalize(region) == Region(0, 5, (1,), 7, (2,), (24,))


def test_normalize_orders_dims_by_target_stride():
    region = Region(0, 0, (3, 1), 0, (1, 4), (4, 3))
    assert normalize(region) == Region(0, 0, (1, 3), 0, (4, 1), (3, 4))


def test_tidy_drops_empty_regions_and_refuses_too_many():
    empty, one = Region(0, 0, (1,), 0, (1,), (0,)), Region(0, 0, (1,), 0, (1,), (3,))
    assert tidy([empty, one], 1) == (one,)
    assert tidy([one, one], 1) is None


@pytest.mark.parametrize(
    "region",
    [
        Region(0, 0, (1,), 0, (1,), (7,)),
        Region(0, 0, (-1,), 0, (1,), (6,)),
        Region(0, 0, (1,), 1, (1,), (6,)),
        Region(1, 0, (1,), 0, (1,), (6,)),
        Region(FILL, 0, (0,), 0, (1,), (6,)),
        Region(0, 0, (1,), 0, (1,), (5,)),
    ],
)
def test_raster_refuses_regions_outside_its_tensors(region):
    with pytest.raises(ValueError, match=r"region|fill"):
        Raster(np.float32, (6,), [region]).infer(Spec(np.dtype(np.float32), (6,)))
