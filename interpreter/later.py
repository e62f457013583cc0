"""Runs of a session that the caller doesn't wait for: one thread does them in the order in which they were asked for."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class LaterRuns:
    """`run` does one; the thread is started by the first `submit`, and again in a forked child."""

    def __init__(self, run: Callable[..., Any]):
        self._run = run
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None
        self._pid = os.getpid()
        self._thread: int | None = None

    def submit(self, *arguments: Any) -> Future:
        if self._pid != os.getpid():
            self._pid, self._lock, self._executor = os.getpid(), threading.Lock(), None
        with self._lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(1, "mnnx-session")
            return self._executor.submit(self._run_here, *arguments)

    def _run_here(self, *arguments: Any) -> Any:
        self._thread = threading.get_ident()
        return self._run(*arguments)

    def close(self) -> None:
        """Waits for the run under way; those that have not begun are cancelled. What a Future calls when it is done may call it too."""
        if self._pid == os.getpid():
            with self._lock:
                executor, self._executor = self._executor, None
            if executor is not None:
                executor.shutdown(wait=self._thread != threading.get_ident(), cancel_futures=True)
