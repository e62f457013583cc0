"""Runs a function in a process of its own, for code that can end or block the process it runs in."""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import math
import os
import select
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress

if hasattr(os, "fork"):
    import resource

_LENGTH = 8  # bytes that say how long the answer behind them is
_PR_SET_PDEATHSIG = 1

_forking = threading.Lock()  # warnings.catch_warnings is not for several threads at once


class Lost(Exception):
    """The function gave no result: it raised, ended its process, took too long, or had none. `died`: it did not just raise."""

    def __init__(self, what: str, died: bool = True):
        super().__init__(what)
        self.died = died


def run_apart(function: Callable[[], bytes], seconds: float, memory_bytes: int) -> bytes:
    """`function()`, computed in a forked child; raises Lost saying what became of it. Where there is no fork, it runs in this process.

    `memory_bytes` is what the child may map beyond what the process has mapped already (on Linux).

    The child does nothing else: it shares no files with the parent, runs none of its handlers and finalizers, leaves by `_exit`, and
    ends with the parent or soon after its time.
    """
    if not hasattr(os, "fork"):
        return _directly(function)
    try:
        child, reader = _start(function, seconds, memory_bytes)
    except OSError as error:
        raise Lost(f"this process can't start another one ({error.strerror or error})") from error
    try:
        answer = _read(reader, time.monotonic() + seconds)
    finally:
        os.close(reader)
        status = _end(child)
    if answer is None:
        raise Lost(f"it took more than {seconds:g} s")
    if not answer:
        signaled = status is not None and os.WIFSIGNALED(status)
        raise Lost(f"it ended the process ({signal.Signals(os.WTERMSIG(status)).name if signaled else 'no answer'})")
    if answer[:1] == b"-":
        raise Lost(answer[1:].decode(errors="replace"), died=False)
    return answer[1:]


def _directly(function: Callable[[], bytes]) -> bytes:
    try:
        return function()
    except Exception as error:
        raise Lost(str(error), died=False) from error


def _start(function: Callable[[], bytes], seconds: float, memory_bytes: int) -> tuple[int, int]:
    """The child, and the end of the pipe at which its answer comes out. Raises OSError where there can be none."""
    parent = os.getpid()
    reader, writer = os.pipe()
    try:
        with _forking, warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks beside threads
            child = os.fork()
        if child == 0:
            _work(function, writer, parent, seconds, memory_bytes)
        return child, reader
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)


def _end(child: int) -> int | None:
    """Ends the child, which has answered, or never will. Its status; None where the program takes that itself (SIGCHLD)."""
    try:
        ended, status = os.waitpid(child, os.WNOHANG)
        if not ended:
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
    except (ChildProcessError, ProcessLookupError):
        return None
    return status


def _work(function: Callable[[], bytes], writer: int, parent: int, seconds: float, memory_bytes: int) -> None:
    """The child's whole life. An answer is + and the result, or - and what was raised; none at all where it died."""
    try:
        gc.disable()
        faulthandler.disable()
        _end_with(parent, seconds)
        writer = _let_go_of_files(writer)
        _limit_memory(memory_bytes)
        try:
            answer = b"+" + function()
        except Exception as error:
            answer = b"-" + (str(error) or type(error).__name__).encode(errors="replace")
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(len(answer).to_bytes(_LENGTH, "little"))
            pipe.write(answer)
    finally:
        os._exit(0)


def _end_with(parent: int, seconds: float) -> None:
    """Lets every signal end this process: its alarm, and the parent's end (on Linux), whatever that one does with signals."""
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)) or number == signal.SIGALRM:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.alarm(math.ceil(seconds) + 1)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)


def _let_go_of_files(writer: int) -> int:
    """Closes all files but the pipe, which others wait to be closed; gives the pipe's number. C++ may print, which nobody shall see."""
    while writer <= 2:
        writer = os.dup(writer)
    with suppress(OSError):  # without this folder they stay open
        for name in os.listdir("/dev/fd"):
            if int(name) > 2 and int(name) != writer:
                with suppress(OSError):  # the folder itself was among them
                    os.close(int(name))
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)
    return writer


def _limit_memory(memory_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform != "linux":
        return
    try:
        with open("/proc/self/statm") as file:
            mapped = int(file.read().split()[0]) * resource.getpagesize()
    except OSError:  # without /proc, the time is limited all the same
        return
    limits = resource.getrlimit(resource.RLIMIT_AS)
    wanted = min([mapped + memory_bytes, *(limit for limit in limits if limit != resource.RLIM_INFINITY)])
    resource.setrlimit(resource.RLIMIT_AS, (wanted, limits[1]))


def _read(reader: int, deadline: float) -> bytes | None:
    """The answer, or nothing where the other end was closed before it was there; None where that takes too long."""
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    parts, wanted, got = [], 0, 0
    while not wanted or got < wanted:
        left = deadline - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            return None
        part = os.read(reader, 1 << 20 if wanted else _LENGTH)
        if not part:
            return b""
        if not wanted:
            wanted = int.from_bytes(part, "little")
            continue
        parts.append(part)
        got += len(part)
    return b"".join(parts)


def _after_fork() -> None:
    global _forking
    _forking = threading.Lock()  # another thread of the parent may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
