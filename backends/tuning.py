"""Choices between ways to compute the same: by the cost model, or by times that were measured now or before.

A backend describes a problem (op, shapes, …) in a line of text, and names its candidates in the order of its cost model, best first:

    choice = backend.tuner.choose(backend, "conv 1x64x56x56 …", ["winograd 4 14x2", "product 14x2"], prepare)

What tiles and algorithms are to the CPU, sizes of work-groups are to a GPU.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mnnx.backends.tuning_file import Device, Times, TuningFile
from mnnx.errors import BackendError
from mnnx.schema.log import log
from mnnx.schema.records import Row

if TYPE_CHECKING:
    from mnnx.backends.backend import Backend

#: How often each candidate runs. One that takes so many times as long as the best has fewer turns.
_TURNS, _FEWER_TURNS, _HOPELESS = 8, 3, 1.3
#: The cost model's choice stays unless another one takes less than this part of its time.
_WORTH_IT = 0.96

#: Makes a candidate ready on scratch memory, and gives a function that runs it once and returns the seconds that took.
Prepare = Callable[[str], Callable[[], float]]


class Choice(Row):
    """The candidate to take, and the times (ns) of those that were measured, where any were."""

    name: str
    times: Times


class Tuner:
    """The choices of one session's backends.

    file: where times are looked up, and added by `save`. seconds: what measuring may take in all; 0: the file's times count, everything
    else stays with the cost model. weight_bytes: of the model's constants, which all pass through the caches between two runs of an op.
    """

    def __init__(self, file: TuningFile | None = None, seconds: float = 0.0, weight_bytes: int = 0):
        self.file = file
        self.weight_bytes = weight_bytes
        #: Problems with measured times, with times from the file, and those that the cost model decides as the seconds are spent.
        self.measured = self.from_file = self.left = 0
        self._seconds = self._seconds_left = seconds
        self._kernels_compiled = 0
        self._known: dict[Device, dict[str, Times]] = {}
        self._choices: dict[tuple[Device, str], Choice] = {}
        self._new: dict[Device, dict[str, Times]] = {}
        self._said: set[str] = set()

    def choose(self, backend: Backend, problem: str, candidates: Sequence[str], prepare: Prepare) -> Choice:
        """The fastest candidate as far as times are known, or else the first; always the same for the same problem."""
        if len(candidates) == 1:
            return Choice(candidates[0], {})
        device = backend.tuning_device
        choice = self._choices.get((device, problem))
        if choice is None:
            times = self._look_up(device, problem, candidates)
            if times:
                self.from_file += 1
            elif self._seconds:
                times = self._measure(backend, problem, candidates, prepare)
            choice = self._choices[device, problem] = Choice(fastest(candidates, times), times)
        return choice

    def save(self) -> None:
        """Says in the log what was measured since the last call, and adds it to the file."""
        new, self._new = self._new, {}
        if new:
            spent, count = self._seconds - self._seconds_left, sum(map(len, new.values()))
            log().info("tuned %d problems (%.1f s so far, %d kernels compiled for it)", count, spent, self._kernels_compiled)
        if self.left:
            self._say_once("seconds", "info", "the %g seconds for tuning are over: what remains is left to the cost model", self._seconds)
        for device, times in new.items() if self.file else ():
            self.file.add(device, times)

    def write(self, file: TuningFile) -> None:
        """Adds all times that this session goes by to a file."""
        found: dict[Device, dict[str, Times]] = {}
        for (device, problem), choice in self._choices.items():
            if choice.times:
                found.setdefault(device, {})[problem] = choice.times
        for device, times in found.items():
            file.add(device, times)

    def _look_up(self, device: Device, problem: str, candidates: Sequence[str]) -> Times:
        """What the file knows of a problem, unless that is of other candidates."""
        if device not in self._known:
            self._known[device] = self.file.read(device) if self.file else {}
        times = self._known[device].get(problem, {})
        if unknown := times.keys() - set(candidates):
            message = "times of %r in the cache file don't count: there is no candidate %r"
            self._say_once("candidates", "warning", message, problem, min(unknown))
            return {}
        return times

    def _measure(self, backend: Backend, problem: str, candidates: Sequence[str], prepare: Prepare) -> Times:
        """Empty where no two candidates could be measured, the first among them."""
        start, compiled = time.perf_counter(), backend.kernels_compiled
        end = start + self._seconds_left
        runs: dict[str, Callable[[], float]] = {}
        for name in candidates:
            if time.perf_counter() >= end:
                break
            try:
                runs[name] = prepare(name)
            except (BackendError, MemoryError) as error:  # no compiler here, or no memory for so many candidates
                self._say_once("left out", "info", "some candidates can't be measured, among them %r for %r: %s", name, problem, error)
        times = _measured(runs, end) if len(runs) > 1 and candidates[0] in runs else {}
        self._kernels_compiled += backend.kernels_compiled - compiled
        self._seconds_left -= time.perf_counter() - start
        if times:
            self.measured += 1
            self._new.setdefault(backend.tuning_device, {})[problem] = times
            log().debug("tuned %r: %s", problem, ", ".join(f"{name} {ns / 1e3:.1f} µs" for name, ns in times.items()))
        elif self._seconds_left <= 0:
            self.left += 1
        return times

    def _say_once(self, what: str, level: str, message: str, *arguments: object) -> None:
        if what not in self._said:
            self._said.add(what)
            getattr(log(), level)(message, *arguments)


def _measured(runs: dict[str, Callable[[], float]], end: float) -> Times:
    """The lower quartile of the times of each, in ns: the least one flatters what depends on a free path to memory.

    The candidates take turns, so that a busy moment of the machine hits all of them.
    """
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(_TURNS):
        best = min(map(min, times.values())) if turn >= _FEWER_TURNS else math.inf
        for name, run in runs.items():
            if turn < _FEWER_TURNS or min(times[name]) <= _HOPELESS * best:
                times[name].append(run())
        if turn >= _FEWER_TURNS and time.perf_counter() >= end:
            break
    return {name: max(1, round(sorted(seconds)[len(seconds) // 4] * 1e9)) for name, seconds in times.items()}


def fastest(candidates: Sequence[str], times: Times) -> str:
    """The candidate with the least time; the first one also where it is nearly that, and where no times are known."""
    first, known = candidates[0], [name for name in candidates if name in times]
    best = min(known, key=times.__getitem__, default=first)
    return first if first in times and times[first] * _WORTH_IT <= times[best] else best
