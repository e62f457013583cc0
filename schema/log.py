"""The log, for what isn't an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging


def log() -> logging.Logger:
    """The logger "mnnx". `logging` is imported when there is something to say, as that takes a process that starts some milliseconds."""
    import logging

    return logging.getLogger("mnnx")
