"""A team of threads that several sessions use in turns, those of higher priority first.

A run has the team to itself. It looks about every millisecond, between two units or two iterations of a loop, whether one of a higher
priority waits, makes room for that, and goes on afterwards. So no more threads compute than the team has, however many sessions run.
"""

from __future__ import annotations

import ctypes
import math
import os
import time
from collections.abc import Sequence

from mnnx.backends.cpu.team import Team, native
from mnnx.backends.cpu.turns import Turns
from mnnx.errors import SessionStateError

_WANTED = 48  # the byte of the team's memory that says whether the caller is to make room
_NEXT = 32  # the byte of a stretch that says with which unit it goes on


class SharedTeam(Team):
    """As a Team, for several threads: each uses it in its turn."""

    def __init__(self, threads: int, cpu_ids: Sequence[int] = ()):
        super().__init__(threads, cpu_ids)
        self.turns = Turns(self._note_wanted)
        self._released = False
        self._share = native("team.share")

    def run_some(self, stretch: int) -> None:
        """Runs the stretch at this address from where it is to go on, to its end, or until another caller is to have its turn."""
        self._check()
        self._share(stretch, self._address, self.threads)

    def repeat(self, loop: int) -> None:
        self._check()
        super().repeat(loop)

    def release(self) -> None:
        """Ends the workers, after the turn of who has it now. Nobody can use the team afterwards."""
        turn = self.turns.ask(math.inf)
        try:
            self.turns.wait(turn)
            self._released = True
            super().release()
        finally:
            self.turns.end(turn)

    def _check(self) -> None:
        if self._released:
            raise SessionStateError("the ThreadTeam of this session was released; create the session with another one")
        if self._pid != os.getpid():
            self._start()

    def _note_wanted(self, wanted: bool) -> None:
        self._memory[_WANTED] = wanted


class TeamShare:
    """What a session has of a SharedTeam: in place of a team of its own."""

    def __init__(self, team: SharedTeam, priority: int):
        self.threads = team.threads
        self._team = team
        self._priority = priority

    def run(self, stretch: int) -> None:
        """Runs the stretch at this address on all threads, in as many turns as it takes."""
        self.run_timed(stretch)

    def run_timed(self, stretch: int) -> float:
        """As `run`; returns the seconds that its turns took, without the waiting for them."""
        seconds = 0.0
        unit = ctypes.c_int64.from_address(stretch + _NEXT)
        unit.value = 0
        turns, turn = self._team.turns, self._team.turns.ask(self._priority)
        try:
            while True:
                turns.wait(turn)
                start = time.perf_counter()
                self._team.run_some(stretch)
                seconds += time.perf_counter() - start
                if unit.value == 0:
                    return seconds
                turns.end(turn)
        finally:
            turns.end(turn)

    def repeat(self, loop: int) -> None:
        """Runs the stretch of the loop at this address for some of its iterations, in one turn."""
        turns, turn = self._team.turns, self._team.turns.ask(self._priority)
        try:
            turns.wait(turn)
            self._team.repeat(loop)
        finally:
            turns.end(turn)

    def quiesce(self) -> None:
        """Returns when no worker looks at any program that doesn't run, so that its memory may go."""
        self._team.quiesce()

    def release(self) -> None:
        """The team stays, for others."""
