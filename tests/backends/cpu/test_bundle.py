"""Bundles: kernels that were compiled ahead of time run without a compiler, and what is wrong with a bundle stops nothing."""

import importlib.util
import os
import shutil
import subprocess
import sys

import numpy as np
import onnx
import pytest

import mnnx
from mnnx.backends.backend import SharedWeights, temporary_backend
from mnnx.backends.cpu import bundle, common_kernels, kernel_bundles, linker
from mnnx.backends.cpu.compiler import assembly
from mnnx.backends.cpu.elf import section
from mnnx.backends.cpu.kernel import ABI, kernel
from mnnx.backends.cpu.recording import RecordingBackend
from mnnx.backends.cpu.target import Target
from mnnx.errors import BackendError
from mnnx.tools.feeds import FeedOptions
from mnnx.tools.kernels import plan

MODEL = '<ir_version: 8, opset_import: ["": 17]> g (float[2, 3] x) => (float[2, 3] y) { s = Sigmoid(x) y = Softmax(s) }'
RUN = """
import sys
import mnnx, numpy
with mnnx.Interpreter.from_file(sys.argv[1]) as interpreter, interpreter.create_session(mnnx.ScheduleConfig(num_threads=1)) as session:
    y = session.run({"x": numpy.zeros((2, 3), numpy.float32)})["y"]
    assert abs(y - 1 / 3).max() < 1e-6
    print(session.info()["kernels_compiled"], *sorted({"numba", "llvmlite"} & sys.modules.keys()))
"""
NO_OPTIONS = FeedOptions({}, {}, {}, 0, {})

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="bundles are ELF files")


