"""Choices by measured times, and the file that keeps them, for a device that is made up."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from itertools import count
from types import SimpleNamespace

import pytest

from mnnx.backends import tuning
from mnnx.backends.tuning import Tuner
from mnnx.backends.tuning_file import Device, TuningFile
from mnnx.errors import BackendError

DEVICE = Device("abacus, 2 threads", "state 1")
BACKEND = SimpleNamespace(tuning_device=DEVICE, kernels_compiled=0)
TIMES = {"slow": 3.0, "fast": 1.0, "middle": 2.0}


def timed(name):
    return lambda: TIMES[name]


def unexpected(name):
    raise AssertionError(f"{name} was measured")


def content(path):
    return json.loads(path.read_text())


@pytest.fixture
def path(tmp_path):
    return tmp_path / "times.json"


@pytest.fixture
def warnings(caplog):
    """The warnings in the log, as a function."""
    return lambda: [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


# ---- choosing
def test_the_fastest_candidate_is_chosen_and_measured_once():
    tuner = Tuner(seconds=10)
    assert tuner.choose(BACKEND, "sum", list(TIMES), timed).name == "fast"
    assert tuner.choose(BACKEND, "sum", list(TIMES), unexpected).name == "fast"
    assert (tuner.measured, tuner.from_file, tuner.left) == (1, 0, 0)


def test_without_seconds_nothing_is_measured():
    tuner = Tuner()
    assert tuner.choose(BACKEND, "sum", list(TIMES), unexpected) == ("slow", {})
    assert tuner.measured == 0


def test_one_candidate_is_not_measured():
    assert Tuner(seconds=10).choose(BACKEND, "sum", ["slow"], unexpected).name == "slow"


def test_the_cost_models_choice_stays_where_another_is_hardly_faster():
    tuner = Tuner(seconds=10)
    assert tuner.choose(BACKEND, "sum", ["first", "second"], lambda name: lambda: {"first": 1.0, "second": 0.99}[name]).name == "first"


def test_when_time_is_up_the_cost_model_chooses(monkeypatch, caplog):
    clock = count()
    monkeypatch.setattr(tuning.time, "perf_counter", lambda: next(clock))
    tuner = Tuner(seconds=9)
    with caplog.at_level(logging.INFO, "mnnx"):
        for problem in ("sum", "product", "power"):
            tuner.choose(BACKEND, problem, list(TIMES), timed)
        tuner.save()
        tuner.save()
    assert tuner.choose(BACKEND, "power", list(TIMES), unexpected).name == "slow"
    assert (tuner.measured, tuner.left) == (1, 2)
    assert sum("the 9 seconds for tuning are over" in record.getMessage() for record in caplog.records) == 1


def test_candidates_that_are_not_available_are_left_out():
    def prepare(name):
        if name == "fast":
            raise BackendError("no compiler here")
        return timed(name)

    assert Tuner(seconds=10).choose(BACKEND, "sum", list(TIMES), prepare).name == "middle"


def test_one_hopeless_candidate_has_fewer_turns():
    runs = {"bad": 0, "good": 0}

    def prepare(name):
        def run():
            runs[name] += 1
            return 5.0 if name == "bad" else 1.0

        return run

    Tuner(seconds=10).choose(BACKEND, "sum", list(runs), prepare)
    assert 0 < runs["bad"] < runs["good"]


# ---- the file
def test_times_are_kept_for_the_next_session(path):
    first = Tuner(TuningFile(path), seconds=10)
    first.choose(BACKEND, "sum", list(TIMES), timed)
    first.save()
    assert content(path)["devices"][DEVICE.name]["times"] == {"sum": {name: round(t * 1e9) for name, t in TIMES.items()}}
    second = Tuner(TuningFile(path), seconds=10)
    assert second.choose(BACKEND, "sum", list(TIMES), unexpected).name == "fast"
    assert (second.measured, second.from_file) == (0, 1)


def test_times_of_others_stay_in_the_file(path):
    other = Device("quipu", "state 7")
    TuningFile(path).add(other, {"sum": {"a": 1}})
    TuningFile(path).add(DEVICE, {"sum": {"a": 2}, "product": {"a": 3}})
    TuningFile(path).add(DEVICE, {"sum": {"a": 4}})
    assert TuningFile(path).read(other) == {"sum": {"a": 1}}
    assert TuningFile(path).read(DEVICE) == {"product": {"a": 3}, "sum": {"a": 4}}


def test_times_of_other_kernels_do_not_count_and_are_replaced(path):
    TuningFile(path).add(DEVICE, {"sum": {"a": 1}})
    newer = DEVICE._replace(kernels="state 2")
    assert TuningFile(path).read(newer) == {}
    TuningFile(path).add(newer, {"product": {"a": 1}})
    assert TuningFile(path).read(DEVICE) == {}
    assert TuningFile(path).read(newer) == {"product": {"a": 1}}


def test_the_oldest_problems_go_first(path, monkeypatch):
    monkeypatch.setattr("mnnx.backends.tuning_file._MOST_PROBLEMS", 2)
    for problem in ("a", "b", "a", "c"):
        TuningFile(path).add(DEVICE, {problem: {"x": 1}})
    assert list(TuningFile(path).read(DEVICE)) == ["a", "c"]


def test_times_of_unknown_candidates_are_ignored_with_a_warning(path, warnings):
    TuningFile(path).add(DEVICE, {"sum": {"fast": 2, "no such": 1}, "product": {"none": 1}})
    tuner = Tuner(TuningFile(path))
    assert [tuner.choose(BACKEND, problem, list(TIMES), unexpected).name for problem in ("sum", "product")] == ["slow", "slow"]
    assert len(warnings()) == 1
    assert tuner.from_file == 0


def entry(times, kernels=DEVICE.kernels):
    return json.dumps({"format": "mnnx tuning", "version": 1, "devices": {DEVICE.name: {"kernels": kernels, "times": times}}}).encode()


GOOD = entry({"sum": {"fast": 5}})
DAMAGED = {
    "cut short": GOOD[:-9],
    "other bytes": GOOD.replace(b"5", b"\xff\xfe"),
    "a name for a time": entry({"sum": {"fast": "5"}}),
    "no time at all": entry({"sum": {}}),
    "a negative time": entry({"sum": {"fast": -5}}),
    "zero": entry({"sum": {"fast": 0}}),
    "true": entry({"sum": {"fast": True}}),
    "a fraction": entry({"sum": {"fast": 0.5}}),
    "infinity": GOOD.replace(b"5", b"Infinity"),
    "a very long number": GOOD.replace(b"5", b"9" * 5000),
    "a list of times": entry({"sum": [5]}),
    "no dict of problems": entry([]),
    "no name of kernels": entry({"sum": {"fast": 5}}, kernels=None),
    "no devices": GOOD.replace(b'"devices"', b'"device"'),
    "devices in a list": b'{"format": "mnnx tuning", "version": 1, "devices": []}',
    "no version": GOOD.replace(b'"version": 1, ', b""),
    "a version in words": GOOD.replace(b'"version": 1', b'"version": "one"'),
    "deeply nested": b'{"format": "mnnx tuning", "x": ' + b"[" * 200_000,
}
FOREIGN = {
    "text": b"This is no file of mnnx.\n",
    "bytes": bytes(range(256)),
    "a list": b"[1, 2]",
    "other JSON": b'{"format": "something else"}',
    "a null": b"null",
    "another program's": json.dumps({"comment": "x" * 99, "format": "mnnx tuning"}).encode(),
    "a newer version": GOOD.replace(b'"version": 1', b'"version": 2'),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_ignored_with_one_warning_and_replaced(path, warnings, name):
    path.write_bytes(DAMAGED[name])
    file = TuningFile(path)
    assert file.read(DEVICE) == file.read(DEVICE) == {}
    file.add(DEVICE, {"sum": {"fast": 7}})
    assert file.read(DEVICE) == {"sum": {"fast": 7}}
    assert len(warnings()) == 1
    assert str(path) in warnings()[0]


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_file_is_ignored_with_one_warning_and_left_alone(path, warnings, name):
    path.write_bytes(FOREIGN[name])
    file = TuningFile(path)
    assert file.read(DEVICE) == {}
    file.add(DEVICE, {"sum": {"fast": 7}})
    assert path.read_bytes() == FOREIGN[name]
    assert len(warnings()) == 1


def test_an_empty_file_is_filled(path, warnings):
    path.touch()
    TuningFile(path).add(DEVICE, {"sum": {"fast": 7}})
    assert TuningFile(path).read(DEVICE) == {"sum": {"fast": 7}}
    assert warnings() == []


def test_a_huge_file_is_refused(path, warnings):
    with open(path, "wb") as file:
        file.truncate(1 << 32)
    TuningFile(path).read(DEVICE)
    TuningFile(path).add(DEVICE, {"sum": {"fast": 7}})
    assert path.stat().st_size == 1 << 32
    assert "MiB" in warnings()[0]


@pytest.mark.parametrize("what", ["a folder", "a pipe", "in no folder", "in a file"])
def test_paths_that_cannot_be_files(tmp_path, warnings, what):
    path = tmp_path / "times"
    if what == "a folder":
        path.mkdir()
    elif what == "a pipe":
        os.mkfifo(path)
    elif what == "in a file":
        path.touch()
        path = path / "times"
    else:
        path = tmp_path / "none" / "times"
    file = TuningFile(path)
    assert file.read(DEVICE) == {}
    file.add(DEVICE, {"sum": {"fast": 7}})
    assert file.read(DEVICE) == {}
    assert len(warnings()) == 1


def test_a_file_that_may_not_be_written_is_read_and_left_alone(path, warnings, monkeypatch):
    path.write_bytes(GOOD)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # tests may run as root, who may do anything
    file = TuningFile(path)
    assert file.read(DEVICE) == {"sum": {"fast": 5}}
    file.add(DEVICE, {"product": {"fast": 7}})
    assert path.read_bytes() == GOOD
    assert len(warnings()) == 1


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "file")
    TuningFile(tmp_path / "link").add(DEVICE, {"sum": {"fast": 7}})
    assert (tmp_path / "link").is_symlink()
    assert TuningFile(tmp_path / "file").read(DEVICE) == {"sum": {"fast": 7}}


def test_a_failed_write_leaves_the_old_file_and_nothing_else(path, warnings, monkeypatch):
    path.write_bytes(GOOD)

    def fail(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    TuningFile(path).add(DEVICE, {"product": {"fast": 7}})
    assert path.read_bytes() == GOOD
    assert os.listdir(path.parent) == [path.name]
    assert "No space left" in warnings()[0]


def test_processes_that_write_at_once_leave_a_whole_file(path):
    script = (
        "import sys\n"
        "from mnnx.backends.tuning_file import Device, TuningFile\n"
        "for i in range(200): TuningFile(sys.argv[1]).add(Device(sys.argv[2], 'state'), {f'problem {i}': {'a': i + 1}})"
    )
    writers = [subprocess.Popen([sys.executable, "-c", script, str(path), name], stderr=subprocess.PIPE) for name in ("one", "two")]
    while any(writer.poll() is None for writer in writers):
        if path.exists():
            assert content(path)["version"] == 1
    assert [(writer.returncode, writer.stderr.read()) for writer in writers] == [(0, b"")] * 2
    kept = [TuningFile(path).read(Device(name, "state")) for name in ("one", "two")]
    assert max(times.get("problem 199", {}).get("a", 0) for times in kept) == 200
    assert os.listdir(path.parent) == [path.name]
