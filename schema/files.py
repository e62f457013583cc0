"""Files that are written whole or not at all: under another name first, which is no one's business."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


def temporary_name(path: Path) -> Path:
    """A name beside `path` that nothing has."""
    import secrets

    return path.with_name(f".{secrets.token_hex(8)}.tmp")


def sidecar_name(path: Path) -> Path:
    """The file for the weights of the model file `path`, where they are too large for that."""
    return path.with_name(f"{path.name}.weights")


@contextmanager
def whole_file(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """A new file, to be written and read back, that becomes `path` when it is complete; where something fails, nothing is left of it.

    What is there and is no file (a device) is written to as it is. Raises OSError, whose `filename` is `path`.
    """
    path = Path(path)
    is_special = path.exists() and not path.is_file()
    temporary = path if is_special else temporary_name(path)
    try:
        with naming(path), open(temporary, "wb" if is_special else "xb+") as file:
            yield file
        with naming(path):
            if not is_special:
                os.replace(temporary, path)
    finally:
        if not is_special:
            with suppress(OSError):
                temporary.unlink()


def make_folder(path: str | os.PathLike) -> Path:
    """Makes a folder where there is none, and those above it. Raises OSError, which says so where something else has that name."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, "it is not a folder", error.filename) from error
    return Path(path)


@contextmanager
def naming(path: str | os.PathLike) -> Iterator[None]:
    """OSErrors name this file, whichever one was at hand, and say why."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno or errno.EIO, error.strerror or str(error), os.fspath(path)) from error
