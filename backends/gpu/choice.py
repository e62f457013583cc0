"""Which of several devices is meant."""

from __future__ import annotations

from collections.abc import Sequence

from mnnx.errors import BackendUnavailable

_TYPES = ("gpu", "cpu", "accelerator", "other")


def choose(api: str, devices: Sequence[tuple[str, str]], wanted: str) -> int:
    """The place of the wanted one among (name, type): a number, a type, or a part of a name; "": the first GPU, else the first.

    Raises BackendUnavailable, listing all.
    """
    if not wanted:
        return next((i for i, (_, kind) in enumerate(devices) if kind == "gpu"), 0)
    if wanted.isdecimal():
        fitting = [int(wanted)] if int(wanted) < len(devices) else []
    elif wanted.lower() in _TYPES:
        fitting = [i for i, (_, kind) in enumerate(devices) if kind == wanted.lower()]
    else:
        fitting = [i for i, (name, _) in enumerate(devices) if wanted.lower() in name.lower()]
    if not fitting:
        known = " and ".join(f"{api.lower()}:{i} ({name}, {kind})" for i, (name, kind) in enumerate(devices))
        raise BackendUnavailable(f"there is no {api} device {wanted!r}; there is {known}")
    return fitting[0]
