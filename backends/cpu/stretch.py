"""A native stretch of a command list, on as many threads as pay.

Other threads of the team sleep between runs. To wake them costs some microseconds, and they come after some ten more; what is done by then
needs no help. How long a stretch takes can't be told from its number of chunks, so a stretch with few of them is tried alone first.
"""

from __future__ import annotations

import math
import time

import numpy as np

from mnnx.backends.cpu.arguments import address_of
from mnnx.backends.cpu.team import Team

#: Chunks that others can take off the calling thread: with so many, they are woken without a trial.
_MANY_CHUNKS = 8
#: Seconds: a stretch that the calling thread finishes in less does without the others. One run of the longer time settles that.
_SHORT, _LONG = 100e-6, 1e-3
_TRIALS = 3


class Stretch:
    """Units `first` … `last`-1 of a program; `address` is that of its block (kernels/team.py)."""

    def __init__(self, program: np.ndarray, counters: np.ndarray, first: int, last: int, threads: int):
        chunks = program[first:last, 2]
        self._helpers = min(threads, int(chunks.max())) - 1
        shared = int((chunks - -(-chunks // (self._helpers + 1))).sum())
        self._trials = _TRIALS if 0 < shared < _MANY_CHUNKS else 0
        self._least = math.inf
        helpers = 0 if self._trials else self._helpers
        self._block = np.array([address_of(program), address_of(counters), first, last, helpers], np.int64)
        self.address = address_of(self._block)

    def run(self, team: Team) -> None:
        if not self._trials:
            team.run(self.address)
            return
        start = time.perf_counter()
        team.run(self.address)
        took = time.perf_counter() - start
        self._least = min(self._least, took)
        self._trials -= 1
        if took > _LONG or (not self._trials and self._least > _SHORT):
            self.use_all()

    def use_all(self) -> None:
        """Lets all threads work on it from here on."""
        self._trials = 0
        self._block[4] = self._helpers
