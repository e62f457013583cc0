"""What is written is read back, in place and read-only."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mnnx.schema.model import Graph, Model, Value
from mnnx.schema.reader import read_model, read_model_bytes
from mnnx.schema.writer import serialize, write_model
from tests.schema.models import ALL_DTYPES, OPS, chain, plain, random_model, small

GOLDEN = Path(__file__).parent / "golden"


def constants_only(*arrays: np.ndarray) -> Model:
    values = [Value(f"c{i}", constant=a) for i, a in enumerate(arrays)]
    return Model([Graph("main", values, (), tuple(range(len(arrays))), [])])


def test_everything_survives(tmp_path):
    write_model(small(), tmp_path / "small.mnnx")
    model = read_model(tmp_path / "small.mnnx")
    assert plain(model) == plain(small())
    assert [graph.name for graph in model.graphs] == ["main", "then", "else"]
    assert model.graphs[0].nodes[1].op.then_branch is model.graphs[1]


@pytest.mark.parametrize("block", range(10))
def test_random_models_survive(block):
    for seed in range(block * 20, block * 20 + 20):
        model = random_model(seed)
        model.graphs[0].name = f"seed {seed}"
        assert plain(read_model_bytes(serialize(model))) == plain(model)


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 3), (2, 2)], ids=str)
def test_constants_of_every_dtype_survive(dtype, shape):
    array = np.array([i % 2 for i in range(int(np.prod(shape)))]).reshape(shape).astype(dtype)
    if dtype == np.dtype(object):
        array = np.array([f"text {i}" for i in range(array.size)], object).reshape(shape)
    (value,) = read_model_bytes(serialize(constants_only(array))).graphs[0].values
    assert plain(value.constant) == plain(array)
    assert (value.dtype, value.shape) == (dtype, shape)


def test_weights_are_aligned_read_only_views_of_the_file(tmp_path):
    write_model(constants_only(np.ones(3, np.int8), np.arange(5.0), np.ones((2, 2), np.float32)), tmp_path / "m.mnnx")
    for read in (read_model(tmp_path / "m.mnnx"), read_model_bytes((tmp_path / "m.mnnx").read_bytes())):
        for value in read.graphs[0].values:
            assert value.constant.ctypes.data % 64 == 0
            assert not value.constant.flags.writeable
            assert not value.constant.flags.owndata


def test_weights_outlive_the_model_and_the_file(tmp_path):
    write_model(constants_only(np.arange(1000)), tmp_path / "m.mnnx")
    array = read_model(tmp_path / "m.mnnx").graphs[0].values[0].constant
    (tmp_path / "m.mnnx").unlink()
    assert array.sum() == 499500


def test_non_contiguous_and_swapped_constants_survive():
    transposed = np.arange(6, dtype=np.float32).reshape(2, 3).T
    (value,) = read_model_bytes(serialize(constants_only(transposed))).graphs[0].values
    np.testing.assert_array_equal(value.constant, transposed)


def test_identical_constants_are_stored_once():
    big = np.arange(1000, dtype=np.float32)
    once = len(serialize(constants_only(big)))
    model = constants_only(big, big.copy(), big)
    assert len(serialize(model)) < once + 500
    values = read_model_bytes(serialize(model)).graphs[0].values
    assert values[0].constant is values[1].constant is values[2].constant


def test_equal_bytes_of_another_shape_share_their_place():
    big = np.arange(1000, dtype=np.float32)
    assert len(serialize(constants_only(big, big.reshape(10, 100)))) < len(serialize(constants_only(big))) + 500


def test_a_dirty_bool_or_int4_is_written_clean():
    import ml_dtypes

    model = constants_only(np.array([0, 1, 2, 255], np.uint8).view(bool), np.array([-1, 7], np.int8).view(ml_dtypes.int4))
    flags, nibbles = (value.constant.view(np.uint8).tolist() for value in read_model_bytes(serialize(model)).graphs[0].values)
    assert flags == [0, 1, 1, 1]
    assert nibbles == [15, 7]


def test_any_buffer_can_be_read(tmp_path):
    data = serialize(small())
    for buffer in (data, bytearray(data), memoryview(data), np.frombuffer(data, np.uint8)):
        assert plain(read_model_bytes(buffer)) == plain(small())


def test_a_thousand_ops_are_read_fast():
    import time

    data = serialize(Model([chain(*(OPS["LeakyRelu"](alpha=i + 0.5) for i in range(1000)))]))
    start = time.process_time()
    read_model_bytes(data)
    assert time.process_time() - start < 0.5


@pytest.mark.parametrize("path", sorted(GOLDEN.iterdir()), ids=lambda path: path.name)
def test_files_of_old_versions_can_be_read(path):
    assert plain(read_model(path)) == plain(small())
