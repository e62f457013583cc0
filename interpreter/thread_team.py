"""Threads that several sessions use together."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from mnnx.errors import SessionStateError
from mnnx.interpreter.checks import cpu_ids as checked_cpu_ids
from mnnx.interpreter.checks import thread_count

_ALL: weakref.WeakSet[ThreadTeam] = weakref.WeakSet()


class ThreadTeam:
    """Threads for the sessions whose `ScheduleConfig.team` it is, of any models: they compute in turns, those of higher priority first.

    num_threads: 0 takes the CPUs this process may use; the calling thread of a run is one of them. cpu_ids: CPUs to pin the others to.
    """

    def __init__(self, num_threads: int = 0, cpu_ids: Sequence[int] = ()):
        self.num_threads = thread_count(num_threads, "ThreadTeam.num_threads")
        self.cpu_ids = checked_cpu_ids(cpu_ids, "ThreadTeam.cpu_ids")
        self._threads: Any = None
        self._released = False
        self._renew()
        _ALL.add(self)

    def opened(self, make: Callable[[], Any]) -> Any:
        """For a backend: its threads, made at the first call. Raises SessionStateError after `release`."""
        with self._lock:
            if self._released:
                raise SessionStateError("the ThreadTeam was released; make another one")
            if self._threads is None:
                self._threads = make()
            return self._threads

    def release(self) -> None:
        """Ends the threads, after the work under way; its sessions can't run afterwards. Releasing twice is fine."""
        with self._lock:
            threads, self._threads, self._released = self._threads, None, True
        if threads is not None:
            threads.release()

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"ThreadTeam({'released' if self._released else f'num_threads={self.num_threads}'})"

    def __enter__(self) -> ThreadTeam:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.release()


def _after_fork() -> None:
    for team in _ALL:  # who held a lock is not in the child
        team._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
