"""Kernels by name: found in this process, else in a bundle, else in the cache on disk, else compiled.

    kernel("raster.copy", element=4).address

The identity of a kernel is made of its name, its parameters, the text of its sources, the target's level and the ABI number. Only
compiling imports numba, and only loading from the cache imports llvmlite.
"""

from __future__ import annotations

import functools
import os
import re
import threading
import time
from pathlib import Path
from typing import Any

from mnnx.backends import kernel_cache
from mnnx.backends.cpu import kernel_bundles
from mnnx.backends.cpu.target import Level, Target
from mnnx.errors import BackendError
from mnnx.schema.hashing import blake2b
from mnnx.schema.log import log

#: What kernels, the compiler's wrapper and the team agree on; raised whenever that changes.
ABI = 3

_SOURCES = Path(__file__).with_name("kernels")
_IMPORT = re.compile(r"from mnnx\.backends\.cpu\.kernels(?:\.(\w+))? import ([^\n(]+|\([^)]*\))")


class Kernel:
    """A kernel of the host. Its address is that of a C function `void(int64 args, int64 part, int64 parts)`."""

    __slots__ = ("_address", "name", "parameters")

    def __init__(self, name: str, parameters: tuple[tuple[str, Any], ...]):
        self.name = name
        self.parameters = parameters
        self._address = 0

    @property
    def address(self) -> int:
        """Compiles or loads it at the first call. Raises BackendError where it can't be compiled."""
        if not self._address:
            self._address = _LOADER.address(self)
        return self._address

    def identity(self, level: Level) -> str:
        """The same in every process with equal sources: a kernel's name in caches and bundles."""
        text = repr((ABI, self.name, self.parameters, source_hash(self.name.partition(".")[0]), level.name))
        return blake2b(text.encode(), digest_size=16).hexdigest()

    def __repr__(self) -> str:
        return f"kernel({self.name!r}{''.join(f', {k}={v!r}' for k, v in self.parameters)})"


def kernel(name: str, **parameters: Any) -> Kernel:
    """The kernel that the factory `name` makes with these parameters (ints, bools, floats, strings, tuples of them)."""
    return _interned(name, tuple(sorted(parameters.items())))


def compiled_count() -> int:
    """How many kernels this process has compiled so far."""
    return _LOADER.compiled


@functools.cache
def _interned(name: str, parameters: tuple[tuple[str, Any], ...]) -> Kernel:
    return Kernel(name, parameters)


@functools.cache
def source_hash(module: str) -> str:
    """A hash of a kernel module's text and of the kernel modules that it imports."""
    seen: dict[str, bytes] = {}
    waiting = [module, "intrinsics"]
    while waiting:
        name = waiting.pop()
        source = _source(name) if name not in seen else None
        if source is not None:
            seen[name] = source[0]
            waiting += source[1]
    digest = blake2b()
    for name in sorted(seen):
        digest.update(name.encode() + b"\0" + seen[name])
    return digest.hexdigest()


@functools.cache
def _source(name: str) -> tuple[bytes, list[str]] | None:
    """The text of a kernel module, and the names of those it imports."""
    try:
        text = (_SOURCES / f"{name}.py").read_bytes()
    except FileNotFoundError:
        return None
    found = _IMPORT.findall(text.decode())
    return text, [imported for source, names in found for imported in ([source] if source else re.findall(r"\w+", names))]


def symbol(identity: str) -> str:
    """The name of a kernel's function in object code."""
    return f"mnnx_{identity}"


def object_code(item: Kernel, target: Target) -> tuple[bytes, bool]:
    """A kernel for any target as an object file that defines its `symbol`, from the cache or compiled; and whether it was compiled."""
    identity = item.identity(target.level)
    cache = kernel_cache.open_cache(kernel_cache.default_folder(), target.identity)
    code = cache.read(identity)
    if code is not None:
        return code, False
    from mnnx.backends.cpu.compiler import compile_kernel

    start = time.perf_counter()
    code = compile_kernel(item.name, dict(item.parameters), symbol(identity), target)
    log().debug("compiled %r for %s in %.0f ms", item, target.identity, (time.perf_counter() - start) * 1e3)
    cache.write(identity, code)
    return code, True


class _Loader:
    """Puts object code into this process."""

    def __init__(self) -> None:
        self.compiled = 0
        self._lock = threading.RLock()
        self._engine = None
        self._libraries = []  # which keep the code in memory

    def address(self, item: Kernel) -> int:
        with self._lock:
            if item._address:
                return item._address
            target = Target.host()
            name = symbol(item.identity(target.level))
            return kernel_bundles.find(name, target.level.name) or self._compiled(item, name, target)

    def _compiled(self, item: Kernel, name: str, target: Target) -> int:
        try:
            code, new = object_code(item, target)
        except ImportError as error:
            raise BackendError(
                f"{item} is in no bundle for {target.level.name}, and can't be compiled without {error.name}: install numba, or make a "
                "bundle for this machine on another one (mnnx kernels build)"
            ) from error
        if new and not self.compiled:
            log().info("compiling kernels for %s, which are then kept in %s", target.level.name, kernel_cache.default_folder())
        self.compiled += new
        return self._load(code, name)

    def _load(self, code: bytes, symbol: str) -> int:
        import llvmlite.binding as llvm

        if self._engine is None:
            llvm.initialize_native_target()
            llvm.initialize_native_asmprinter()
            # JITLink keeps an object's sections together. MCJIT, which is quicker, may put them where they don't reach one another, and
            # ends the process, when large libraries or files are mapped.
            self._engine = llvm.create_lljit_compiler(use_jit_link=True)
        library = llvm.JITLibraryBuilder().add_object_img(code).add_current_process().export_symbol(symbol)
        try:
            self._libraries.append(library.link(self._engine, symbol))
        except RuntimeError as error:
            raise BackendError(f"the object code of {symbol} can't be loaded: {error}") from error
        return self._libraries[-1][symbol]


_LOADER = _Loader()


def _after_fork() -> None:
    _LOADER._lock = threading.RLock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_after_fork) if hasattr(os, "register_at_fork") else None
