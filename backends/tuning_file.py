"""The file that keeps what tuning measured: JSON, shared by processes, models and devices.

    {"format": "mnnx tuning", "version": 1, "devices": {device: {"kernels": hash, "times": {problem: {candidate: nanoseconds}}}}}

A device's entry counts for one state of its kernels, and is replaced when they have changed. Nothing in the file is trusted: what isn't of
this form is ignored as a whole, and who asks for times checks that they are those of its candidates.
"""

from __future__ import annotations

import json
import os
import stat
from typing import Any

from mnnx.schema.files import whole_file
from mnnx.schema.log import log
from mnnx.schema.records import Row

Times = dict[str, int]

_FORMAT, _VERSION = "mnnx tuning", 1
#: Larger files are refused; what is kept stays far below that: the oldest problems of a device go first.
_MOST_BYTES = 16 << 20
_MOST_DEVICES, _MOST_PROBLEMS = 16, 2048
_MOST_NANOSECONDS = 1 << 53


class Device(Row):
    """What times depend on beside the problem. `kernels` names the state of the kernels, and of whatever else changes with mnnx."""

    name: str
    kernels: str


class TuningFile:
    """The file at `path`, which need not exist. One that can't be used gives one warning in the log, and is left as it is."""

    def __init__(self, path: str | os.PathLike):
        self.path = os.path.realpath(os.fsdecode(path))
        self._warned = False

    def read(self, device: Device) -> dict[str, Times]:
        """What is known of a device: problem → candidate → nanoseconds."""
        return _times_of(self._content()[0] or {}, device)

    def add(self, device: Device, times: dict[str, Times]) -> None:
        """Adds the times of problems to those that the file has now, whoever wrote them, and replaces it as a whole."""
        devices, replaceable = self._content()
        if not replaceable:
            return
        if os.path.exists(self.path) and not os.access(self.path, os.W_OK):
            self._warn("can't be written: it is read-only")
            return
        devices = devices or {}
        merged = _times_of(devices, device)
        for problem, measured in times.items():
            merged.pop(problem, None)  # the newest stand last
            merged[problem] = measured
        devices.pop(device.name, None)
        devices[device.name] = {"kernels": device.kernels, "times": _last(merged, _MOST_PROBLEMS)}
        content = {"format": _FORMAT, "version": _VERSION, "devices": _last(devices, _MOST_DEVICES)}
        try:
            self._replace(json.dumps(content, indent=1).encode())
        except OSError as error:
            self._warn("can't be written: %s", error.strerror or error)

    def _content(self) -> tuple[dict[str, Any] | None, bool]:
        """The devices (None: it has none that are readable), and whether the file may be replaced: it is ours, or there is none."""
        try:
            data = self._bytes()
        except FileNotFoundError:
            return None, True
        except (OSError, ValueError) as error:
            self._warn("is ignored: %s", getattr(error, "strerror", None) or error)
            return None, False
        if not data:
            return None, True
        ours = f'"format": "{_FORMAT}"'.encode() in data[:64]
        try:
            content = json.loads(data)
            version = content.get("version") if isinstance(content, dict) and content.get("format") == _FORMAT else None
            if isinstance(version, int) and version > _VERSION:
                self._warn("is ignored: a newer version of mnnx wrote it (its format is version %d)", version)
                return None, False
            return _checked(content), True
        except (ValueError, RecursionError) as error:
            self._warn("is ignored: it is damaged, or no file of mnnx (%s)", error)
            return None, ours

    def _bytes(self) -> bytes:
        """Raises OSError, or ValueError for what is no file of a sensible size."""
        with open(os.open(self.path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ValueError("it is no regular file")
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise ValueError(f"it has more than {_MOST_BYTES >> 20} MiB")
        return data

    def _replace(self, data: bytes) -> None:
        with whole_file(self.path) as file:
            file.write(data)

    def _warn(self, message: str, *arguments: Any) -> None:
        if not self._warned:
            self._warned = True
            log().warning(f"the cache file {self.path!r} {message}", *arguments)


def _checked(content: Any) -> dict[str, Any]:
    """The devices of a file's content. Raises ValueError for any other form than the one above."""
    if not isinstance(content, dict) or content.get("format") != _FORMAT or content.get("version") != _VERSION:
        raise ValueError("it has another format")
    devices = content.get("devices")
    if not isinstance(devices, dict):
        raise ValueError("it has no devices")
    for entry in devices.values():
        if not isinstance(entry, dict) or not isinstance(entry.get("kernels"), str) or not isinstance(entry.get("times"), dict):
            raise ValueError("a device's entry has another form")
        if not all(isinstance(times, dict) and times and all(map(_is_time, times.values())) for times in entry["times"].values()):
            raise ValueError("a time is no positive number")
    return devices


def _is_time(value: Any) -> bool:
    return type(value) is int and 0 < value < _MOST_NANOSECONDS


def _times_of(devices: dict[str, Any], device: Device) -> dict[str, Times]:
    entry = devices.get(device.name)
    return entry["times"] if entry is not None and entry["kernels"] == device.kernels else {}


def _last(items: dict[str, Any], count: int) -> dict[str, Any]:
    return dict(list(items.items())[-count:])
