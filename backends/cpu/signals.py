"""Signals that ask the process to end, while native code is at work that calls Python functions."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType

_ENDING = ("SIGINT", "SIGTERM", "SIGHUP")


@contextmanager
def held_back() -> Iterator[None]:
    """Where the handlers of these signals would run in a function that LLVM calls, or in a finalizer, they run when the block is done: what
    they raise would be lost there.

    In the main thread, where Python runs handlers; nothing is done in others.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: dict[int, FrameType | None] = {}
    handlers = {}

    def handle(number: int, frame: FrameType | None) -> None:
        if _would_be_lost(frame):
            came[number] = frame
        else:
            handlers[number](number, frame)

    try:
        with ExitStack() as restored:
            for number in (getattr(signal, name) for name in _ENDING if hasattr(signal, name)):
                if callable(handler := signal.getsignal(number)):
                    handlers[number] = handler
                    restored.callback(signal.signal, number, handler)
                    signal.signal(number, handle)
            yield
    finally:
        for number, frame in came.items():
            handlers[number](number, frame)


def _would_be_lost(frame: FrameType | None) -> bool:
    """Whether a frame is inside of a finalizer, or of llvmlite, through which LLVM calls Python."""
    while frame is not None:
        if frame.f_code.co_name == "__del__" or frame.f_globals.get("__name__", "").startswith("llvmlite.binding"):
            return True
        frame = frame.f_back
    return False