def run_in_new_process(model, cache):
    """'<kernels compiled> <compilers imported>' of a process with a cache of its own, and its log."""
    environment = {**os.environ, "MNNX_CACHE_DIR": str(cache)}
    done = subprocess.run([sys.executable, "-c", RUN, str(model)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A model with its bundle beside it."""
    folder = tmp_path_factory.mktemp("made")
    model = folder / "model.mnnx"
    mnnx.convert(onnx.parser.parse_model(MODEL), model)
    target = Target.host()
    path = kernel_bundles.beside_model(model, target.level.name)
    bundle.build(list(plan(model, target, NO_OPTIONS)[0]), target, path)
    return model, path


def test_a_bundle_beside_the_model_needs_no_compiler(made, tmp_path):
    assert run_in_new_process(made[0], tmp_path) == ("0", "")
    assert not list(tmp_path.iterdir())


def test_a_bundle_for_all_models_of_a_folder_is_found(made, tmp_path):
    shutil.copy(made[0], tmp_path)
    shutil.copy(made[1], kernel_bundles.beside_models(tmp_path, "anything"))
    assert run_in_new_process(tmp_path / made[0].name, tmp_path / "cache") == ("0", "")


def test_a_bundle_in_the_cache_folder_is_found(made, tmp_path):
    (tmp_path / "cache" / "bundles").mkdir(parents=True)
    shutil.copy(made[0], tmp_path)
    shutil.copy(made[1], tmp_path / "cache" / "bundles" / "host.so")
    assert run_in_new_process(tmp_path / made[0].name, tmp_path / "cache") == ("0", "")


def _cut(data):
    return data[: len(data) * 3 // 4]


def _of_another_machine(data):
    return data[:18] + b"\xf3\x00" + data[20:]  # RISC-V


@pytest.mark.parametrize(
    ("damage", "message"), [(_cut, "cut short"), (lambda data: b"text", "no shared library"), (_of_another_machine, "")]
)
def test_a_bundle_that_does_not_fit_is_left_out(made, tmp_path, monkeypatch, caplog, damage, message):
    monkeypatch.setattr(kernel_bundles, "_OPEN", [])
    monkeypatch.setattr(kernel_bundles, "_SEARCHED", set())
    path = kernel_bundles.beside_model(tmp_path / "model.mnnx", "x")
    path.write_bytes(damage(made[1].read_bytes()))
    kernel_bundles.search_beside(tmp_path / "model.mnnx")
    assert kernel_bundles._OPEN == []
    assert message in caplog.text
    assert bool(caplog.records) == bool(message)


def test_a_pipe_named_like_a_bundle_is_not_waited_for(made, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(kernel_bundles, "_OPEN", [])
    monkeypatch.setattr(kernel_bundles, "_SEARCHED", set())
    model = tmp_path / "model.mnnx"
    os.mkfifo(kernel_bundles.beside_model(model, "pipe"))
    kernel_bundles.search_beside(model)
    assert not kernel_bundles._OPEN
    assert "is no file" in caplog.text


def test_the_index_says_what_is_inside(made):
    index = bundle.read_index(made[1])
    assert (index["level"], index["abi"], index["made_with"]["mnnx"]) == (Target.host().level.name, ABI, mnnx.__version__)
    names = [name for name, _ in index["kernels"].values()]
    assert {"team.run", "chain", "softmax.rows"} <= set(names)
    assert set(index["kernels"]) >= {kernel("team.run").identity(Target.host().level)}


def test_other_files_have_no_index(tmp_path):
    (tmp_path / "a.so").write_bytes(b"\x7fELF\x02\x01" + bytes(100))
    with pytest.raises(BackendError, match="no kernel bundle"):
        bundle.read_index(tmp_path / "a.so")


@pytest.mark.parametrize("length", [0, 10, 64, 200, 1000])
def test_reading_a_damaged_file_finds_nothing(made, length):
    assert section(made[1].read_bytes()[:length], ".mnnx.index") is None


def test_without_a_linker_the_message_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(linker.shutil, "which", lambda name: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BackendError, match=r"no linker for aarch64 was found: install one of: lld .*binutils-aarch64.*ziglang"):
        linker.link([], tmp_path / "out.so", "aarch64")
    assert not list(tmp_path.iterdir())


def test_what_a_linker_says_is_told(tmp_path):
    with pytest.raises(BackendError, match="tried: "):
        linker.link([b"no object"], tmp_path / "out.so", os.uname().machine)


def test_recording_follows_what_depends_on_data(tmp_path):
    model = tmp_path / "model.mnnx"
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[9] x) => (float[N] y) {
        where = NonZero (x) row = Squeeze (where) some = Gather (x, row) y = Sigmoid (some) }"""
    mnnx.convert(onnx.parser.parse_model(text), model)
    assert "elementwise" in [k.name for k in plan(model, Target.named("armv8"), NO_OPTIONS)[0]]


@pytest.mark.parametrize("name", ["x86-64-v2", "x86-64-v4", "raspberrypi5"])
def test_common_kernels_are_of_every_kind(name):
    found = {}
    config = mnnx.ScheduleConfig(num_threads=2)
    common_kernels.record(RecordingBackend(config, SharedWeights(), Target.named(name), found))
    assert {k.name.partition(".")[0] for k in found} >= {
        *("convolution", "dot", "elementwise", "gather", "gemm", "image", "lrn", "normalization", "pooling", "quantized", "raster"),
        *("recurrent", "recurrent_bytes", "reduction", "resize", "rotary", "softmax", "spread", "team", "trees"),
    }


def test_code_for_boards_is_scheduled_for_their_core():
    texts = {assembly("softmax.rows", {"logarithm": False}, Target.named(name)) for name in ("raspberrypi3", "raspberrypi5", "armv8")}
    assert len(texts) == 3


def test_values_of_recorded_sessions_are_right(made):
    found = {}
    recording = temporary_backend("test-recording", lambda config, shared: RecordingBackend(config, shared, Target.named("armv8"), found))
    config = mnnx.ScheduleConfig(backend="test-recording", backup="test-recording", num_threads=2)
    with recording, mnnx.Interpreter.from_file(made[0]) as interpreter, interpreter.create_session(config) as session:
        np.testing.assert_allclose(session.run({"x": np.zeros((2, 3), np.float32)})["y"], 1 / 3, rtol=1e-6)
