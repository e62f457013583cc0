"""`mnnx benchmark`: rows for every engine, each from a process of its own where it says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mnnx import Interpreter, ScheduleConfig, Session

SHAPE = ("--shape", "image=1,3,8,8", "--seconds", "0.01")


def test_cold_and_warm_rows_of_every_engine(mnnx_command, classifier: Path) -> None:
    result = mnnx_command("benchmark", classifier, *SHAPE, "--threads", "1,2", "--inter-op-threads", "2", "--against-onnxruntime", "--json")
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    engines = {("mnnx", "cpu", 1), ("mnnx", "cpu", 2), ("onnxruntime", "cpu", 1), ("onnxruntime", "cpu", 2)}
    for kind in ("cold", "warm"):
        assert {(row["engine"], row["backend"], row["threads"]) for row in report[kind]} == engines
    for row in report["cold"]:
        assert row["total_ms"] >= row["import_ms"] + row["load_ms"]
        assert row["peak_mb"] > 5
    for row in report["warm"]:
        assert row["runs"] >= 1
        assert 0 < row["min_ms"] <= row["p50_ms"] <= row["p90_ms"] <= row["p99_ms"]


@pytest.mark.parametrize("command", [["run"], ["benchmark", "--no-cold", "--seconds", "0.01"]])
@pytest.mark.parametrize(("precision", "width"), [("high", 1), ("low", 3)])
def test_sessions_are_as_options_ask(mnnx_command, classifier: Path, command: list[str], precision: str, width: int, monkeypatch) -> None:
    asked, create = [], Interpreter.create_session

    def watched(self: Interpreter, config: ScheduleConfig | None = None) -> Session:
        asked.append(config and (config.backend_config.precision, config.inter_op_threads))
        return create(self, config)

    monkeypatch.setattr(Interpreter, "create_session", watched)
    result = mnnx_command(*command, classifier, *SHAPE[:2], "--precision", precision, "--inter-op-threads", width)
    assert result.exit_code == 0, result.stderr
    assert asked[-1] == (precision, width)


def test_tables(mnnx_command, classifier: Path) -> None:
    result = mnnx_command("benchmark", classifier, *SHAPE, "--no-cold")
    assert result.exit_code == 0, result.stderr
    assert "cold" not in result.stdout
    assert "p99 ms" in result.stdout


def test_onnxruntime_needs_the_onnx_file(mnnx_command) -> None:
    assert mnnx_command("benchmark", "model.mnnx", "--against-onnxruntime").exit_code == 2


def test_an_unknown_backend_is_an_error(mnnx_command, classifier: Path) -> None:
    result = mnnx_command("benchmark", classifier, *SHAPE, "--backends", "cpu,abacus", "--no-cold")
    assert result.exit_code == 1
    assert "abacus" in result.stderr


def test_all_sessions_are_tuned_first(mnnx_command, classifier: Path, tmp_path: Path) -> None:
    times = tmp_path / "times.json"
    result = mnnx_command("benchmark", classifier, *SHAPE, "--threads", "1,2", "--tune", "--cache-file", times, "--json")
    assert result.exit_code == 0, result.stderr
    assert len(json.loads(times.read_text())["devices"]) == 2
    assert len(json.loads(result.stdout)["warm"]) == 2


def test_tuning_without_a_cache_file_leaves_none(mnnx_command, classifier: Path, tmp_path: Path) -> None:
    assert mnnx_command("benchmark", classifier, *SHAPE, "--threads", "1", "--no-cold", "--tune").exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == [classifier.name]


@pytest.mark.parametrize("command", ["benchmark", "profile"])
@pytest.mark.parametrize("seconds", ["-1", "nan", "inf"])
def test_seconds_are_finite_and_not_negative(mnnx_command, classifier: Path, command: str, seconds: str) -> None:
    result = mnnx_command(command, classifier, "--seconds", seconds)
    assert (result.exit_code, "--seconds" in result.stderr) == (2, True)
