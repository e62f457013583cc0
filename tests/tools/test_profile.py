"""`mnnx profile`: every op of a run with its time and rates, as a table, as JSON and as a trace."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from mnnx.backends.cpu.peak import measure
from mnnx.tools.profile import Timeline

SHAPE = ("--shape", "image=1,3,8,8", "--seconds", "0")


def test_every_op_has_a_time_and_rates(mnnx_command, classifier: Path) -> None:
    result = mnnx_command("profile", classifier, *SHAPE, "--json")
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    ops = {op["type"]: op for op in report["ops"]}
    assert {"mnnx::FusedConv", "GlobalAveragePool", "Softmax"} <= ops.keys()
    convolution = ops["mnnx::FusedConv"]
    assert convolution["flops"] == 2 * 4 * 64 * 27
    assert convolution["bytes"] == 4 * (3 * 64 + 4 * 27 + 4 + 4 * 64)
    assert convolution["gflops"] == pytest.approx(convolution["flops"] / convolution["ms"] / 1e6)
    assert sum(op["share"] for op in report["ops"]) == pytest.approx(1)
    assert report["ops_ms"] == pytest.approx(sum(op["ms"] for op in report["ops"]))
    assert min(report["peak"].values()) > 0.1
    assert (report["backend"], report["threads"], report["runs"]) == ("cpu", 1, 3)


def test_tables_and_trace(mnnx_command, classifier: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    result = mnnx_command("profile", classifier, *SHAPE, "--threads", "2", "--top", "1", "--trace", trace)
    assert result.exit_code == 0, result.stderr
    assert "on cpu, 2 threads: run" in result.stdout
    assert "peak, measured" in result.stdout
    events = json.loads(trace.read_text())["traceEvents"]
    assert len(events) >= 3
    assert {event["ph"] for event in events} == {"X"}
    assert all(a["ts"] + a["dur"] <= b["ts"] for a, b in pairwise(events))


def test_ops_of_loops_and_ops_on_the_host_are_seen(mnnx_command, saved) -> None:
    model = saved(
        '<ir_version: 8, opset_import: ["": 17]> g (float[9] x) => (int64[1, N] y, float[9] z) { y = NonZero (x) z = Sigmoid (x) }'
    )
    report = json.loads(mnnx_command("profile", model, "--seconds", "0", "--json").stdout)
    assert {op["type"] for op in report["ops"]} == {"NonZero", "Sigmoid"}


def test_times_are_medians_over_runs_of_equal_length() -> None:
    timeline = Timeline()
    timeline.ops = [{"flops": 100, "bytes": 10}]
    timeline.runs = [[(0, 100)], [(0, 300)], [(0, 200)], [(0, 1), (1, 2)]]
    report = timeline.report({"gflops": 1.0, "gbytes_per_s": 1.0})
    assert (report["ops"][0]["ms"], report["ops"][0]["gflops"], report["ops"][0]["of_peak"]) == (2e-4, 0.5, 0.5)


@pytest.mark.parametrize("threads", [1, 2])
def test_peaks_are_measured_on_any_number_of_threads(threads: int) -> None:
    assert all(0 < value < float("inf") for value in measure(threads))


def test_a_tuned_session_is_profiled(mnnx_command, classifier: Path, tmp_path: Path) -> None:
    result = mnnx_command("profile", classifier, *SHAPE, "--tune", "--cache-file", tmp_path / "times.json")
    assert result.exit_code == 0, result.stderr
    assert (tmp_path / "times.json").exists()


def test_a_trace_never_overwrites_the_model(mnnx_command, classifier: Path) -> None:
    before = classifier.read_bytes()
    result = mnnx_command("profile", classifier, *SHAPE, "--trace", classifier)
    assert result.exit_code == 2
    assert "would overwrite the model" in result.stderr
    assert classifier.read_bytes() == before
