"""`mnnx verify`: it agrees where both sides do (test_bisection.py has what happens where they don't)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from mnnx.tools.comparison import compare, compare_form
from mnnx.tools.references import Reference

SHAPE = ("--shape", "image=1,3,8,8")


@pytest.mark.parametrize("reference", ["onnxruntime", "onnx"])
@pytest.mark.parametrize("level", [0, 2, 3])
def test_a_right_conversion_agrees(mnnx_command, classifier: Path, reference: str, level: int) -> None:
    result = mnnx_command("verify", classifier, *SHAPE, "--reference", reference, "--level", level)
    assert result.exit_code == 0, result.output
    assert "all outputs agree" in result.stdout


def test_json_has_the_errors_of_all_outputs(mnnx_command, classifier: Path) -> None:
    report = json.loads(mnnx_command("verify", classifier, *SHAPE, "--json").stdout)
    assert report["equal"] is True
    assert report["wrong_op"] is None
    assert report["wrong_pass"] is None
    (row,) = report["outputs"]
    assert row["name"] == "scores"
    assert 0 <= row["error"] <= row["allowed"]


def test_a_model_that_the_reference_cant_run_is_an_error(mnnx_command, saved) -> None:
    source = saved('<ir_version: 8, opset_import: ["": 17]> g (bfloat16[2] x) => (bfloat16[2] y) { y = Add(x, x) }')
    result = mnnx_command("verify", source, "--reference", "onnxruntime")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: onnxruntime can't run this model on these inputs: ")
    other = mnnx_command("verify", source)
    assert (other.exit_code, "mnnx against onnx's reference evaluator" in other.stdout) == (0, True)


def test_inputs_that_dont_fit_are_mnnx_errors(mnnx_command, saved) -> None:
    source = saved('<ir_version: 8, opset_import: ["": 17]> g (float[2] x, int64[1] s) => (float[A] y) { y = Reshape(x, s) }')
    assert mnnx_command("verify", source, "-i", "s=[2]").exit_code == 0
    result = mnnx_command("verify", source, "-i", "s=[3]")
    assert result.exit_code == 1
    assert "(Reshape) can't run on inputs" in result.stderr


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


@pytest.mark.parametrize("opset", [6, 7, 9, 13, 14])
def test_the_reference_evaluator_normalizes_for_inference(mnnx_command, saved, opset: int) -> None:
    source = saved(
        f"""<ir_version: 8, opset_import: ["": {opset}]> g (float[2, 3, 4] x) => (float[2, 3, 4] y)
        <float[3] s = {{1, 2, 3}}, float[3] b = {{0, 1, 2}}, float[3] m = {{5, 6, 7}}, float[3] v = {{9, 4, 1}}>
        {{ y = BatchNormalization(x, s, b, m, v) }}"""
    )
    result = mnnx_command("verify", source, "--reference", "onnx")
    assert result.exit_code == 0, result.output


def test_overflow_in_the_reference_evaluator_is_no_warning(mnnx_command, saved, recwarn) -> None:
    source = saved('<ir_version: 8, opset_import: ["": 17]> g (float[1] x) => (float[1] y) { y = Exp(x) }')
    result = mnnx_command("verify", source, "--reference", "onnx", "-i", "x=[1000]")
    assert (result.exit_code, result.stderr) == (0, "")
    assert not recwarn.list


def test_without_onnx_the_error_says_what_to_install(classifier: Path) -> None:
    script = "import sys; sys.modules['onnx'] = None; from mnnx.tools.main import main; main()"
    result = subprocess.run([sys.executable, "-c", script, "verify", str(classifier)], capture_output=True, text=True)
    assert result.returncode == 1
    assert "pip install 'mnnx[convert]'" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.fixture
def rounded_differently(monkeypatch: pytest.MonkeyPatch):
    """Lets the reference have one value one step higher wherever it quantizes."""
    run = Reference.run

    def other(self, feed, names=None):
        results = run(self, feed, names)
        for name, step in (("q", 1), ("y", 0.5)):
            if name in results:
                results[name] = np.array(results[name])
                results[name].flat[3] += results[name].dtype.type(step)
        return results

    monkeypatch.setattr(Reference, "run", other)


QUANTIZED = """<ir_version: 8, opset_import: ["": 17]> g (float[20, 20] x) => ({dtype}[20, 20] {output})
    <float s = {{0.5}}, uint8 z = {{100}}> {{ q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }}"""


def test_one_rounding_step_of_a_quantized_output_is_a_note(mnnx_command, saved, rounded_differently) -> None:
    result = mnnx_command("verify", saved(QUANTIZED.format(dtype="uint8", output="q")))
    assert result.exit_code == 0
    assert "one rounding step in 1 of 400 values" in result.stdout
    assert "all outputs agree, but for single rounding steps of quantized values" in result.stdout


def test_outputs_that_differ_through_a_rounding_step_say_so(mnnx_command, saved, rounded_differently) -> None:
    source = saved(QUANTIZED.format(dtype="float", output="y"))
    result = mnnx_command("verify", source, "--level", 0)
    assert result.exit_code == 1
    assert "the first tensor that differs is 'q', made by the QuantizeLinear node" in result.stdout
    assert "one rounding step in 1 of 400 values" in result.stdout
    assert "--rtol 0.5 would allow it" in result.stdout
    assert mnnx_command("verify", source, "--rtol", 0.5).exit_code == 0


@pytest.mark.parametrize(
    ("got", "wanted", "quantized", "equal"),
    [
        (np.uint8([255] * 200), np.uint8([254, *[255] * 199]), True, True),
        (np.uint8([255] * 200), np.uint8([254, *[255] * 199]), False, False),
        (np.uint8([255] * 200), np.uint8([0, *[255] * 199]), True, False),
        (np.int8([1] * 200), np.int8([*[2] * 3, *[1] * 197]), True, False),
        (np.int64([1] * 200), np.int64([2, *[1] * 199]), True, False),
        (np.array([1] * 200, ml_dtypes.int4), np.array([2, *[1] * 199], ml_dtypes.int4), True, True),
    ],
)
def test_quantized_values_may_be_one_step_off(got: np.ndarray, wanted: np.ndarray, quantized: bool, equal: bool) -> None:
    assert compare("x", got, wanted, 1e-3, 1e-5, quantized)["equal"] is equal


@pytest.mark.parametrize(
    ("maker", "got", "wanted", "steps"),
    [
        ("Cast", np.int32([-7] * 200), np.int32([-8, *[-7] * 199]), 1),
        ("Cast", np.int64([7] * 200), np.int64([9, *[7] * 199]), None),
        ("ArgMax", np.int64([7] * 200), np.int64([8, *[7] * 199]), None),
        ("Floor", np.float32([7] * 200), np.float32([8, *[7] * 199]), 1),
        ("Floor", np.float32([7] * 200), np.float32([8] * 200), None),
        ("Cast", np.float32([7] * 200), np.float32([8, *[7] * 199]), None),
        ("Relu", np.float32([7] * 200), np.float32([8, *[7] * 199]), None),
    ],
)
def test_whole_numbers_that_an_op_rounded_to_may_be_one_step_off(maker: str, got, wanted, steps: int | None) -> None:
    row = compare("x", got, wanted, 1e-3, 1e-5, maker=maker)
    assert (row["equal"], row["rounding_steps"]) == (False, steps)


def test_a_rounding_step_of_a_cast_is_told(mnnx_command, saved, rounded_differently) -> None:
    source = saved(
        """<ir_version: 8, opset_import: ["": 17]> g (float[20, 20] x) => (float[20, 20] y)
        <float s = {0.5}> { d = Div(x, s) q = Cast<to = 6>(d) y = DequantizeLinear(q, s) }"""
    )
    result = mnnx_command("verify", source, "--level", 0)
    assert result.exit_code == 1
    assert "the first tensor that differs is 'q', made by the Cast node" in result.stdout
    assert "a value on the edge between two quantized ones may be rounded either way" in result.stdout
    assert " would allow it" in result.stdout


@pytest.mark.parametrize("option", ["--rtol", "--atol"])
@pytest.mark.parametrize("value", ["-1", "nan", "inf"])
def test_bounds_are_finite_and_not_negative(mnnx_command, classifier: Path, option: str, value: str) -> None:
    result = mnnx_command("verify", classifier, option, value)
    assert (result.exit_code, option in result.stderr) == (2, True)


def test_random_numbers_arent_compared(mnnx_command, saved) -> None:
    source = saved(
        """<ir_version: 8, opset_import: ["": 17]> g (float[2, 3] x, bool c) => (float[2, 3] y, float[2, 3] z, float[2, 3] w)
        { r = RandomUniformLike(x) y = Add(x, r) z = Neg(x)
          w = If(c) <then_branch = t () => (float[2, 3] p) { p = RandomNormalLike(x) },
                     else_branch = e () => (float[2, 3] q) { q = Abs(x) }> }"""
    )
    result = mnnx_command("verify", source, "--json")
    assert result.exit_code == 0
    rows = {row["name"]: row for row in json.loads(result.stdout)["outputs"]}
    assert [rows[name]["note"] for name in "ywz"] == ["depends on random numbers: dtype and shape are compared"] * 2 + [""]


@pytest.mark.parametrize(
    ("got", "wanted", "equal"),
    [
        (np.zeros(2, np.float32), np.ones(2, np.float32), True),
        (np.zeros(3, np.float32), np.ones(2, np.float32), False),
        (np.zeros(2, np.float64), np.ones(2, np.float32), False),
        (np.zeros((), np.float32), np.float32(1), True),
        ([np.zeros(2)], [np.ones(2)], True),
        (None, np.ones(2), False),
    ],
)
def test_random_values_are_compared_by_dtype_and_shape(got: object, wanted: object, equal: bool) -> None:
    assert compare_form("y", got, wanted)["equal"] is equal
