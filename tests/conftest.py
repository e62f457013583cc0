"""Fixtures for all tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

import mnnx


@pytest.fixture
def session_of(tmp_path: Path) -> Callable[..., mnnx.Session]:
    """Converts an onnx.ModelProto (or text in ONNX's syntax) and opens a session on it."""

    def make(model: onnx.ModelProto | str, level: int = 2, **config) -> mnnx.Session:
        proto = onnx.parser.parse_model(model) if isinstance(model, str) else model
        path = tmp_path / "model.mnnx"
        mnnx.convert(proto, path, level=level)
        return mnnx.Interpreter.from_file(path).create_session(mnnx.ScheduleConfig(**config))

    return make
