"""Barriers stand where dispatches need them, and nowhere else."""

from __future__ import annotations

import pytest

from mnnx.backends.vulkan.hazards import Hazards, Span


def _spans(text: str) -> list[Span]:
    """ "r a 0 8, w b 0 4" """
    words = [part.split() for part in text.split(",")]
    return [Span(buffer, int(start), int(end), kind == "w") for kind, buffer, start, end in words]


@pytest.mark.parametrize(
    ("dispatches", "waits"),
    [
        (["w a 0 8", "r a 0 8"], [False, True]),
        (["r a 0 8", "w a 4 12"], [False, True]),
        (["w a 0 8", "w a 7 9"], [False, True]),
        (["r a 0 8", "r a 0 8"], [False, False]),
        (["w a 0 8", "r a 8 16"], [False, False]),
        (["w a 0 8", "r b 0 8"], [False, False]),
        (["r a 0 8, w a 0 8", "r a 8 16, w a 8 16"], [False, False]),
        (["w a 0 8", "w b 0 8", "r a 0 8, r b 0 8", "r a 0 8, w c 0 8"], [False, False, True, False]),
        (["w a 0 8", "r a 0 8, w b 0 8", "r a 0 8, w c 0 8", "r c 0 4, w a 0 8"], [False, True, False, True]),
    ],
)
def test_a_dispatch_waits_for_those_whose_bytes_it_meets(dispatches: list[str], waits: list[bool]) -> None:
    hazards = Hazards()
    assert [hazards.must_wait(_spans(text)) for text in dispatches] == waits
