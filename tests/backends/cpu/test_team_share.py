"""What a session has of a shared team: its turns, and how long they took."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest

from mnnx.backends.cpu import shared_team


def test_the_time_of_a_run_is_that_of_its_turns_without_the_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    stretch = np.zeros(5, np.int64)
    now = 0
    left = [2, 1, 0]  # where each of three turns makes room, and the last one's end

    def wait(turn: object) -> None:
        nonlocal now
        now += 1000

    def run_some(address: int) -> None:
        nonlocal now
        now += 7
        ctypes.c_int64.from_address(address + 32).value = left.pop(0)

    turns = SimpleNamespace(ask=lambda priority: object(), wait=wait, end=lambda turn: None)
    monkeypatch.setattr(shared_team, "time", SimpleNamespace(perf_counter=lambda: now))
    share = shared_team.TeamShare(SimpleNamespace(threads=2, turns=turns, run_some=run_some), 0)
    assert share.run_timed(stretch.ctypes.data) == 3 * 7
    assert not left
