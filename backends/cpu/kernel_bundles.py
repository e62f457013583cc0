"""Bundles: kernels that were compiled ahead of time, linked into one shared library per target. Only the C library's loader is needed.

Bundles are looked for beside the model (`MODEL.mnnx.kernels-TARGET.so`, or `mnnx-kernels-TARGET.so` for all models of a folder), in the
package, and in the cache folder. A kernel's symbol tells all: what stands in a bundle under that name is the kernel that is wanted, for
the level of this machine. Who may write a bundle may run code here, as with any library.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

from mnnx.backends import kernel_cache
from mnnx.schema.log import log

_PACKAGE = Path(__file__).with_name("bundles")
_MACHINES = {"x86_64": 62, "aarch64": 183}
_SHARED_LIBRARY = 3

#: Open libraries in the order of their search, and the places that were searched already.
_OPEN: list[ctypes.CDLL] = []
_SEARCHED: set[Path] = set()


def beside_model(model: Path, target: str) -> Path:
    """Where the bundle of one model lies."""
    return model.with_name(f"{model.name}.kernels-{target}.so")


def beside_models(folder: Path, target: str) -> Path:
    """Where a bundle for all models of a folder lies."""
    return folder / f"mnnx-kernels-{target}.so"


def cache_folder() -> Path:
    return kernel_cache.default_folder() / "bundles"


def search_beside(model: Path) -> None:
    """Adds the bundles beside a model, before all others."""
    if model not in _SEARCHED:
        _SEARCHED.add(model)
        _OPEN[:0] = _opened(model.parent, (f"{model.name}.kernels-", "mnnx-kernels-"))


def find(symbol: str, level: str) -> int:
    """The address of a kernel for this machine's level, or 0."""
    for search in (None, _search_package, _search_cache):
        if search is not None:
            search(level)
        for library in _OPEN:
            try:
                return ctypes.cast(library[symbol], ctypes.c_void_p).value or 0
            except AttributeError:
                continue
    return 0


def folders() -> tuple[Path, Path]:
    """Where bundles for any model lie: in the package, and in the cache folder."""
    return _PACKAGE, cache_folder()


def everywhere() -> Iterator[Path]:
    """The bundles of `folders`, for any target."""
    for folder in folders():
        yield from _files(folder, ("",))


def _search_package(level: str) -> None:
    if _PACKAGE not in _SEARCHED:
        _SEARCHED.add(_PACKAGE)
        _OPEN.extend(_opened(_PACKAGE, (f"{level}.so",)))


def _search_cache(level: str) -> None:
    folder = cache_folder()
    if folder not in _SEARCHED:
        _SEARCHED.add(folder)
        _OPEN.extend(_opened(folder, ("",)))


def _files(folder: Path, prefixes: tuple[str, ...]) -> list[Path]:
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return [folder / name for name in sorted(names) if name.endswith(".so") and name.startswith(prefixes)]


def _opened(folder: Path, prefixes: tuple[str, ...]) -> list[ctypes.CDLL]:
    return [library for path in _files(folder, prefixes) if (library := _open(path)) is not None]


def _open(path: Path) -> ctypes.CDLL | None:
    """None for a file of another machine, and, with a warning, for one that can't be loaded."""
    try:
        if not path.is_file():  # opening a pipe would wait for its writer
            raise OSError(f"{path} is no file")
        with open(path, "rb") as file:
            header = file.read(64)
            size = os.fstat(file.fileno()).st_size
        reason = _reason_against(header, size)
        if reason is None:
            _make_libm_visible()
            return ctypes.CDLL(os.fspath(path))
    except OSError as error:
        reason = str(error)
    if reason:
        log().warning("the kernel bundle %s is left out: %s", path, reason)
    return None


def _reason_against(header: bytes, size: int) -> str | None:
    """None for a shared library of this machine that is all there, "" for one of another machine, else what is wrong with it."""
    if header[:6] != b"\x7fELF\x02\x01" or len(header) < 64:
        return "it is no shared library"
    kind, machine = struct.unpack_from("<HH", header, 16)
    (sections,) = struct.unpack_from("<Q", header, 40)
    entry, count = struct.unpack_from("<HH", header, 58)
    if sys.platform != "linux" or machine != _MACHINES.get(os.uname().machine):
        return ""
    if kind != _SHARED_LIBRARY or sections + entry * count > size:
        return "it is damaged or cut short"
    return None


@functools.cache
def _make_libm_visible() -> None:
    """Bundles name no library of C's functions, so that they run with any; Python itself may be linked without libm."""
    for name in ("libm.so.6", None):
        try:
            ctypes.CDLL(name, ctypes.RTLD_GLOBAL)
        except OSError:
            continue
        return
