"""The machines that kernels are made for: what the compiler and the planning of tiles and layouts know of them.

A kernel's code depends on a `Level` alone, an instruction set that many CPUs share, so that code which was compiled elsewhere for the level
serves here. What only some CPUs of a level have (products of bytes) is an extension: a kernel that uses one says so by a parameter.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

from mnnx.backends.cpu import host_features
from mnnx.errors import BackendError
from mnnx.schema.records import Row


class Level(Row):
    """An instruction set. `cpu` and `flags` are LLVM's; `needs` the features of `host_features` that a CPU of the level has.

    `caches`: sizes of the L2 cache that plans tell apart, rising. They are few, so that a bundle can have the kernels for all of them.
    """

    name: str
    triple: str
    cpu: str
    flags: str
    needs: frozenset[str]
    vector_bytes: int
    vector_registers: int
    fma: bool
    caches: tuple[int, ...]

    @property
    def arch(self) -> str:
        """x86_64, aarch64, …"""
        return self.triple.partition("-")[0]


_V2 = frozenset({"cx16", "lahf_lm", "popcnt", "pni", "ssse3", "sse4_1", "sse4_2"})
_V3 = _V2 | {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_X86, _ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"

#: By name, per architecture from the least to the most. Loops use the full vector width of x86-64-v4, as tiles do, also where LLVM
#: would hold back for the clock's sake.
LEVELS = {
    level.name: level
    for level in (
        Level("x86-64", _X86, "x86-64", "", frozenset(), 16, 16, False, (256 << 10,)),
        Level("x86-64-v2", _X86, "x86-64-v2", "", _V2, 16, 16, False, (256 << 10,)),
        Level("x86-64-v3", _X86, "x86-64-v3", "", _V3, 32, 16, True, (256 << 10, 512 << 10, 1 << 20)),
        Level("x86-64-v4", _X86, "x86-64-v4", "-prefer-256-bit", _V4, 64, 32, True, (1 << 20, 2 << 20)),
        Level("armv8", _ARM, "generic", "+neon", frozenset({"asimd"}), 16, 32, True, (128 << 10, 256 << 10, 512 << 10)),
    )
}

#: Instructions that multiply bytes and add four products to an int32: LLVM's name → (the feature's name, levels that it extends).
_DOT_PRODUCTS = {
    "avx512vnni": ("avx512_vnni", ("x86-64-v4",)),
    "avxvnni": ("avx_vnni", ("x86-64-v3",)),
    "dotprod": ("asimddp", ("armv8",)),
}
#: What a kernel says by its parameter `mode` → the dot products that it may be compiled to.
_MODES = {"vnni": ("avx512vnni", "avxvnni"), "dotprod": ("dotprod",)}

#: Bytes of L1d, L2 and L3 where nothing is known.
_CACHES = (32 << 10, 512 << 10, 0)


class Target(Row):
    """A machine. `tune`: LLVM's name of the core to schedule for (empty: any); `caches`: bytes of L1d, of a core's part of L2, of L3."""

    name: str
    level: Level
    extensions: frozenset[str] = frozenset()
    tune: str = ""
    caches: tuple[int, int, int] = _CACHES
    cores: int = 4

    @classmethod
    @functools.cache
    def host(cls) -> Target:
        """The machine that this process runs on, or the one that MNNX_TARGET names. Raises BackendError where that can do more."""
        found = _host()
        wanted = os.environ.get("MNNX_TARGET")
        if not wanted:
            return found
        target = cls.named(wanted)
        if not found.runs(target.level):
            raise BackendError(f"MNNX_TARGET is {wanted}, but this machine is only of the level {found.level.name}")
        return target._replace(extensions=target.extensions & _extensions(target.level, host_features.features()))

    @classmethod
    def named(cls, name: str) -> Target:
        """A level, or a board, by name. A level has all its extensions. Raises BackendError for an unknown name."""
        if name in LEVELS:
            return cls(name, LEVELS[name], frozenset(dot for dot, (_, levels) in _DOT_PRODUCTS.items() if name in levels))
        if name not in BOARDS:
            raise BackendError(f"there is no target {name!r}; known ones: {', '.join([*LEVELS, *BOARDS])}")
        return BOARDS[name]

    @property
    def triple(self) -> str:
        return self.level.triple

    @property
    def arch(self) -> str:
        """x86_64, aarch64, …"""
        return self.level.arch

    @property
    def vector_bytes(self) -> int:
        """The width of its vector registers."""
        return self.level.vector_bytes

    @property
    def vector_registers(self) -> int:
        return self.level.vector_registers

    @property
    def fma(self) -> bool:
        """Whether it multiplies and adds in one instruction."""
        return self.level.fma

    @property
    def dot_product(self) -> str | None:
        """Its instruction that multiplies bytes and adds four products to an int32: avx512vnni, avxvnni, dotprod, or None."""
        return next((name for name in _DOT_PRODUCTS if name in self.extensions), None)

    @property
    def identity(self) -> str:
        """What object code depends on beside the kernel: a name for folders."""
        return "-".join(filter(None, [self.level.name, self.tune]))

    @property
    def cache_bytes(self) -> int:
        """The size of the L2 cache that plans go by: one of its level's `caches`."""
        return max((size for size in self.level.caches if size <= self.caches[1]), default=self.level.caches[0])

    @property
    def variants(self) -> tuple[Target, ...]:
        """What plans tell apart of the machines that a bundle for this target serves: caches (of a board too, as not every system knows
        their sizes), and whether a level's extensions are there."""
        if self.name == "host":
            return (self,)
        extensions = (self.extensions, frozenset()) if self.name in LEVELS and self.extensions else (self.extensions,)
        caches = ((self.caches[0], size, self.caches[2]) for size in self.level.caches)
        return tuple(self._replace(extensions=some, caches=sizes) for sizes in caches for some in extensions)

    def runs(self, level: Level) -> bool:
        """Whether code for `level` runs here."""
        return level == self.level or (level.triple == self.level.triple and level.needs < self.level.needs)

    def llvm_features(self, parameters: dict[str, Any]) -> str:
        """For LLVM's target machine: the level's, and those that a kernel with such parameters uses."""
        dots = (dot for dot in _MODES.get(parameters.get("mode"), ()) if self.level.name in _DOT_PRODUCTS[dot][1])
        return ",".join(filter(None, [self.level.flags, *(f"+{dot}" for dot in dots)]))


