"""`mnnx run`: what it feeds, what it says, what it saves."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from PIL import Image

import mnnx


@pytest.fixture
def file(classifier: Path) -> Path:
    target = classifier.with_suffix(".mnnx")
    mnnx.convert(classifier, target)
    return target


def _scores(file: Path, image: np.ndarray) -> np.ndarray:
    return mnnx.Interpreter.from_file(file).create_session().run({"image": image})["scores"]


def test_prints_a_table_of_outputs(mnnx_command, file: Path) -> None:
    result = mnnx_command("run", file, "--shape", "image=2,3,8,8")
    assert result.exit_code == 0
    (row,) = (line.split() for line in result.stdout.splitlines() if line.startswith("scores"))
    assert row[:4] == ["scores", "float32", "[2,", "4]"]


def test_random_inputs_are_seeded(mnnx_command, file: Path) -> None:
    rows = [json.loads(mnnx_command("run", file, "--shape", "image=1,3,8,8", "--seed", s, "--json").stdout)["outputs"] for s in (1, 1, 2)]
    assert rows[0] == rows[1]
    assert rows[0] != rows[2]


def test_an_onnx_file_is_converted_first(mnnx_command, classifier: Path) -> None:
    assert mnnx_command("run", classifier, "--shape", "image=1,3,8,8").exit_code == 0
    assert [p.name for p in classifier.parent.iterdir()] == ["classifier.onnx"]


def test_sizes_of_named_dims(mnnx_command, file: Path) -> None:
    result = mnnx_command("run", file, "--dim", "H=5", "--dim", "W=6", "--dim", "N=3", "--json")
    assert json.loads(result.stdout)["outputs"][0]["shape"] == [3, 4]


def test_open_dims_are_an_error_that_shows_the_option(mnnx_command, file: Path) -> None:
    result = mnnx_command("run", file)
    assert result.exit_code == 1
    assert "--shape image=1,3,SIZE,SIZE" in result.stderr


@pytest.mark.parametrize("named", [True, False])
def test_npy_inputs_and_saved_outputs(mnnx_command, file: Path, tmp_path: Path, named: bool) -> None:
    image = np.random.default_rng(3).normal(size=(1, 3, 7, 5)).astype(np.float32)
    np.save(tmp_path / "x.npy", image)
    value = f"image={tmp_path / 'x.npy'}" if named else tmp_path / "x.npy"
    result = mnnx_command("run", file, "-i", value, "--save", tmp_path / "out.npz", "--output-dir", tmp_path / "out")
    assert result.exit_code == 0
    wanted = _scores(file, image)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["scores"], wanted)
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "scores.npy"), wanted)


def test_an_npz_holds_inputs_by_name(mnnx_command, saved, tmp_path: Path) -> None:
    source = saved('<ir_version: 8, opset_import: ["": 17]> g (float[2] a, float[2] b) => (float[2] c) { c = Sub(a, b) }')
    np.savez(tmp_path / "in.npz", a=np.float32([5, 7]), b=np.float32([1, 2]))
    result = mnnx_command("run", source, "-i", tmp_path / "in.npz", "--json")
    assert json.loads(result.stdout)["outputs"] == [{"name": "c", "dtype": "float32", "shape": [2], "min": 4.0, "mean": 4.5, "max": 5.0}]


def test_values_may_be_json(mnnx_command, saved) -> None:
    source = saved('<ir_version: 8, opset_import: ["": 17]> g (int64 a, int64[2] b) => (int64[2] c) { c = Add(a, b) }')
    result = mnnx_command("run", source, "-i", "a=16000", "-i", "b=[1, 2]", "--json")
    assert json.loads(result.stdout)["outputs"][0]["max"] == 16002


def test_a_picture_goes_through_image_process(mnnx_command, file: Path, tmp_path: Path) -> None:
    pixels = np.random.default_rng(4).integers(0, 256, (6, 9, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "cat.png")
    options = ["--format", "BGR", "--mean", "10,20,30", "--normal", "0.5", "--save", tmp_path / "out.npz"]
    assert mnnx_command("run", file, "-i", f"image={tmp_path / 'cat.png'}", *options).exit_code == 0
    image = (pixels[..., ::-1].transpose(2, 0, 1)[None] - np.float32([10, 20, 30]).reshape(3, 1, 1)) * np.float32(0.5)
    np.testing.assert_allclose(np.load(tmp_path / "out.npz")["scores"], _scores(file, image), rtol=1e-4, atol=1e-6)


def test_a_picture_is_scaled_to_the_given_shape(mnnx_command, file: Path, tmp_path: Path) -> None:
    Image.new("RGB", (90, 60), (200, 100, 50)).save(tmp_path / "plain.png")
    result = mnnx_command(
        "run", file, "-i", tmp_path / "plain.png", "--shape", "image=1,3,8,8", "--save", tmp_path / "out.npz", "--normal", 1 / 255
    )
    assert result.exit_code == 0
    image = np.broadcast_to(np.float32([200, 100, 50]).reshape(1, 3, 1, 1) / 255, (1, 3, 8, 8))
    np.testing.assert_allclose(np.load(tmp_path / "out.npz")["scores"], _scores(file, np.ascontiguousarray(image)), rtol=1e-4, atol=1e-6)


def test_a_tensor_inside_the_model_can_be_asked_for(mnnx_command, file: Path) -> None:
    result = mnnx_command("run", file, "--shape", "image=1,3,8,8", "--outputs", "pooled", "--json")
    assert [(row["name"], row["shape"]) for row in json.loads(result.stdout)["outputs"]] == [("pooled", [1, 4, 1, 1])]


def test_a_tensor_that_was_fused_away_is_an_error_that_names_the_level(mnnx_command, file: Path) -> None:
    result = mnnx_command("run", file, "--shape", "image=1,3,8,8", "--outputs", "features")
    assert result.exit_code == 1
    assert "level=1" in result.stderr


def test_strings_sequences_and_half_precision_can_be_saved(mnnx_command, saved, tmp_path: Path) -> None:
    source = saved(
        """<ir_version: 10, opset_import: ["": 21]>
        g (string[2] s, float[2] x) => (string[2] t, seq(float[2]) q, bfloat16[2] h)
        { t = Identity(s) q = SequenceConstruct(x, x) h = Cast<to = 16>(x) }"""
    )
    result = mnnx_command("run", source, "-i", 's=["a", "Ünï"]', "-i", "x=[1.5, -2]", "--save", tmp_path / "out.npz")
    assert result.exit_code == 0, result.output
    with np.load(tmp_path / "out.npz") as arrays:
        assert arrays["t"].tolist() == ["a", "Ünï"]
        assert arrays["q/1"].tolist() == [1.5, -2]
        assert (arrays["h"].dtype, arrays["h"].tolist()) == (np.float32, [1.5, -2])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-i", "nothing=1"], "the model has no input 'nothing'; its inputs are 'image'"),
        (["-i", "image=missing.npy"], "there is no file 'missing.npy'"),
        (["-i", "image=missing.png"], "neither a file nor a JSON value"),
        (["-i", "image=[1, 2]"], "wants the shape [N, 3, H, W]"),
        (["-i", "image=[[1], [2, 3]]"], "is no value of float32"),
        (["--shape", "image=1,4,8,8"], "dim 1 must be 3"),
        (["--shape", "nothing=1"], "the model has no input 'nothing'"),
        (["--dim", "Q=1"], "no input has a dim 'Q'; named dims are 'H', 'N', 'W'"),
        (["--shape", "image=1,3,8,8", "--backend", "abacus"], "there is no backend 'abacus'"),
        (["--shape", "image=1,3,8,8", "--save", "no/folder/out.npz"], "no/folder/out.npz: No such file or directory"),
        (["--shape", "image=1,3,8,8", "--outputs", "nothing"], "the model has no tensor 'nothing'"),
        (["--shape", "image=1,3,8,8", "--output-dir", "/dev/null"], "/dev/null: it is not a folder"),
        (["-i", "image=1", "-i", "x.npy"], "the input 'image' has two values: 1, and one of x.npy"),
    ],
)
def test_mistakes_are_one_message(mnnx_command, file: Path, arguments: list[str], message: str) -> None:
    result = mnnx_command("run", file, *arguments)
    assert result.exit_code == 1
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments", [["--shape", "image=1,x"], ["--shape", "1,3"], ["--dim", "N"], ["--mean", "a"], ["--mean", "nan"], ["--threads", "-1"]]
)
def test_malformed_options_are_usage_errors(mnnx_command, file: Path, arguments: list[str]) -> None:
    assert mnnx_command("run", file, *arguments).exit_code == 2


@pytest.mark.parametrize("content", [b"", b"not numpy", b"\x93NUMPY\x01\x00"])
def test_a_bad_npy_file_is_an_error(mnnx_command, file: Path, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.npy").write_bytes(content)
    result = mnnx_command("run", file, "-i", tmp_path / "x.npy")
    assert result.exit_code == 1
    assert "can't be read as NumPy arrays" in result.stderr


def test_a_bad_picture_is_an_error(mnnx_command, file: Path, tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(b"not a picture")
    result = mnnx_command("run", file, "-i", tmp_path / "x.png")
    assert result.exit_code == 1
    assert "can't be read as a picture" in result.stderr


def test_a_damaged_model_is_an_error(mnnx_command, file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])
    result = mnnx_command("run", file)
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert "classifier.mnnx" in result.stderr


def test_too_large_shapes_are_refused_before_random_values_are_made(mnnx_command, file: Path, monkeypatch) -> None:
    monkeypatch.setattr("mnnx.tools.feeds.random_value", lambda *_arguments: pytest.fail("random values were made"))
    result = mnnx_command("run", file, "--shape", "image=1000000,3,224,224")
    assert result.exit_code == 1
    assert "MNNX_MAX_TENSOR_MB" in result.stderr


def test_a_large_input_of_a_small_model_is_refused_too(mnnx_command, saved) -> None:
    source = saved('<ir_version: 8, opset_import: ["": 17]> g (float[N] x) => (int64[1] y) { y = Shape(x) }')
    result = mnnx_command("run", source, "--dim", "N=1000000000000")
    assert result.exit_code == 1
    assert "random values for the input 'x' [1000000000000] would take" in result.stderr


def test_a_lack_of_memory_is_one_message(mnnx_command, file: Path, monkeypatch) -> None:
    def fail(*_arguments):
        raise MemoryError("Unable to allocate 5 TiB")

    monkeypatch.setattr("mnnx.tools.feeds.random_value", fail)
    result = mnnx_command("run", file, "--shape", "image=1,3,8,8")
    assert result.exit_code == 1
    assert result.stderr == "Error: not enough memory: Unable to allocate 5 TiB; smaller shapes (--shape, --dim) need less\n"


def test_it_says_how_long_loading_took(mnnx_command, file: Path) -> None:
    assert re.search(r": loaded in \d+\.\d+ s", mnnx_command("run", file, "--shape", "image=1,3,8,8").stdout)
    report = json.loads(mnnx_command("run", file, "--shape", "image=1,3,8,8", "--json").stdout)
    assert report["load_ms"] > 0
    assert report["kernels_compiled"] == 0  # the first run made them
    assert report["first_run_ms"] > 0


def test_open_dims_are_an_error_with_the_whole_command(mnnx_command, saved) -> None:
    source = saved(
        '<ir_version: 8, opset_import: ["": 17]> g (float[A, 2, B] x, int64[C] n, float[D, E] z) => (float[A] y) { y = Identity(z) }'
    )
    result = mnnx_command("run", source, "-i", "n=[1]", "--dim", "E=7")
    assert result.exit_code == 1
    assert f"mnnx run {source} -i 'n=[1]' --shape x=1,2,SIZE " in result.stderr
    source = saved('<ir_version: 8, opset_import: ["": 17]> g (float[A, B] x, float[D, E] z) => (float[F, G] y) { y = Add(x, z) }')
    result = mnnx_command("run", source)
    assert f"mnnx run {source} --shape x=1,SIZE --shape z=1,SIZE " in result.stderr


def test_options_that_contradict_each_other_are_a_usage_error(mnnx_command, file: Path) -> None:
    result = mnnx_command("run", file, "--dim", "N=2", "--shape", "image=1,3,8,8")
    assert result.exit_code == 2
    assert "--dim N=2 and --shape image=1,3,8,8 contradict each other" in result.stderr
    assert mnnx_command("run", file, "--dim", "N=1", "--shape", "image=1,3,8,8").exit_code == 0


def test_an_op_that_fails_on_random_values_names_them(mnnx_command, saved) -> None:
    source = saved('<ir_version: 8, opset_import: ["": 17]> g (float[2] x, int64[1] s) => (float[N] y) { y = Reshape(x, s) }')
    result = mnnx_command("run", source, "-i", "x=[1, 2]", "--seed", "3")
    assert result.exit_code == 1
    assert "These inputs had random values: 's'; give real ones with -i NAME=FILE" in result.stderr


def test_save_wants_an_npz_file(mnnx_command, file: Path) -> None:
    result = mnnx_command("run", file, "--save", "out.txt")
    assert result.exit_code == 2
    assert "must end in .npz" in result.stderr


@pytest.mark.parametrize("option", ["--save", "--output-dir"])
def test_a_disk_that_fills_up_leaves_no_half_of_a_file(saved, tmp_path: Path, option: str) -> None:
    source = saved('<ir_version: 8, opset_import: ["": 17]> g (float[N] x) => (float[N] y) { y = Neg(x) }')
    target = tmp_path / "out.npz" if option == "--save" else tmp_path / "out" / "y.npy"
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(b"old")
    mnnx.convert(source, tmp_path / "m.mnnx")
    result = subprocess.run(
        [sys.executable, "-m", "mnnx", "run", "m.mnnx", "--dim", "N=9000", option, "out.npz" if option == "--save" else "out"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000)),
    )
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == f"Error: {target.relative_to(tmp_path)}: File too large"
    assert "Traceback" not in result.stderr
    assert target.read_bytes() == b"old"
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_negative_seed_is_a_usage_error(mnnx_command, file: Path) -> None:
    assert mnnx_command("run", file, "--seed", -1).exit_code == 2


def test_tuning_is_kept_in_a_cache_file(mnnx_command, file: Path, tmp_path: Path) -> None:
    options = ("--shape", "image=1,3,16,16", "--threads", "1", "--cache-file", tmp_path / "times.json", "--json")
    first = json.loads(mnnx_command("run", file, *options, "--tune").stdout)
    assert first["tuned"] >= 1
    second = json.loads(mnnx_command("run", file, *options).stdout)
    assert (second["tuned"], second["tuned_from_cache"]) == (0, first["tuned"])
    assert second["outputs"][0]["max"] == pytest.approx(first["outputs"][0]["max"], rel=1e-5)
    assert "from the cache file" in mnnx_command("run", file, *options[:-1]).stdout


@pytest.mark.parametrize("seconds", ["0", "nan", "inf"])
def test_seconds_for_tuning_are_positive(mnnx_command, file: Path, seconds: str) -> None:
    assert mnnx_command("run", file, "--tune", "--tune-seconds", seconds).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dim", "N=3", "--dim", "N=4"], "'N' is given twice"),
        (["--shape", "image=1,3,8,8", "--shape", "image=1,3,9,9"], "'image' is given twice"),
        (["-i", "image=a.npy", "-i", "image=b.npy"], "'image' is given twice"),
        (["-i", "a.npy", "-i", "b.npy"], "it is given twice without NAME="),
    ],
)
def test_two_values_for_one_name_are_a_usage_error(mnnx_command, file: Path, arguments: list[str], message: str) -> None:
    result = mnnx_command("run", file, *arguments)
    assert (result.exit_code, message in result.stderr) == (2, True)


@pytest.mark.parametrize("given", [["pooled,scores"], ["pooled", "scores"]])
def test_several_outputs_stand_in_one_option_or_in_several(mnnx_command, file: Path, given: list[str]) -> None:
    options = [word for text in given for word in ("--outputs", text)]
    result = mnnx_command("run", file, "--shape", "image=1,3,8,8", *options, "--json")
    assert [row["name"] for row in json.loads(result.stdout)["outputs"]] == ["pooled", "scores"]


def test_a_name_with_a_comma_is_taken_as_it_is(mnnx_command, saved) -> None:
    source = saved('<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y, float[2] z) { y = Exp(x) z = Neg(x) }')
    model = onnx.load(source)
    model.graph.output[0].name = model.graph.node[0].output[0] = "y,z"
    onnx.save(model, source)
    for text, names in (("y,z", ["y,z"]), ("z,x", ["z", "x"])):
        result = mnnx_command("run", source, "--outputs", text, "--json")
        assert [row["name"] for row in json.loads(result.stdout)["outputs"]] == names


@pytest.mark.parametrize("keep", [slice(200), slice(0, -30), slice(0)])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_npz_that_was_cut_short_is_an_error(mnnx_command, file: Path, tmp_path: Path, keep: slice, save) -> None:
    save(tmp_path / "x.npz", image=np.random.default_rng(0).random((1, 3, 8, 8), np.float32))
    (tmp_path / "x.npz").write_bytes((tmp_path / "x.npz").read_bytes()[keep])
    result = mnnx_command("run", file, "-i", tmp_path / "x.npz")
    assert (result.exit_code, "x.npz can't be read as NumPy arrays: " in result.stderr) == (1, True)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed, lambda path, image: np.save(path, image)])
def test_damaged_arrays_are_an_error_or_an_input(mnnx_command, file: Path, tmp_path: Path, save) -> None:
    rng = np.random.default_rng(5)
    path = tmp_path / ("x.npz" if save in (np.savez, np.savez_compressed) else "x.npy")
    save(path, image=rng.random((1, 3, 4, 4), np.float32))
    whole = path.read_bytes()
    for _ in range(60):
        damaged = bytearray(whole)
        for place in rng.integers(0, len(whole), 3):
            damaged[place] = rng.integers(256)
        path.write_bytes(damaged)
        assert mnnx_command("run", file, "-i", path, "--outputs", "image").exit_code in (0, 1)


@pytest.mark.parametrize("given", [("--shape", "x=2,3"), ("--dim", "N=2")])
def test_a_value_of_another_shape_than_an_option_says_is_a_usage_error(mnnx_command, saved, given: tuple[str, str]) -> None:
    source = saved('<ir_version: 8, opset_import: ["": 17]> g (float[N, 3] x) => (float[N, 3] y) { y = Neg(x) }')
    result = mnnx_command("run", source, "-i", "x=[[1, 2, 3]]", *given)
    assert result.exit_code == 2
    assert f"{' '.join(given)} and the value of -i" in result.stderr
    assert mnnx_command("run", source, "-i", "x=[[1, 2, 3], [4, 5, 6]]", *given).exit_code == 0
