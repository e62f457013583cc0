"""Commands on models whose weights are stored in 16 bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

import mnnx
from tests.converter.test_half_weights import FEED, small_model


def test_packed_weights_ahead_of_time_are_found(mnnx_command, tmp_path: Path) -> None:
    path = tmp_path / "m.mnnx"
    mnnx.convert(small_model(), path, weights="float16")
    with mnnx.Interpreter.from_file(path) as interpreter:
        wanted = interpreter.create_session().run(FEED)
    result = mnnx_command("kernels", "build", path, "--dim", "N=3")
    assert result.exit_code == 0, result.output
    with mnnx.Interpreter.from_file(path) as interpreter:
        session = interpreter.create_session()
        got = session.run(FEED)
        found = [value for kept, value in session._loaded.weights.packed.values() if kept.dtype == np.float16]
        assert found
        assert all(not _owns(value) for value in found)
    for name in wanted:
        np.testing.assert_array_equal(got[name], wanted[name])


def _owns(value) -> bool:
    """Whether an array lies in memory of its own, not in a mapped file."""
    first = value[0] if isinstance(value, tuple) else value
    while isinstance(first.base, np.ndarray):
        first = first.base
    return first.base is None


def test_the_command_writes_halves(mnnx_command, tmp_path: Path) -> None:
    onnx.save(small_model(), tmp_path / "m.onnx")
    for option in (["--fp16"], ["--weights", "bfloat16"]):
        result = mnnx_command("convert", tmp_path / "m.onnx", tmp_path / "m.mnnx", *option, "--verify")
        assert result.exit_code == 0, result.output
        assert "half-weights 3" in result.stdout
