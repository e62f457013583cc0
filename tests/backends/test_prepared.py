"""Packed weights on disk: sessions take them instead of packing, and what is wrong with such a file changes no result."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import mnnx
from mnnx.backends import prepared
from mnnx.backends.backend import SharedWeights
from mnnx.backends.cpu.target import Target
from mnnx.schema.hashing import blake2b
from mnnx.schema.writer import write_model
from mnnx.tools.feeds import FeedOptions
from mnnx.tools.kernels import plan

TEXT = """<ir_version: 9, opset_import: ["": 21]> g (float[1, 32, 12, 12] x) => (float[1, 144, 160] y, uint8[1, 144, 160] q)
<float s = {0.1}, uint8 z = {128}, int64[3] shape = {1, 48, 144}> {
    c = Conv(x, w)
    d = Conv<pads=[1, 1, 1, 1]>(c, v)
    e = Reshape(d, shape)
    f = Transpose<perm=[0, 2, 1]>(e)
    y = MatMul(f, m)
    a = QuantizeLinear(f, s, z)
    q = QLinearMatMul(a, s, z, b, s, z, s, z)
}"""
WEIGHTS = {"w": (48, 32, 1, 1), "v": (48, 48, 3, 3), "m": (48, 160), "b": (48, 160)}
NO_OPTIONS = FeedOptions({}, {}, {}, 0, {})


def converted(path: Path, seed: int = 0) -> Path:
    rng = np.random.default_rng(seed)
    model = onnx.parser.parse_model(TEXT)
    for name, shape in WEIGHTS.items():
        array = rng.integers(0, 255, shape).astype(np.uint8) if name == "b" else (rng.standard_normal(shape) / 8).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    mnnx.convert(model, path)
    return path


def results(path: Path, shape: tuple[int, ...] = (1, 32, 12, 12)) -> tuple[dict[str, np.ndarray], int]:
    """What a session computes, and how many weights it packed."""
    packed = []
    original = SharedWeights.get

    def counting(self, key, array, pack):
        return original(self, key, array, lambda a: (packed.append(key), pack(a))[1])

    SharedWeights.get = counting
    try:
        with mnnx.Interpreter.from_file(path) as interpreter, interpreter.create_session() as session:
            x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
            return session.run({"x": x}), len(packed)
    finally:
        SharedWeights.get = original


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return converted(tmp_path / "model.mnnx")


@pytest.fixture
def file(model: Path) -> Path:
    path = prepared.beside_model(model, "here")
    _, size = plan(model, Target.host(), NO_OPTIONS, path)
    assert path.stat().st_size == size > 4 * 48 * 48 * 9
    return path


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def test_a_session_maps_what_lies_beside_the_model(model: Path, tmp_path: Path, file: Path) -> None:
    found, packed = results(model)
    expected, all_packed = results(converted(tmp_path / "other.mnnx"))
    assert all_packed >= packed + 4  # two convolutions, two products; what is small is packed all the same
    assert same(found, expected)


def test_other_weights_are_not_taken_for_the_models_own(model: Path, file: Path, caplog) -> None:
    before, _ = results(model)
    converted(model, seed=1)
    after, _ = results(model)
    assert not same(before, after)
    assert "were made for another file" in caplog.text
    file.unlink()
    assert same(after, results(model)[0])


def test_those_of_another_version_are_left_out(model: Path, file: Path, caplog, monkeypatch) -> None:
    _, few = results(model)
    monkeypatch.setattr(prepared, "PACKINGS", prepared.PACKINGS + 1)
    assert results(model)[1] > few
    assert "were made for another file" in caplog.text


@pytest.mark.parametrize("kept", [0, 7, 40, 300, -1])
def test_a_file_that_is_cut_short_is_left_out(model: Path, file: Path, kept: int, caplog) -> None:
    expected, few = results(model)
    file.write_bytes(file.read_bytes()[:kept])
    found, packed = results(model)
    assert same(found, expected)
    assert packed > few
    assert f"the packed weights {file} are left out" in caplog.text


@pytest.mark.parametrize("position", [0, 9, 17, 25, 60, 200])
def test_a_damaged_index_is_left_out(model: Path, file: Path, position: int, caplog) -> None:
    expected, _ = results(model)
    data = bytearray(file.read_bytes())
    data[position] ^= 0x41
    file.write_bytes(data)
    assert same(results(model)[0], expected)
    assert f"the packed weights {file} are left out" in caplog.text


@pytest.mark.parametrize("index", [b"", b"one line", b"\xff\n\n", b"other model\nmnnx 0, packings 0\nname"])
def test_an_index_of_another_form_is_left_out(model: Path, index: bytes, caplog) -> None:
    expected, _ = results(model)
    size = prepared._HEADER.size + len(index)
    header = prepared._HEADER.pack(prepared._MAGIC, size, len(index), blake2b(index, digest_size=32).digest())
    prepared.beside_model(model, "x").write_bytes(header + index)
    assert same(results(model)[0], expected)
    assert "are left out" in caplog.text


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("nowhere")])
def test_what_is_no_file_is_left_out(model: Path, make: Callable[[Path], None], caplog) -> None:
    expected, _ = results(model)
    make(prepared.beside_model(model, "x"))
    assert same(results(model)[0], expected)
    assert "are left out" in caplog.text


def test_a_model_with_a_sidecar_has_packed_weights_too(model: Path, tmp_path: Path) -> None:
    other = tmp_path / "sidecar.mnnx"
    with mnnx.Interpreter.from_file(model) as interpreter:
        write_model(interpreter.model, other, sidecar_limit=1000)
    expected, before = results(other)
    plan(other, Target.host(), NO_OPTIONS, prepared.beside_model(other, "here"))
    found, after = results(other)
    assert same(found, expected)
    assert after < before


def test_files_are_told_apart_by_their_weights(model: Path, tmp_path: Path) -> None:
    prints = set()
    for seed in (0, 0, 1):
        with mnnx.Interpreter.from_file(converted(tmp_path / f"{seed}.mnnx", seed)) as interpreter:
            prints.add(interpreter.model.fingerprint)
    assert len(prints) == 2
    assert "" not in prints


def test_recurrent_weights_are_packed_once(tmp_path: Path) -> None:
    rng, path = np.random.default_rng(3), tmp_path / "recurrent.mnnx"
    text = """<ir_version: 8, opset_import: ["": 14, "com.microsoft": 1]> g (float[4, 1, 32] x) => (y, h) {
        y = LSTM <hidden_size = 40> (x, w, r)
        h = com.microsoft.DynamicQuantizeLSTM <hidden_size = 40> (x, v, q, , , , , , s, z, s, z)
    }"""
    model = onnx.parser.parse_model(text)
    for name, shape in {"w": (1, 160, 32), "r": (1, 160, 40)}.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name))
    for name, shape in {"v": (1, 32, 160), "q": (1, 40, 160), "z": (1,)}.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(rng.integers(-9, 9, shape).astype(np.int8), name))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0.01], np.float32), "s"))
    mnnx.convert(model, path)

    wanted, before = results(path, (4, 1, 32))
    plan(path, Target.host(), NO_OPTIONS, prepared.beside_model(path, "here"))
    got, after = results(path, (4, 1, 32))
    assert after <= before - 4  # w and r of both
    assert same(got, wanted)
