"""Random models give the same numbers at every level, and those of ONNX's reference implementation."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
import pytest
from hypothesis import HealthCheck, given, seed, settings

import mnnx
from mnnx.tools.comparison import compare
from tests.broken_models import broken
from tests.random_models import Case, models

COMMON = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}


def check(case: Case) -> None:
    with TemporaryDirectory(prefix="mnnx-") as folder:
        for level in range(4):
            path = Path(folder) / f"{level}.mnnx"
            mnnx.convert(case.model, path, level=level)
            with mnnx.Interpreter.from_file(path) as interpreter, interpreter.create_session() as session:
                got = session.run(case.feed)
            for name, wanted in case.outputs.items():
                row = compare(name, got[name], wanted, 1e-3, 1e-5)
                assert row["equal"], f"level {level}: {row}"


@settings(max_examples=100, derandomize=True, **COMMON)
@given(models())
def test_all_levels_agree(case: Case) -> None:
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_all_levels_agree_on_many(part: int) -> None:
    """2,000 models in all."""

    @seed(part)
    @settings(max_examples=250, **COMMON)
    @given(models())
    def run(case: Case) -> None:
        check(case)

    run()


def refuses(way: str, model: onnx.ModelProto) -> None:
    with TemporaryDirectory(prefix="mnnx-") as folder:
        with pytest.raises(mnnx.ConversionError):
            mnnx.convert(model, Path(folder) / "m.mnnx")
        assert not list(Path(folder).iterdir())


@settings(max_examples=150, derandomize=True, **COMMON)
@given(broken(models(most_nodes=6)))
def test_a_broken_model_is_refused(case: tuple[str, onnx.ModelProto]) -> None:
    refuses(*case)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_many_broken_models_are_refused(part: int) -> None:
    """2,000 models in all."""

    @seed(part)
    @settings(max_examples=500, **COMMON)
    @given(broken(models(most_nodes=6)))
    def run(case: tuple[str, onnx.ModelProto]) -> None:
        refuses(*case)

    run()
