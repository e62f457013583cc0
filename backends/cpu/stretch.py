"""A native stretch of a command list, on as many threads as pay.

Other threads of the team sleep between runs. To wake them costs some microseconds, and they come after some ten more; what is done by then
needs no help. How long a stretch takes can't be told from its number of chunks, so a stretch with few of them is tried alone first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mnnx.backends.cpu.arguments import address_of, aligned
from mnnx.backends.cpu.chaining import Unit
from mnnx.backends.cpu.team import Team

#: Chunks that others can take off the calling thread: with so many, they are woken without a trial.
_MANY_CHUNKS = 8
#: Seconds: a stretch that the calling thread finishes in less does without the others. One run of the longer time settles that.
_SHORT, _LONG = 100e-6, 1e-3
_TRIALS = 3
_UNIT_WORDS, _LINE = 4, 64


class Stretch:
    """Units that run in this order; `address` is that of its block (kernels/team.py)."""

    def __init__(self, units: Sequence[Unit], threads: int):
        self._program = aligned(8 * _UNIT_WORDS * len(units)).view(np.int64).reshape(-1, _UNIT_WORDS)
        for row, unit in zip(self._program, units, strict=True):
            row[:3] = unit.kernel.address, address_of(unit.args), unit.chunks
        self._counters = aligned(_LINE * (threads + 1) * len(units))
        self._kept = units
        self._helpers = min(threads, max(unit.chunks for unit in units)) - 1
        # What runs abreast is as many chunks as before, and may be as little work.
        cut = sum(part.chunks - -(-part.chunks // (self._helpers + 1)) for unit in units for part in unit.made_of or (unit,))
        self._trials = _TRIALS if self._helpers and cut < _MANY_CHUNKS else 0
        self._least = math.inf
        helpers = 0 if self._trials else self._helpers
        self._block = np.array([address_of(self._program), address_of(self._counters), len(units), helpers, 0], np.int64)
        self.address = address_of(self._block)

    def run(self, team: Team) -> None:
        if not self._trials:
            team.run(self.address)
            return
        took = team.run_timed(self.address)
        self._least = min(self._least, took)
        self._trials -= 1
        if took > _LONG or (not self._trials and self._least > _SHORT):
            self.use_all()

    def use_all(self) -> None:
        """Lets all threads work on it from here on."""
        self._trials = 0
        self._block[3] = self._helpers
