"""`mnnx kernels`: bundles are made, listed and described; the cache is emptied."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import mnnx
from mnnx.backends.cpu.target import Target

MODEL = '<ir_version: 8, opset_import: ["": 17]> g (float[2, 3] x) => (float[2, 3] y) { y = Softmax(x) }'
PRODUCT = '<ir_version: 8, opset_import: ["": 17]> g (float[16, 32] a, float[32, 64] b) => (float[16, 64] c) { c = MatMul(a, b) }'
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="bundles are ELF files")


@pytest.fixture
def product(tmp_path: Path) -> Path:
    """A model with weights that are worth packing."""
    weights = onnx.numpy_helper.from_array(np.ones((64, 64), np.float32), "b")
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]> g (float[16, 64] a) => (float[16, 64] c) { c = MatMul(a, b) }')
    model.graph.initializer.append(weights)
    mnnx.convert(model, tmp_path / "m.mnnx")
    return tmp_path / "m.mnnx"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setenv("MNNX_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_bundle_is_made_beside_the_model_and_described(mnnx_command, saved, cache: Path) -> None:
    model = saved(MODEL)
    result = mnnx_command("kernels", "build", model)
    assert result.exit_code == 0, result.stderr
    level = Target.host().level.name
    path = model.with_name(f"model.mnnx.kernels-{level}.so")
    assert result.stdout.startswith(f"{path}: 8 kernels (8 compiled now)")
    info = mnnx_command("kernels", "info", path, "--kernels")
    assert "softmax.rows(logarithm=False)" in info.stdout
    assert json.loads(mnnx_command("kernels", "info", path, "--json").stdout)["level"] == level

    again = mnnx_command("kernels", "build", model, model, "--target", level)
    assert again.stdout.startswith(f"{cache / 'bundles' / level}.so: 8 kernels (0 compiled now)")
    listed = json.loads(mnnx_command("kernels", "list", "--json").stdout)
    assert [(row["level"], row["kernels"]) for row in listed["bundles"] if row["path"].startswith(str(cache))] == [(level, 8)]
    assert [(row["level"], row["kernels"]) for row in listed["cached"]] == [(level, 8)]
    assert level in mnnx_command("kernels", "list").stdout

    cleared = mnnx_command("kernels", "clear")
    assert cleared.stdout.endswith(f"from {cache}\n")
    assert not list(cache.rglob("*.*"))


def test_a_bundle_has_the_kernels_that_tuned_sessions_choose(mnnx_command, saved, cache: Path, tmp_path: Path) -> None:
    model, times = saved(PRODUCT), tmp_path / "times.json"
    assert mnnx_command("run", model, "--threads", "2", "--tune", "--tune-seconds", "60", "--cache-file", times).exit_code == 0
    content = json.loads(times.read_text())
    (device,) = content["devices"].values()
    ((problem, (first, second)),) = device["times"].items()
    device["times"] = {problem: {first: 2000, second: 1000}}
    times.write_text(json.dumps(content))
    built = (mnnx_command("kernels", "build", model, *options).stdout for options in ((), ("--cache-file", times)))
    usual, tuned = (int(text.split(": ")[1].split()[0]) for text in built)
    assert tuned == usual + 2  # the packing for another tile, and the product


def test_info_describes_the_machine(mnnx_command) -> None:
    found = json.loads(mnnx_command("kernels", "info", "--json").stdout)
    assert found["level"] == Target.host().level.name
    assert "raspberrypi4" in found["known targets"]


def test_unknown_targets_and_other_files_are_errors(mnnx_command, saved) -> None:
    model = saved(MODEL)
    result = mnnx_command("kernels", "build", model, "--target", "toaster")
    assert (result.exit_code, "known ones: x86-64" in result.stderr) == (1, True)
    assert mnnx_command("kernels", "info", model).exit_code == 1


def test_files_go_into_a_folder_that_is_made(mnnx_command, product: Path, cache: Path, tmp_path: Path) -> None:
    result = mnnx_command("kernels", "build", product, "-o", tmp_path / "new" / "folder")
    assert result.exit_code == 0, result.stderr
    level = Target.host().level.name
    found = {path.name for path in (tmp_path / "new" / "folder").iterdir()}
    assert found == {f"m.mnnx.kernels-{level}.so", f"m.mnnx.packed-{level}"}


@pytest.mark.parametrize(("output", "message"), [("file", "file: it is not a folder"), ("file/folder", "file/folder: Not a directory")])
def test_an_output_that_can_not_be_a_folder_is_named(mnnx_command, saved, tmp_path: Path, output: str, message: str) -> None:
    (tmp_path / "file").touch()
    result = mnnx_command("kernels", "build", saved(MODEL), "-o", tmp_path / output)
    assert (result.exit_code, result.stderr) == (1, f"Error: {tmp_path}/{message}\n")


def test_a_cache_that_can_not_be_removed_is_named(mnnx_command, cache: Path, monkeypatch) -> None:
    def fail(folder: Path) -> None:
        raise PermissionError(13, "Permission denied", "some.kernel")

    (cache / "kernels").mkdir(parents=True)
    monkeypatch.setattr("shutil.rmtree", fail)
    result = mnnx_command("kernels", "clear")
    assert (result.exit_code, result.stderr) == (1, f"Error: {cache}/kernels: Permission denied\n")


@pytest.mark.parametrize("weights", ["--weights", "--no-weights"])
def test_a_disk_that_fills_up_leaves_no_half_of_a_file(product: Path, cache: Path, tmp_path: Path, weights: str) -> None:
    assert subprocess.run([sys.executable, "-m", "mnnx", "kernels", "build", product], capture_output=True).returncode == 0
    made = {path: path.read_bytes() for path in tmp_path.glob("m.mnnx.*")}
    result = subprocess.run(
        [sys.executable, "-m", "mnnx", "kernels", "build", product, weights],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000)),
    )
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert "File too large" in result.stderr
    assert weights == "--no-weights" or ".mnnx.packed-" in result.stderr
    assert {path: path.read_bytes() for path in tmp_path.glob("m.mnnx.*")} == made
    assert not list(tmp_path.rglob("*.tmp"))
