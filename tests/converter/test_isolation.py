"""What ends or blocks a process ends only the child."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import onnx
import pytest

import mnnx
from mnnx.converter.isolation import Lost, run_apart

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")


def _fail() -> bytes:
    raise ValueError("no such shape")


def test_result_comes_back_whole() -> None:
    data = bytes(range(256)) * 40_000
    assert run_apart(lambda: data, 30, 1 << 30) == data


@pytest.mark.parametrize(
    ("function", "message", "died"),
    [
        (_fail, "no such shape", False),
        (os.abort, r"ended the process \(SIGABRT\)", True),
        (lambda: os._exit(0), r"ended the process \(no answer\)", True),
        (lambda: bytes(8 << 30), "MemoryError", False),
    ],
    ids=["raises", "aborts", "exits", "takes too much memory"],
)
def test_what_became_of_the_child_is_told(function, message: str, died: bool) -> None:
    with pytest.raises(Lost, match=message) as lost:
        run_apart(function, 30, 1 << 30)
    assert lost.value.died is died


def test_child_that_never_answers_is_ended() -> None:
    with pytest.raises(Lost, match=r"more than 0\.2 s"):
        run_apart(lambda: time.sleep(3600), 0.2, 1 << 30)


def test_model_that_aborts_the_inference_of_onnx_does_not_end_the_process(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = """<ir_version: 9, opset_import: ["" : 18]>
    agraph (float[1,1,2,2] x) => (float[a,b,c,d] z)
    <int64[1] start = {5}, int64[1] end = {-9}, int64[1] axis = {2}, int64[1] step = {-1}>
    { y = Conv(x, w) z = Slice(y, start, end, axis, step) }"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((1, 1, 5, 5), np.float32), "w"))
    mnnx.convert(model, tmp_path / "m.mnnx")
    assert "can't infer the shapes of this model: it ended the process" in caplog.text
    with pytest.raises(mnnx.MnnxError, match="Conv"):
        mnnx.Interpreter.from_file(tmp_path / "m.mnnx").create_session()


def test_model_of_the_caller_stays_as_it_is(tmp_path: Path) -> None:
    header = '<ir_version: 9, opset_import: ["" : 18]>'
    model = onnx.parser.parse_model(header + "agraph (float[2] x) => (float[2] z) { y = Exp(x) z = Neg(y) }")
    before = model.SerializeToString()
    mnnx.convert(model, tmp_path / "m.mnnx")
    assert model.SerializeToString() == before
