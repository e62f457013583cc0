"""`mnnx inspect`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import onnx
import pytest

import mnnx


def test_says_what_a_model_holds(mnnx_command, classifier: Path) -> None:
    report = json.loads(mnnx_command("inspect", classifier, "--json").stdout)
    assert report["inputs"] == [{"name": "image", "kind": "tensor", "dtype": "float32", "shape": ["N", 3, "H", "W"]}]
    assert [output["name"] for output in report["outputs"]] == ["scores"]
    assert report["ops"]["mnnx::FusedConv"] == 1
    assert report["opset"] == 17
    assert report["parameters"] == 4 * 3 * 3 * 3 + 4
    assert report["weight_bytes"] == 4 * report["parameters"]
    assert report["metadata"] == {"labels": "cat\ndog\nbird\nfish"}


def test_open_shapes_leave_the_plan_open(mnnx_command, classifier: Path) -> None:
    assert json.loads(mnnx_command("inspect", classifier, "--json").stdout)["plan"].keys() == {"open"}
    assert "--shape and --dim settle them" in mnnx_command("inspect", classifier).stdout


def test_given_shapes_are_planned(mnnx_command, classifier: Path) -> None:
    plan = json.loads(mnnx_command("inspect", classifier, "--shape", "image=2,3,8,6", "--json").stdout)["plan"]
    assert plan["shapes"] == {"image": [2, 3, 8, 6]}
    assert plan["outputs"] == {"scores": [2, 4]}
    assert plan["flops"] == 2 * (2 * 4 * 8 * 6) * (3 * 3 * 3)
    assert plan["arena_bytes"] >= plan["arena_lower_bound_bytes"] >= 4 * 2 * 3 * 8 * 6
    assert plan["backends"] == {"cpu": plan["units"]}


def test_a_plan_that_ends_where_shapes_depend_on_data_says_so(mnnx_command, saved, classifier: Path) -> None:
    source = saved(
        '<ir_version: 8, opset_import: ["": 17]> g (float[9] x) => (float[1, m] y) { i = NonZero(x) f = Cast<to = 1>(i) y = Exp(f) }'
    )
    assert json.loads(mnnx_command("inspect", source, "--json").stdout)["plan"]["complete"] is False
    assert "up to the first op whose result's shape depends on data" in mnnx_command("inspect", source).stdout
    whole = mnnx_command("inspect", classifier, "--dim", "H=8", "--dim", "W=8")
    assert "depends on data" not in whole.stdout


def test_tables_show_the_same(mnnx_command, classifier: Path) -> None:
    text = mnnx_command("inspect", classifier, "--dim", "H=8", "--dim", "W=8").stdout
    assert "image [1, 3, 8, 8]" in text
    assert "cat⏎dog⏎bird⏎fish" in text
    assert "112 parameters, 448 B (float32 448 B)" in text


def test_nodes_are_listed_in_order(mnnx_command, classifier: Path) -> None:
    lines = mnnx_command("inspect", classifier, "--nodes").stdout.splitlines()
    ops = [line.split(" = ")[1].split("(")[0] for line in lines if " = " in line]
    assert ops == ["mnnx::FusedConv", "GlobalAveragePool", "Flatten", "Softmax"]


def test_a_shape_that_breaks_a_rule_is_told(mnnx_command, saved) -> None:
    source = saved('<ir_version: 8, opset_import: ["": 17]> g (float[A, B] x, float[D, C] y) => (float[A, C] z) { z = MatMul(x, y) }')
    result = mnnx_command("inspect", source, "--shape", "x=2,3", "--shape", "y=4,5", "--json")
    assert (result.exit_code, result.stdout, "MatMul" in result.stderr) == (1, "", True)


def test_a_model_that_can_not_be_planned_is_described(mnnx_command, saved, monkeypatch: pytest.MonkeyPatch) -> None:
    source = saved('<ir_version: 8, opset_import: ["": 17]> g (float[1000, 1000] x) => (float[1000, 1000] y) { y = Exp(x) }')
    monkeypatch.setenv("MNNX_MAX_TENSOR_MB", "1")
    result = mnnx_command("inspect", source, "--json")
    assert result.exit_code == 0
    assert "MNNX_MAX_TENSOR_MB" in json.loads(result.stdout)["plan"]["open"]


def test_two_forms_at_once_are_a_usage_error(mnnx_command, classifier: Path) -> None:
    result = mnnx_command("inspect", classifier, "--json", "--text")
    assert (result.exit_code, "--json and --text can't be given together" in result.stderr) == (2, True)


@pytest.mark.parametrize("name", ["missing.mnnx", "missing.onnx"])
def test_a_missing_file_is_an_error(mnnx_command, name: str) -> None:
    result = mnnx_command("inspect", name)
    assert result.exit_code == 1
    assert name in result.stderr


def test_text_has_one_line_for_each_value_and_op(mnnx_command, saved, tmp_path: Path) -> None:
    weights = ", ".join(map(str, range(12)))
    source = saved(
        f"""<ir_version: 8, opset_import: ["": 17]> small (float[N, 3] x) => (float[N, 4] y)
        <float[3, 4] w = {{{weights}}}, float one = {{1}}> {{ p = MatMul(x, w) y = Add(p, one) }}"""
    )
    mnnx.convert(source, tmp_path / "m.mnnx", level=0)
    text = mnnx_command("inspect", tmp_path / "m.mnnx", "--text").stdout
    lines = text.splitlines()
    assert lines[:2] == ["graph small", "input   x: float32[N, 3]"]
    assert "constant one: float32[] = 1.0" in lines
    assert any(re.fullmatch(r"constant w: float32\[3, 4\] #[0-9a-f]{8}", line) for line in lines)
    assert lines[-3:] == [
        "p: float32[N, 4] = MatMul(x, w)  # node MatMul_0",
        "y: float32[N, 4] = Add(p, one)  # node Add_1",
        "output  y",
    ]
    assert mnnx_command("inspect", tmp_path / "m.mnnx", "--text").stdout == text


def test_text_shows_the_ranges_of_dims(mnnx_command, classifier: Path, tmp_path: Path) -> None:
    mnnx.convert(classifier, tmp_path / "m.mnnx", dims={"N": (1, 8), "H": (32, None)})
    lines = mnnx_command("inspect", tmp_path / "m.mnnx", "--text").stdout.splitlines()
    assert lines[1:4] == ["dim     N: 1..8", "dim     H: 32..", "input   image: float32[N, 3, H, W]"]


def test_text_shows_subgraphs_behind_their_node(mnnx_command, saved) -> None:
    source = saved(
        """<ir_version: 8, opset_import: ["": 17]> g (float[2] x, bool c) => (float[2] y)
        { y = If (c) <then_branch = t () => (float[2] u) { u = Neg(x) }, else_branch = e () => (float[2] v) { v = Exp(x) }> }"""
    )
    lines = mnnx_command("inspect", source, "--text").stdout.splitlines()
    place = next(i for i, line in enumerate(lines) if "= If(" in line)
    assert lines[place + 1].strip() == "then_branch:"
    assert [line.strip().split(" = ")[-1].split("(")[0] for line in lines if " = " in line] == ["If", "Neg", "Exp"]
    assert all(line.startswith("    ") for line in lines[place + 1 : place + 11])


def test_msgpack_holds_the_same_as_json(mnnx_command, classifier: Path) -> None:
    msgpack = pytest.importorskip("msgpack")
    packed = mnnx_command("inspect", classifier, "--msgpack", "--nodes").stdout_bytes
    assert msgpack.unpackb(packed) == json.loads(mnnx_command("inspect", classifier, "--json", "--nodes").stdout)


def test_without_msgpack_the_error_says_what_to_install(mnnx_command, classifier: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "msgpack", None)
    result = mnnx_command("inspect", classifier, "--msgpack")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "pip install 'mnnx[msgpack]'" in result.stderr


def test_names_stand_in_one_line_and_disturb_no_terminal(mnnx_command, tmp_path: Path) -> None:
    name = "two\nlines\x1b[31m[bold]é"
    nodes = [onnx.helper.make_node("Exp", ["x"], [name], name="node\r"), onnx.helper.make_node("Neg", [name], ["y"])]
    infos = [[onnx.helper.make_tensor_value_info(n, 1, ["N\nM"])] for n in "xy"]
    infos[1].append(onnx.helper.make_tensor_value_info(name, 1, ["N\nM"]))
    graph = onnx.helper.make_graph(nodes, "a\nb", *infos)
    opsets = [onnx.helper.make_opsetid("", 17)]
    mnnx.convert(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "m.mnnx")
    lines = mnnx_command("inspect", tmp_path / "m.mnnx", "--text").stdout.split("\n")
    escaped = r"two\nlines\x1b[31m[bold]é"
    assert lines[:3] == [r"graph a\nb", r"input   x: float32[N\nM]", rf"{escaped}: float32[N\nM] = Exp(x)  # node node\r"]
    for option in ((), ("--nodes",)):
        text = mnnx_command("inspect", tmp_path / "m.mnnx", *option).stdout
        assert escaped in text
        assert "\x1b" not in text
    assert json.loads(mnnx_command("inspect", tmp_path / "m.mnnx", "--json").stdout)["outputs"][1]["name"] == name
