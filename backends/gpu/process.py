"""GPU drivers don't survive fork: whatever was made in one process is refused in another."""

from __future__ import annotations

import os

from mnnx.errors import BackendError


class Owner:
    """The process that made something."""

    def __init__(self, what: str):
        self._what = what
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        return self._pid == os.getpid()

    def check(self) -> None:
        """Raises BackendError in a forked child."""
        if self._pid != os.getpid():
            raise BackendError(
                f"{self._what} was opened before this process was forked, and its driver doesn't survive that: start processes with the "
                "method spawn (multiprocessing.get_context('spawn')), and create sessions in them"
            )
