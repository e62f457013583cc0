"""Runs a function in a process of its own, for code that can end or block the process it runs in."""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable


class Lost(Exception):
    """The function gave no result: it raised, ended its process, or took too long. `died`: it did not just raise."""

    def __init__(self, what: str, died: bool = True):
        super().__init__(what)
        self.died = died


def run_apart(function: Callable[[], bytes], seconds: float, memory_bytes: int) -> bytes:
    """`function()`, computed in a forked child; raises Lost saying what became of it. Where there is no fork, it runs in this process.

    `memory_bytes` is what the child may map beyond what the process has mapped already (on Linux).

    The child does nothing else and leaves by `_exit`, so that threads and exit handlers of the parent are no concern of it.
    """
    if not hasattr(os, "fork"):
        return _directly(function)
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks beside threads
        child = os.fork()
    if child == 0:
        _work(function, reader, writer, memory_bytes)
    os.close(writer)
    try:
        answer = _read(reader, time.monotonic() + seconds)
    finally:
        os.close(reader)
        os.kill(child, signal.SIGKILL)  # it has answered, or never will
        _, status = os.waitpid(child, 0)
    if answer is None:
        raise Lost(f"it took more than {seconds:g} s")
    if not answer:
        raise Lost(f"it ended the process ({signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else 'no answer'})")
    if answer[:1] == b"-":
        raise Lost(answer[1:].decode(), died=False)
    return answer[1:]


def _directly(function: Callable[[], bytes]) -> bytes:
    try:
        return function()
    except Exception as error:
        raise Lost(str(error), died=False) from error


def _work(function: Callable[[], bytes], reader: int, writer: int, memory_bytes: int) -> None:
    """The child's whole life. An answer is + and the result, or - and what was raised; none at all where it died."""
    try:
        os.close(reader)
        faulthandler.disable()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the C++ library announces its end there
        _limit_memory(memory_bytes)
        try:
            answer = b"+" + function()
        except Exception as error:
            answer = b"-" + (str(error) or type(error).__name__).encode()
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(answer)
    finally:
        os._exit(0)


def _limit_memory(memory_bytes: int) -> None:
    if sys.platform != "linux":
        return
    import resource

    with open("/proc/self/statm") as file:
        mapped = int(file.read().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = mapped + memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


def _read(reader: int, deadline: float) -> bytes | None:
    """All that comes before the other end is closed; None where that takes too long."""
    parts = []
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([reader], [], [], left)[0]:
            return None
        part = os.read(reader, 1 << 20)
        if not part:
            return b"".join(parts)
        parts.append(part)
