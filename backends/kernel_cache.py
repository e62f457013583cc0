"""Compiled kernels on disk: one file per kernel, shared by all processes of a user, bounded in size.

A file is a line of text (magic, SHA-256 of the object code) and the object code. Writing is atomic, so processes may share a folder; a
file that isn't what it says is ignored, and overwritten when the kernel has been compiled again.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from pathlib import Path

from mnnx.schema.files import make_folder, whole_file
from mnnx.schema.log import log

_MAGIC = b"mnnx-kernel "
_LIMIT_BYTES = 256 << 20


def default_folder() -> Path:
    """MNNX_CACHE_DIR, or `mnnx` in the platform's user cache folder."""
    if chosen := os.environ.get("MNNX_CACHE_DIR"):
        return Path(chosen)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "mnnx"


class KernelCache:
    """The kernels of one target in a folder. A folder that can't be used gives one warning in the log, and nothing is cached."""

    def __init__(self, folder: Path, target: str, limit_bytes: int = _LIMIT_BYTES):
        self.folder = folder / "kernels" / target
        self._limit_bytes = limit_bytes
        self._usable = True
        self._written = 0

    def read(self, identity: str) -> bytes | None:
        """The object code stored under `identity`, or None."""
        try:
            data = self._path(identity).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._give_up(error)
            return None
        header, _, code = data.partition(b"\n")
        if header != _header(code):
            log().warning("the cached kernel %s is damaged and will be compiled again", self._path(identity))
            return None
        return code

    def write(self, identity: str, code: bytes) -> None:
        """Stores object code; a full disk or a folder without write permission is no error."""
        if not self._usable:
            return
        try:
            make_folder(self.folder)
            with whole_file(self._path(identity)) as file:
                file.write(_header(code) + b"\n" + code)
            if self._written % 64 == 0:
                self._trim()
            self._written += 1
        except OSError as error:
            self._give_up(error)

    def _path(self, identity: str) -> Path:
        return self.folder / f"{identity}.kernel"

    def _trim(self) -> None:
        """Removes the oldest files of all targets, and what interrupted processes left, until half the limit is free."""
        files = []
        for path in self.folder.parent.glob("*/*"):
            with contextlib.suppress(OSError):
                status = path.stat()
                files.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in files)
        if total <= self._limit_bytes:
            return
        for _, size, path in sorted(files):
            with contextlib.suppress(OSError):
                path.unlink()
            total -= size
            if total <= self._limit_bytes // 2:
                return

    def _give_up(self, error: OSError) -> None:
        if self._usable:
            self._usable = False
            log().warning("kernels aren't cached: %s (set MNNX_CACHE_DIR to a folder that can be written)", error)


def _header(code: bytes) -> bytes:
    import hashlib

    return _MAGIC + hashlib.sha256(code).hexdigest().encode()


@functools.cache
def open_cache(folder: Path, target: str) -> KernelCache:
    """The cache of a folder, one per process, so that its warning is given once."""
    return KernelCache(folder, target)
