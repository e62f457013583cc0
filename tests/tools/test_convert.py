"""`mnnx convert`: the report, and errors that leave nothing behind."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

import mnnx
from mnnx.converter.frontends.onnx.registry import IMPORTERS
from mnnx.schema.ops.arithmetic import Sub


def _folder(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir()}


def test_converts_and_reports(mnnx_command, classifier: Path) -> None:
    target = classifier.with_suffix(".mnnx")
    result = mnnx_command("convert", classifier, target)
    assert result.exit_code == 0
    assert "ops      5 → 4 (level 2)" in result.stdout
    assert "dynamic  image [N, 3, H, W]" in result.stdout
    assert mnnx.Interpreter.from_file(target).metadata["labels"].startswith("cat")


def test_verbose_says_what_each_pass_did(mnnx_command, classifier: Path) -> None:
    assert "epilogue-fusion: 1 in" in mnnx_command("convert", classifier, classifier.with_suffix(".mnnx"), "-v").stdout


def test_quiet_prints_nothing(mnnx_command, classifier: Path) -> None:
    result = mnnx_command("convert", classifier, classifier.with_suffix(".mnnx"), "--quiet")
    assert (result.exit_code, result.output) == (0, "")


def test_level_0_keeps_every_op(mnnx_command, classifier: Path) -> None:
    result = mnnx_command("convert", classifier, classifier.with_suffix(".mnnx"), "--level", 0, "--json")
    report = json.loads(result.stdout)
    assert report["op_counts_after"] == report["op_counts_before"]
    assert report["dynamic_dims"] == {"image": ["N", 3, "H", "W"]}
    assert report["target_bytes"] == classifier.with_suffix(".mnnx").stat().st_size


def test_an_unsupported_op_is_named_with_its_node(mnnx_command, saved) -> None:
    source = saved(
        """<ir_version: 8, opset_import: ["": 17, "my.ops": 1]>
        g (float[2] x) => (float[2] y, float[2] z) { y = my.ops.Wobble(x) z = my.ops.Jiggle(x) }"""
    )
    result = mnnx_command("convert", source, source.with_suffix(".mnnx"))
    assert result.exit_code == 1
    assert "my.ops::Wobble (opset 1): 'Wobble_0'" in result.stderr
    assert "my.ops::Jiggle (opset 1): 'Jiggle_1'" in result.stderr
    assert result.stdout == ""
    assert _folder(source.parent) == {"model.onnx"}


@pytest.mark.parametrize("target", ["no/such/folder/out.mnnx", "classifier.onnx/out.mnnx", "."])
def test_a_target_that_cant_be_written_is_an_error(mnnx_command, classifier: Path, target: str) -> None:
    result = mnnx_command("convert", classifier, classifier.parent / target)
    assert result.exit_code == 1
    assert "can't be written" in result.stderr
    assert _folder(classifier.parent) == {"classifier.onnx"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_unwritable_folder_is_an_error(mnnx_command, classifier: Path, tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    result = mnnx_command("convert", classifier, folder / "out.mnnx")
    assert result.exit_code == 1
    assert "Permission denied" in result.stderr


def test_a_disk_that_fills_up_keeps_the_old_file(classifier: Path) -> None:
    target = classifier.with_suffix(".mnnx")
    target.write_bytes(b"old")
    result = subprocess.run(
        [sys.executable, "-m", "mnnx", "convert", str(classifier), str(target)],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)),
    )
    assert result.returncode == 1
    assert result.stderr.startswith(f"Error: {target} can't be written: ")
    assert "Traceback" not in result.stderr
    assert target.read_bytes() == b"old"
    assert _folder(classifier.parent) == {"classifier.onnx", "classifier.mnnx"}


@pytest.mark.parametrize("content", [None, b"", b"not a model", b"\x08\x07"])
def test_what_is_no_onnx_model_is_an_error(mnnx_command, tmp_path: Path, content: bytes | None) -> None:
    source = tmp_path / "bad.onnx"
    if content is not None:
        source.write_bytes(content)
    result = mnnx_command("convert", source, tmp_path / "out.mnnx")
    assert result.exit_code == 1
    assert "bad.onnx is not a" in result.stderr
    assert not (tmp_path / "out.mnnx").exists()


def test_a_picture_is_told_of_imagemagick(mnnx_command) -> None:
    result = mnnx_command("convert", "cat.png", "cat.jpg")
    assert result.exit_code == 2
    assert "ImageMagick" in result.stderr


def test_an_unknown_level_is_a_usage_error(mnnx_command, classifier: Path) -> None:
    assert mnnx_command("convert", classifier, "x.mnnx", "--level", 4).exit_code == 2


def test_the_console_script_convert_is_the_same_command(classifier: Path) -> None:
    target = classifier.with_suffix(".mnnx")
    script = "from mnnx.tools.main import convert_main; convert_main()"
    result = subprocess.run([sys.executable, "-c", script, str(classifier), str(target)], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert target.exists()


def test_without_onnx_the_error_says_what_to_install(classifier: Path) -> None:
    script = "import sys; sys.modules['onnx'] = None; from mnnx.tools.main import main; main()"
    result = subprocess.run([sys.executable, "-c", script, "convert", str(classifier), "x.mnnx"], capture_output=True, text=True)
    assert result.returncode == 1
    assert "pip install 'mnnx[convert]'" in result.stderr


@pytest.mark.parametrize("link", [None, os.symlink, os.link])
def test_the_source_is_never_overwritten(mnnx_command, classifier: Path, link) -> None:
    target = classifier
    if link is not None:
        target = classifier.with_name("other.mnnx")
        link(classifier, target)
    before = classifier.read_bytes()
    result = mnnx_command("convert", classifier, target)
    assert result.exit_code == 1
    assert ("would look like an ONNX model" if link is None else "is the source itself") in result.stderr
    assert target.read_bytes() == classifier.read_bytes() == before


def test_a_target_without_a_folder_is_told_before_the_source_is_read(tmp_path: Path) -> None:
    with pytest.raises(mnnx.ConversionError, match="can't be written: there is no folder"):
        mnnx.convert(tmp_path / "missing.onnx", tmp_path / "no" / "out.mnnx")


@pytest.mark.parametrize("command", ["convert", "verify"])
def test_an_mnnx_file_is_told_that_it_is_one(mnnx_command, classifier: Path, command: str) -> None:
    model, target = classifier.with_suffix(".mnnx"), classifier.with_name("x.mnnx")
    mnnx.convert(classifier, model)
    result = mnnx_command(command, model, *([target] if command == "convert" else []))
    assert result.exit_code == 1
    assert "is an .mnnx model already; mnnx converts from ONNX" in result.stderr
    assert not target.exists()


_EXPORT = "export the model as .onnx first"


@pytest.mark.parametrize(
    ("ending", "way"), [(".mnn", _EXPORT), (".tflite", _EXPORT), (".pt", "load the module in Python and give that to mnnx.convert")]
)
def test_files_of_other_frameworks_are_told_where_to_start(mnnx_command, tmp_path: Path, ending: str, way: str) -> None:
    source = tmp_path / f"model{ending}"
    source.write_bytes(b"\x1c\x00\x00\x00TFL3")
    result = mnnx_command("convert", source, tmp_path / "x.mnnx")
    assert result.exit_code == 1
    assert f"mnnx converts from ONNX: {way}" in result.stderr


def test_the_report_has_small_sizes_and_an_input_a_line(mnnx_command, saved) -> None:
    source = saved('<ir_version: 8, opset_import: ["": 17]> g (float[N] x, float[N, 2] y) => (float[N, M] z) { z = Add(x, y) }')
    text = mnnx_command("convert", source, source.with_suffix(".mnnx"), "-v").stdout
    assert "\ndynamic  x [N]\n         y [N, 2]\n" in text
    assert "0.00 MiB" not in text
    assert ": 0 in" not in text


def test_shapes_are_fixed(mnnx_command, classifier: Path) -> None:
    target = classifier.with_suffix(".mnnx")
    report = json.loads(mnnx_command("convert", classifier, target, "--input-shape", "image:?x3x8x8", "--dim", "N=2", "--json").stdout)
    assert report["dynamic_dims"] == {}
    assert mnnx.Interpreter.from_file(target).create_session().inputs["image"].shape == (2, 3, 8, 8)


def test_ranges_are_limits(mnnx_command, saved) -> None:
    source = saved('<ir_version: 8, opset_import: ["": 17]> g (float[N, S, C] x) => (float[N, S, C] z) { z = Exp(x) }')
    target = source.with_suffix(".mnnx")
    result = mnnx_command("convert", source, target, "--input-shape", "x:2..8x..7x3", "--dim", "S=..7", "--verify", "--json")
    report = json.loads(result.stdout)
    assert report["ranges"] == {"N": [2, 8], "S": [0, 7]}
    assert report["verification"]["equal"]
    text = mnnx_command("convert", source, target, "--dim", "N=2..8", "--dim", "C=3").stdout
    assert "\ndim N    2..8\n" in text
    assert json.loads(mnnx_command("inspect", target, "--json").stdout)["ranges"] == {"N": [2, 8]}
    assert "2..8" in mnnx_command("inspect", target).stdout
    assert mnnx_command("run", target, "--dim", "S=4").exit_code == 0  # a batch of 2
    refused = mnnx_command("run", target, "--dim", "S=4", "--dim", "N=9")
    assert (refused.exit_code, "N must be in 2..8" in refused.stderr) == (1, True)


def test_several_shapes_stand_with_commas_between_them_and_names_may_have_colons(mnnx_command, saved) -> None:
    source = saved(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[A] x, float[B] z, float[C, n] w) => (float[A] y, float[B] u, float[C, n] v) { y = Exp(x) u = Exp(z) v = Exp(w) }"""
    )
    model = onnx.load(source)
    model.graph.input[1].name = model.graph.node[1].input[0] = "z:0"
    onnx.save(model, source)
    shapes = ("--input-shape", "x:5,z:0:6", "--input-shape", "w:?xk")
    assert mnnx_command("convert", source, source.with_suffix(".mnnx"), *shapes).exit_code == 0
    inputs = mnnx.Interpreter.from_file(source.with_suffix(".mnnx")).create_session().inputs
    assert {name: tensor.dims for name, tensor in inputs.items()} == {"x": (5,), "z:0": (6,), "w": ("C", "k")}


