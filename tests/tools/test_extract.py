"""`mnnx extract`."""

from __future__ import annotations

from pathlib import Path

import pytest

import mnnx


def test_writes_the_part_and_says_what_it_is(mnnx_command, classifier: Path, tmp_path: Path) -> None:
    target = tmp_path / "head.mnnx"
    result = mnnx_command("extract", classifier, target, "--inputs", "pooled", "--outputs", "scores,flat")
    assert result.exit_code == 0
    assert "input   pooled float32[N, 4, 1, 1]" in result.stdout
    session = mnnx.Interpreter.from_file(target).create_session()
    assert (list(session.inputs), list(session.outputs)) == (["pooled"], ["scores", "flat"])


def test_a_tensor_that_isnt_there_is_named(mnnx_command, classifier: Path, tmp_path: Path) -> None:
    result = mnnx_command("extract", classifier, tmp_path / "head.mnnx", "--inputs", "pool")
    assert result.exit_code == 1
    assert "the model has no tensor 'pool'; there are 'pooled'" in result.stderr


@pytest.mark.parametrize("given", [["scores,flat"], ["scores", "flat"]])
def test_several_names_stand_in_one_option_or_in_several(mnnx_command, classifier: Path, tmp_path: Path, given: list[str]) -> None:
    options = [word for text in given for word in ("--outputs", text)]
    assert mnnx_command("extract", classifier, tmp_path / "head.mnnx", *options).exit_code == 0
    assert list(mnnx.Interpreter.from_file(tmp_path / "head.mnnx").create_session().outputs) == ["scores", "flat"]


@pytest.mark.parametrize("options", [("--dim", "N=2", "--dim", "H=8", "--dim", "W=6"), ("--input-shape", "image:2x3x8x6")])
def test_shapes_are_fixed_as_convert_does(mnnx_command, classifier: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    result = mnnx_command("extract", classifier, tmp_path / "head.mnnx", "--outputs", "pooled", *options)
    assert "input   image float32[2, 3, 8, 6]" in result.stdout
