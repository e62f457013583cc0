"""`mnnx verify`: it agrees where both sides do, and finds the first tensor that differs."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest

import mnnx
from mnnx.tools.references import Reference, ReferenceFailed
from mnnx.tools.verify import compare

SHAPE = ("--shape", "image=1,3,8,8")


@pytest.fixture
def miscompiled(monkeypatch: pytest.MonkeyPatch):
    """Lets the conversion see another op type than the model has."""

    def change(node: int, op_type: str) -> None:
        convert = mnnx.convert

        def wrong(source, target, **options):
            model = onnx.load(source)
            model.graph.node[node].op_type = op_type
            return convert(model, target, **options)

        monkeypatch.setattr(mnnx, "convert", wrong)

    return change


@pytest.mark.parametrize("reference", ["onnxruntime", "onnx"])
@pytest.mark.parametrize("level", [0, 2, 3])
def test_a_right_conversion_agrees(mnnx_command, classifier: Path, reference: str, level: int) -> None:
    result = mnnx_command("verify", classifier, *SHAPE, "--reference", reference, "--level", level)
    assert result.exit_code == 0, result.output
    assert "all outputs agree" in result.stdout


def test_json_has_the_errors_of_all_outputs(mnnx_command, classifier: Path) -> None:
    report = json.loads(mnnx_command("verify", classifier, *SHAPE, "--json").stdout)
    assert report["equal"] is True
    assert report["first_difference"] is None
    (row,) = report["outputs"]
    assert row["name"] == "scores"
    assert 0 <= row["error"] <= row["allowed"]


@pytest.mark.parametrize("reference", ["onnxruntime", "onnx"])
def test_the_first_tensor_that_differs_is_named(mnnx_command, classifier: Path, miscompiled, reference: str) -> None:
    miscompiled(2, "GlobalMaxPool")
    result = mnnx_command("verify", classifier, *SHAPE, "--level", 1, "--reference", reference)
    assert result.exit_code == 1
    assert "the first tensor that differs is 'pooled', made by the GlobalAveragePool node" in result.stdout


def test_tensors_that_were_fused_away_are_passed_over(mnnx_command, classifier: Path, miscompiled) -> None:
    miscompiled(1, "Sigmoid")
    first = [
        json.loads(mnnx_command("verify", classifier, *SHAPE, "--level", level, "--json").stdout)["first_difference"] for level in (0, 2)
    ]
    assert first[0]["name"] == "active"
    assert first[1]["name"] == "active"  # the fused op's result; `features` is gone
    assert first[1]["compared"] < first[0]["compared"] == first[0]["tensors"]


def test_a_model_that_the_reference_cant_run_is_an_error(mnnx_command, saved) -> None:
    source = saved('<ir_version: 8, opset_import: ["": 17]> g (bfloat16[2] x) => (bfloat16[2] y) { y = Add(x, x) }')
    result = mnnx_command("verify", source, "--reference", "onnxruntime")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: onnxruntime can't run this model on these inputs: ")


def test_inputs_that_dont_fit_are_mnnx_errors(mnnx_command, saved) -> None:
    source = saved('<ir_version: 8, opset_import: ["": 17]> g (float[2] x, int64[1] s) => (float[A] y) { y = Reshape(x, s) }')
    assert mnnx_command("verify", source, "-i", "s=[2]").exit_code == 0
    result = mnnx_command("verify", source, "-i", "s=[3]")
    assert result.exit_code == 1
    assert "(Reshape) can't run on inputs" in result.stderr


def test_a_difference_is_told_even_where_it_cant_be_located(mnnx_command, classifier: Path, miscompiled, monkeypatch) -> None:
    run = Reference.run

    def only_outputs(self, feed, names=None):
        if names is not None:
            raise ReferenceFailed("not today")
        return run(self, feed)

    monkeypatch.setattr(Reference, "run", only_outputs)
    miscompiled(1, "Sigmoid")
    result = mnnx_command("verify", classifier, *SHAPE)
    assert result.exit_code == 1
    assert "DIFFERS" in result.stdout
    assert "where that begins can't be seen: not today" in result.stdout


@pytest.mark.parametrize(
    ("got", "wanted", "equal"),
    [
        (np.float32([1, 2]), np.float32([1, 2.0001]), True),
        (np.float32([1, 2]), np.float32([1, 2.1]), False),
        (np.float32([1, np.nan, np.inf]), np.float32([1, np.nan, np.inf]), True),
        (np.float32([1, np.nan]), np.float32([1, 2]), False),
        (np.float32([1, -np.inf]), np.float32([1, np.inf]), False),
        (np.float32([1, 2]), np.float64([1, 2]), False),
        (np.float32([1, 2]), np.float32([[1, 2]]), False),
        (np.float32([]), np.float32([]), True),
        (np.float32([]), np.float32([[]]), False),
        (np.int64([1, 2]), np.int64([1, 3]), False),
        (np.array([True]), np.array([True]), True),
        (np.array(3.0), np.float64(3), True),
        (np.complex64([1 + 1j]), np.complex64([1 - 1j]), False),
        (np.array([1, 2], ml_dtypes.bfloat16), np.array([1, 2], ml_dtypes.bfloat16), True),
        (np.array(["a"], object), np.array(["a"]), True),
        (np.array(["a"], object), np.array(["b"], object), False),
        ([np.float32([1])], [np.float32([1])], True),
        ([np.float32([1])], [np.float32([2])], False),
        ([np.float32([1])], [], False),
        ([{"a": 0.5}], [{"a": 0.5}], True),
        ([{"a": 0.5}], [{"b": 0.5}], False),
        ([{1: 0.5}], [{1: 0.7}], False),
        (None, None, True),
        (np.float32([1]), None, False),
    ],
)
def test_values_are_compared_by_kind(got: object, wanted: object, equal: bool) -> None:
    assert compare("x", got, wanted, 1e-3, 1e-5)["equal"] is equal