def _board(name: str, core: str, caches: tuple[int, int, int], cores: int, *extensions: str) -> Target:
    return Target(name, LEVELS["armv8"], frozenset(extensions), core, caches, cores)


#: Machines by name.
BOARDS = {
    board.name: board
    for board in (
        _board("raspberrypi3", "cortex-a53", (32 << 10, 128 << 10, 0), 4),
        _board("raspberrypi4", "cortex-a72", (32 << 10, 256 << 10, 0), 4),
        _board("raspberrypi5", "cortex-a76", (64 << 10, 512 << 10, 2 << 20), 4, "dotprod"),
        _board("jetson-nano", "cortex-a57", (32 << 10, 512 << 10, 0), 4),
        _board("jetson-orin-nano", "cortex-a78ae", (64 << 10, 256 << 10, 4 << 20), 6, "dotprod"),
    )
}


def _extensions(level: Level, features: frozenset[str]) -> frozenset[str]:
    return frozenset(dot for dot, (feature, levels) in _DOT_PRODUCTS.items() if feature in features and level.name in levels)


def _host() -> Target:
    features = host_features.features()
    linux = sys.platform == "linux" and sys.maxsize > 1 << 32  # a process of 32 bits has other registers
    fitting = [level for level in LEVELS.values() if linux and level.arch == os.uname().machine and level.needs <= features]
    level = fitting[-1] if fitting else _level_of_llvm(features)
    known = host_features.caches()
    caches = tuple(known.get(index + 1, default) for index, default in enumerate(_CACHES))
    return Target("host", level, _extensions(level, features), host_features.core(), caches, os.cpu_count() or 1)


def _level_of_llvm(features: frozenset[str]) -> Level:
    """A level of its own for a machine of another kind, as LLVM sees it."""
    import llvmlite.binding as llvm

    triple, cpu, flags = llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features()
    name = f"{triple}-{cpu}"
    arm = triple.startswith(("aarch64", "arm64"))
    fma = arm or flags.get("fma", False)
    wide = 64 if flags.get("avx512f") else 32 if flags.get("avx") else 16
    return Level(name, triple, cpu, flags.flatten(), features, wide, 32 if arm or wide == 64 else 16, fma, (256 << 10, 512 << 10, 1 << 20))
