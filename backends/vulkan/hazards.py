"""Which dispatches must wait for earlier ones: those that meet bytes which these write, or that write bytes which these read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mnnx.schema.records import Row


class Span(Row):
    """Bytes start … end-1 of a VkBuffer, as a kernel's argument."""

    buffer: Any
    start: int
    end: int
    writes: bool


class Hazards:
    """What the dispatches since the last barrier read and write."""

    def __init__(self) -> None:
        self._met: dict[Any, list[Span]] = {}

    def must_wait(self, spans: Iterable[Span]) -> bool:
        """Whether a barrier belongs before a dispatch of these arguments, which is noted as coming next."""
        waits = any(self._conflicts(span) for span in spans)
        if waits:
            self._met.clear()
        for span in spans:
            self._met.setdefault(span.buffer, []).append(span)
        return waits

    def _conflicts(self, span: Span) -> bool:
        for other in self._met.get(span.buffer, ()):
            if (span.writes or other.writes) and span.start < other.end and other.start < span.end:
                return True
        return False