@pytest.mark.parametrize("text", ["image=1,3,8,8", "1x3x8x8", "image:1x3xx8", "image:1x3x8x8,image:2x3x8x8"])
def test_a_shape_that_cant_be_understood_is_a_usage_error(text: str, mnnx_command, classifier: Path) -> None:
    result = mnnx_command("convert", classifier, classifier.with_suffix(".mnnx"), "--input-shape", text)
    assert (result.exit_code, "--input-shape" in result.stderr) == (2, True)


def test_a_shape_that_doesnt_fit_is_an_error(mnnx_command, classifier: Path) -> None:
    result = mnnx_command("convert", classifier, classifier.with_suffix(".mnnx"), "--input-shape", "picture:1x3x8x8")
    assert (result.exit_code, "its inputs are 'image' [N, 3, H, W]" in result.stderr) == (1, True)


def test_passes_are_listed(mnnx_command) -> None:
    result = mnnx_command("convert", "--list-passes")
    assert result.exit_code == 0
    assert "epilogue-fusion" in result.stdout


def test_a_pass_is_disabled_dumped_and_explained(mnnx_command, classifier: Path) -> None:
    options = ("--disable-pass", "epilogue-fusion", "--dump-pass", classifier.parent / "dump", "--explain", "active")
    result = mnnx_command("convert", classifier, classifier.with_suffix(".mnnx"), *options)
    assert "epilogue-fusion:\n  it doesn't run: it is disabled" in result.stdout
    assert "ops      5 → 5" in result.stdout
    assert "features" in (classifier.parent / "dump" / "00-import.txt").read_text()
    assert mnnx_command("convert", classifier, classifier.with_suffix(".mnnx"), "--disable-pass", "fusion").exit_code == 1


