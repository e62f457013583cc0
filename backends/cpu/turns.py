"""Who may use what several threads share: one of them at a time, by priority."""

from __future__ import annotations

import bisect
import itertools
import os
import threading
import weakref
from collections.abc import Callable

#: Seconds until a signal is heard that came right before the waiting began, which it doesn't end.
_SIGNALS_WAIT = 1.0

_ALL: weakref.WeakSet[Turns] = weakref.WeakSet()


class Turn:
    """A wish to use it. Turns are ordered: higher priorities first, equal ones as they came."""

    def __init__(self, priority: float, number: int):
        self.order = (-priority, number)
        self.granted = threading.Lock()
        self.granted.acquire()


class Turns:
    """A lock whose holder is told when somebody of a higher priority waits for it: `wanted(bool)` is called with each change of that.

    Waiting takes no processor time. In a forked child nobody holds it, and nobody waits.
    """

    def __init__(self, wanted: Callable[[bool], None]):
        self._wanted = wanted
        self._numbers = itertools.count()
        self.renew()
        _ALL.add(self)

    def ask(self, priority: float) -> Turn:
        """A turn to `wait` for, again after each `end`; that must be called in any case, whatever becomes of the waiting."""
        return Turn(priority, next(self._numbers))

    def wait(self, turn: Turn) -> None:
        """Returns when it is this one's turn."""
        with self._lock:
            if self._holder is None:
                self._holder = turn
                return
            bisect.insort(self._waiting, turn, key=lambda other: other.order)
            self._tell()
        while not turn.granted.acquire(timeout=_SIGNALS_WAIT):
            pass

    def end(self, turn: Turn) -> None:
        """The next one has its turn; or this one doesn't wait any more."""
        with self._lock:
            if self._holder is turn:
                self._holder = self._waiting.pop(0) if self._waiting else None
                if self._holder is not None:
                    self._holder.granted.release()
            elif turn in self._waiting:
                self._waiting.remove(turn)
            self._tell()

    def _tell(self) -> None:
        self._wanted(bool(self._waiting) and self._waiting[0].order[0] < self._holder.order[0])

    def renew(self) -> None:
        """Forgets who holds it, and who waits."""
        self._lock = threading.Lock()
        self._holder: Turn | None = None
        self._waiting: list[Turn] = []


def _after_fork() -> None:
    for turns in _ALL:
        turns.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
