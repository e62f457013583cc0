"""The machine that kernels are made for: what the compiler and the planning of tiles and layouts know of it."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """`triple` and `cpu` as LLVM names them; `features` the instruction set extensions it has, in LLVM's names."""

    triple: str
    cpu: str
    features: frozenset[str]

    @classmethod
    @functools.cache
    def host(cls) -> Target:
        """The machine that this process runs on."""
        import llvmlite.binding as llvm

        triple = llvm.get_process_triple()
        features = frozenset(name for name, present in llvm.get_host_cpu_features().items() if present)
        if triple.startswith("aarch64"):
            features |= _arm_features()
        return cls(triple, llvm.get_host_cpu_name(), features)

    @property
    def arch(self) -> str:
        """x86_64, aarch64, …"""
        return self.triple.partition("-")[0]

    @property
    def vector_bytes(self) -> int:
        """The width of its vector registers."""
        return 64 if "avx512f" in self.features else 32 if "avx" in self.features else 16

    @property
    def vector_registers(self) -> int:
        return 32 if self.arch == "aarch64" or "avx512f" in self.features else 16

    @property
    def fma(self) -> bool:
        """Whether it multiplies and adds in one instruction."""
        return self.arch == "aarch64" or bool(self.features & {"fma", "avx512f"})

    @property
    def dot_product(self) -> str | None:
        """Its instruction that multiplies bytes and adds four products to an int32: avx512vnni, avxvnni, dotprod, or None."""
        return next((name for name in ("avx512vnni", "avxvnni", "dotprod") if name in self.features), None)

    @property
    def identity(self) -> str:
        """A short text that is equal for equal targets only."""
        text = "\n".join([self.triple, self.cpu, *sorted(self.features)])
        return f"{self.arch}-{self.cpu}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    def llvm_features(self) -> str:
        """For LLVM's target machine. Loops use the full vector width, as tiles do, also where LLVM would hold back for the clock's sake."""
        return ",".join([*(f"+{name}" for name in sorted(self.features)), *(["-prefer-256-bit"] if "avx512f" in self.features else [])])


_HWCAP, _HWCAP2 = 16, 26
#: Bits of AT_HWCAP and AT_HWCAP2 on arm64 Linux (asm/hwcap.h) and LLVM's names for them.
_HWCAPS = {1: "neon", 3: "aes", 7: "crc", 8: "lse", 9: "fullfp16", 12: "rdm", 20: "dotprod", 23: "fp16fml"}
_HWCAPS2 = {13: "i8mm", 14: "bf16"}


def _arm_features() -> set[str]:
    """What the kernel says of this CPU; LLVM itself knows no features there for CPUs whose name it doesn't know."""
    import ctypes

    try:
        getauxval = ctypes.CDLL(None).getauxval
    except (AttributeError, OSError):  # not Linux
        return set()
    getauxval.restype, getauxval.argtypes = ctypes.c_ulong, [ctypes.c_ulong]
    first, second = getauxval(_HWCAP), getauxval(_HWCAP2)
    return {name for bit, name in _HWCAPS.items() if first >> bit & 1} | {name for bit, name in _HWCAPS2.items() if second >> bit & 1}