SMALL = '<ir_version: 8, opset_import: ["": 17]> g (float[N, 3] x) => (float[N, 3] y) { s = Exp(x) y = Add(s, x) }'


def test_verify_compares_the_file_that_was_written(mnnx_command, saved, tmp_path: Path) -> None:
    target = tmp_path / "small.mnnx"
    result = mnnx_command("convert", saved(SMALL), target, "--verify")
    assert result.exit_code == 0
    assert "all outputs agree" in result.stdout
    assert mnnx_command("convert", saved(SMALL), target, "--verify", "--quiet").output == ""
    report = json.loads(mnnx_command("convert", saved(SMALL), target, "--verify", "--json").stdout)
    assert (report["verification"]["equal"], report["level"]) == (True, 2)


def test_a_conversion_that_isnt_right_has_the_exit_status_1(mnnx_command, saved, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(IMPORTERS, ("", "Add"), lambda node, *inputs: Sub())
    result = mnnx_command("convert", saved(SMALL), tmp_path / "small.mnnx", "--verify", "--quiet")
    assert result.exit_code == 1
    assert "the first wrong op, without optimization, makes 'y', made by the Add node" in result.stdout


def test_verify_with_open_dims_says_how_to(mnnx_command, classifier: Path, tmp_path: Path) -> None:
    result = mnnx_command("convert", classifier, tmp_path / "c.mnnx", "--verify")
    assert result.exit_code == 1
    assert "c.mnnx is written, but not verified: the input 'image' has open dims" in result.stderr
    assert "\ndynamic  image [N, 3, H, W]\n" in result.stdout
    assert "--shape image=SIZE,3,SIZE,SIZE" in result.stderr


@pytest.mark.parametrize("text", ["image:-1x3x8x8", "image:-5x3x8x8"])
def test_negative_sizes_are_a_usage_error(text: str, mnnx_command, classifier: Path) -> None:
    result = mnnx_command("convert", classifier, classifier.with_suffix(".mnnx"), "--input-shape", text)
    assert (result.exit_code, "is no size of a dim; ? leaves it open" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    "options", [("--dim", "N=3", "--dim", "N=4"), ("--input-shape", "image:1x3x8x8", "--input-shape", "image:?x3x8x8")]
)
def test_two_values_for_one_name_are_a_usage_error(options: tuple[str, ...], mnnx_command, classifier: Path) -> None:
    result = mnnx_command("convert", classifier, classifier.with_suffix(".mnnx"), *options)
    assert (result.exit_code, "is given twice" in result.stderr) == (2, True)


def test_a_size_that_no_model_can_hold_is_named(mnnx_command, classifier: Path) -> None:
    result = mnnx_command("convert", classifier, classifier.with_suffix(".mnnx"), "--dim", "N=99999999999999999999")
    assert result.exit_code == 1
    assert "the dim 'N' must be a whole number from 1 to 2**63 - 1, " in result.stderr
    assert "not 99999999999999999999\n" in result.stderr


def test_two_ways_to_store_weights_are_a_usage_error(mnnx_command, classifier: Path) -> None:
    target = classifier.with_suffix(".mnnx")
    result = mnnx_command("convert", classifier, target, "--weights", "bfloat16", "--fp16")
    assert (result.exit_code, "--fp16 and --weights bfloat16 contradict each other" in result.stderr) == (2, True)
    assert mnnx_command("convert", classifier, target, "--fp16", "--weights", "float16").exit_code == 0


@pytest.mark.parametrize("order", [("--list-passes", "--json"), ("--json", "--list-passes")])
def test_passes_are_listed_as_json(mnnx_command, order: tuple[str, str]) -> None:
    rows = json.loads(mnnx_command("convert", *order).stdout)
    when = {row["name"]: row["when"] for row in rows}
    assert (when["dead-code"], when["epilogue-fusion"]) == ("at every level", "from level 2 on")
    assert all(row.keys() == {"name", "level", "when", "description"} for row in rows)


def test_all_that_runs_is_listed(mnnx_command, classifier: Path) -> None:
    listed = {row["name"]: row["when"] for row in json.loads(mnnx_command("convert", "--list-passes", "--json").stdout)}
    result = mnnx_command("convert", classifier, classifier.with_suffix(".mnnx"), "--level", 3, "--fp16", "--json")
    assert {row["name"] for row in json.loads(result.stdout)["passes"]} == listed.keys()
    assert "--fp16" in listed["half-weights"]


def test_half_weights_are_turned_off_by_leaving_the_option_out(mnnx_command, classifier: Path) -> None:
    result = mnnx_command("convert", classifier, classifier.with_suffix(".mnnx"), "--fp16", "--disable-pass", "half-weights")
    assert (result.exit_code, "leave weights= (--weights, --fp16) out" in result.stderr) == (1, True)


def test_a_model_that_cant_be_verified_is_written_and_the_error_says_so(mnnx_command, saved, tmp_path: Path) -> None:
    source = saved('<ir_version: 8, opset_import: ["": 17]> g (float[2] x, int64[1] s) => (float[N] y) { y = Reshape(x, s) }')
    result = mnnx_command("convert", source, tmp_path / "m.mnnx", "--verify")
    assert result.exit_code == 1
    assert f"{tmp_path / 'm.mnnx'} is written, but not verified: op 'Reshape_0'" in result.stderr
    assert f"mnnx verify {source} takes inputs (-i) and shapes" in result.stderr
    assert (tmp_path / "m.mnnx").exists()
