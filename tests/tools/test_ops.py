"""`mnnx ops`, and the page that is made of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import mnnx
from mnnx.tools.ops import onnx_ops


def test_rows_say_how_an_op_runs(mnnx_command) -> None:
    (row,) = json.loads(mnnx_command("ops", "conv", "--json").stdout)
    assert row == {
        "name": "Conv",
        "op": "Conv",
        "since": [1, 11, 22],
        "support": "yes",
        "backends": dict.fromkeys(("cpu", "opencl", "vulkan"), "native"),
    }


def test_ops_expanded_from_functions_count_as_supported() -> None:
    rows = {row["name"]: row for row in onnx_ops()}
    assert rows["SequenceMap"]["support"] == "function"
    assert rows["SequenceMap"]["backends"] == dict.fromkeys(("cpu", "opencl", "vulkan"), "")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Concat", "native (raster)"),
        ("Transpose", "native (raster)"),
        ("Reshape", "native (raster)"),
        ("Gather", "native"),
        ("TopK", "numpy"),
    ],
)
def test_movement_of_data_counts_as_native(name: str, kind: str) -> None:
    assert {row["name"]: row for row in onnx_ops()}[name]["backends"]["cpu"] == kind


def test_ops_of_other_domains_that_are_written_as_those_of_onnx_run_like_them() -> None:
    rows = {row["name"]: row for row in onnx_ops()}
    assert rows["com.microsoft::GatherND"]["backends"] == rows["GatherND"]["backends"]
    assert rows["GatherND"]["backends"]["cpu"] == "numpy"
    assert rows["com.microsoft::Inverse"]["backends"]["cpu"] == "numpy"
    assert rows["com.microsoft::BiasAdd"]["backends"]["cpu"] == ""


@pytest.mark.parametrize(
    ("options", "summary"),
    [
        (["conv"], "1 of 1 ONNX ops are supported"),
        (["com.microsoft::inverse"], "1 op outside ONNX (or no longer in it)"),
        (["conv", "--missing"], "no ops"),
    ],
)
def test_the_summary_counts_what_is_listed(mnnx_command, options: list[str], summary: str) -> None:
    assert mnnx_command("ops", *options).stdout.splitlines()[0] == summary


def test_missing_lists_only_what_is_not_supported(mnnx_command) -> None:
    rows = json.loads(mnnx_command("ops", "--missing", "--json").stdout)
    assert all(row["support"] == "" for row in rows)


def test_a_name_that_onnx_doesnt_have_is_an_error(mnnx_command) -> None:
    result = mnnx_command("ops", "Wobble")
    assert result.exit_code == 1
    assert "ONNX has no op Wobble (" in result.stderr


def test_the_page_in_docs_is_up_to_date(mnnx_command) -> None:
    page = Path(mnnx.__file__).parent / "docs" / "operators.md"
    assert page.read_text() == mnnx_command("ops", "--markdown").stdout, "run: make docs"


def test_two_forms_at_once_are_a_usage_error(mnnx_command) -> None:
    assert mnnx_command("ops", "--json", "--markdown").exit_code == 2
