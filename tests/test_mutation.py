"""The mutation driver sees crashes, hangs, memory hunger and unexpected exceptions, and goes on behind them."""

from __future__ import annotations

import os
import signal
import time
import zlib

import numpy as np
import pytest

from mnnx.errors import MnnxError
from mnnx.schema.reader import structure_size
from mnnx.schema.writer import serialize, write_model
from tests import mutation
from tests.schema.models import small

_SOUND = serialize(small())


def _nth(data: bytes) -> int:
    """A number below 4 that depends on every byte; of the sound file it is 3."""
    return (zlib.crc32(data) - zlib.crc32(_SOUND) - 1) % 4


def crashing(data: bytes) -> None:
    if _nth(data) == 0:
        os.kill(os.getpid(), signal.SIGSEGV)


def hanging(data: bytes) -> None:
    if _nth(data) == 0:
        time.sleep(60)


def hungry(data: bytes) -> None:
    if _nth(data) == 0:
        bytearray(4 << 30)


def careless(data: bytes) -> None:
    print("noise that is no answer")
    if _nth(data) == 0:
        raise KeyError("oh")
    if _nth(data) == 1:
        raise MnnxError("no")


@pytest.fixture
def path(tmp_path):
    write_model(small(), tmp_path / "m.mnnx")
    return tmp_path / "m.mnnx"


def run(path, name, **limits):
    return mutation.run(path, f"tests.test_mutation:{name}", seed=1, count=12, **limits)


@pytest.mark.parametrize(
    ("name", "message"),
    [("crashing", "status -11"), ("hanging", "in hanging"), ("hungry", "MemoryError"), ("careless", "KeyError")],
)
def test_a_failure_is_reported_and_the_rest_is_tried(path, name, message):
    data = path.read_bytes()
    wanted = [_nth(mutation.mutant(data, structure_size(data), 1, index)) for index in range(12)]
    assert 0 < wanted.count(0) < 8
    report = run(path, name, seconds=1.5 if name == "hanging" else 30.0)
    assert set(report.failures) == {index for index, number in enumerate(wanted) if number == 0}
    assert all(message in text for text in report.failures.values())
    assert report.refused == (wanted.count(1) if name == "careless" else 0)
    assert report.taken + report.refused + len(report.failures) == 12


def test_the_reader_stands_mutants_in_two_processes(path):
    report = mutation.run(path, "mnnx.schema.reader:read_model_bytes", seed=2, count=400, workers=2)
    assert not report.failures, report
    assert report.taken + report.refused == 400


def test_most_damage_is_done_to_the_structure():
    data = np.arange(100_000, dtype=np.uint8)
    places = []
    for index in range(200):
        broken = np.frombuffer(mutation.mutant(data.tobytes(), 1000, 0, index), np.uint8)
        same = min(data.size, broken.size)
        places.append(np.append(data[:same] != broken[:same], True).argmax())
    assert 100 < sum(place < 1000 for place in places) < 200
