"""What this process can know of the CPU that it runs on, with the standard library alone: instruction sets, caches, the core's name."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import mmap
import os
import platform

_CACHES = "/sys/devices/system/cpu/cpu0/cache"
_MIDR = "/sys/devices/system/cpu/cpu0/regs/identification/midr_el1"

#: x86: (leaf, subleaf, register of eax ebx ecx edx, bit) of the CPUID instruction → the feature's name in /proc/cpuinfo.
_CPUID = {
    (1, 0, 2, 0): "pni",
    (1, 0, 2, 9): "ssse3",
    (1, 0, 2, 12): "fma",
    (1, 0, 2, 13): "cx16",
    (1, 0, 2, 19): "sse4_1",
    (1, 0, 2, 20): "sse4_2",
    (1, 0, 2, 22): "movbe",
    (1, 0, 2, 23): "popcnt",
    (1, 0, 2, 27): "osxsave",
    (1, 0, 2, 28): "avx",
    (1, 0, 2, 29): "f16c",
    (7, 0, 1, 3): "bmi1",
    (7, 0, 1, 5): "avx2",
    (7, 0, 1, 8): "bmi2",
    (7, 0, 1, 16): "avx512f",
    (7, 0, 1, 17): "avx512dq",
    (7, 0, 1, 28): "avx512cd",
    (7, 0, 1, 30): "avx512bw",
    (7, 0, 1, 31): "avx512vl",
    (7, 0, 2, 11): "avx512_vnni",
    (7, 1, 0, 4): "avx_vnni",
    (0x80000001, 0, 2, 0): "lahf_lm",
    (0x80000001, 0, 2, 5): "abm",
}
#: What the system must save at a switch of threads for AVX, and for AVX-512 (bits of XCR0).
_AVX_STATE, _AVX512_STATE = 0x06, 0xE6

_AT_HWCAP = 16
#: Bits of AT_HWCAP on arm64 Linux (asm/hwcap.h), and their names in /proc/cpuinfo.
_HWCAPS = {1: "asimd", 10: "asimdhp", 20: "asimddp"}

#: The part number of Arm's cores (MIDR_EL1, bits 4 … 15) and LLVM's names for them.
_PARTS = {0xD03: "cortex-a53", 0xD07: "cortex-a57", 0xD08: "cortex-a72", 0xD0B: "cortex-a76", 0xD42: "cortex-a78ae"}


def features() -> frozenset[str]:
    """Instruction sets by the names that /proc/cpuinfo has for them; empty on other processors than x86-64 and arm64."""
    machine = platform.machine().lower()
    if machine in ("x86_64", "amd64"):
        return _x86_features()
    return _arm_features() if machine in ("aarch64", "arm64") else frozenset()


def _x86_features() -> frozenset[str]:
    """By CPUID itself: /proc/cpuinfo is another machine's under an emulator. Where no code may be written to memory, by that file."""
    if os.name != "posix":
        return frozenset()
    try:
        memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except OSError:
        return _proc_features()
    # cpuid(edi: leaf, esi: subleaf, rdx: where to) and, 32 bytes further, xgetbv() for XCR0
    memory[:27] = bytes.fromhex("534989d089f889f10fa241890041895804418948084189500c5bc3")
    memory[32:38] = bytes.fromhex("31c90f01d0c3")
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    cpuid = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)(address)
    registers = (ctypes.c_uint32 * 4)()

    def query(leaf: int, subleaf: int) -> list[int]:
        cpuid(leaf, subleaf, registers)
        return list(registers)

    highest = {0: query(0, 0)[0], 0x80000000: query(0x80000000, 0)[0]}
    leaves = {(leaf, subleaf) for leaf, subleaf, _, _ in _CPUID if leaf <= highest[leaf & 0x80000000]}
    words = {leaf: query(*leaf) for leaf in leaves}
    found = {name for (leaf, sub, register, bit), name in _CPUID.items() if words.get((leaf, sub), [0] * 4)[register] >> bit & 1}
    state = ctypes.CFUNCTYPE(ctypes.c_uint32)(address + 32)() if "osxsave" in found else 0
    if state & _AVX_STATE != _AVX_STATE:
        found = {name for name in found if not name.startswith("avx") and name not in ("fma", "f16c")}
    if state & _AVX512_STATE != _AVX512_STATE:
        found = {name for name in found if not name.startswith("avx512")}
    return frozenset(found)


def _proc_features() -> frozenset[str]:
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("flags"):
                return frozenset(line.partition(":")[2].split())
    return frozenset()


def _arm_features() -> frozenset[str]:
    try:
        getauxval = ctypes.CDLL(None).getauxval
    except (AttributeError, OSError):  # not Linux
        return frozenset({"asimd"})
    getauxval.restype, getauxval.argtypes = ctypes.c_ulong, [ctypes.c_ulong]
    word = getauxval(_AT_HWCAP)
    return frozenset(name for bit, name in _HWCAPS.items() if word >> bit & 1)


def caches() -> dict[int, int]:
    """Level → bytes of the first CPU's data caches; of an L2 that cores share, one core's part. What the system doesn't say is missing."""
    sizes: dict[int, int] = {}
    users: dict[int, int] = {}
    with contextlib.suppress(OSError, ValueError):
        for index in itertools.count():
            kind, level, text, shared = (_read(f"{_CACHES}/index{index}/{name}") for name in ("type", "level", "size", "shared_cpu_map"))
            if kind != "Instruction":
                sizes[int(level)] = int(text.rstrip("KMG")) << {"K": 10, "M": 20, "G": 30}.get(text[-1:], 0)
                users[int(level)] = int(shared.replace(",", ""), 16).bit_count()
    if users.get(1) and users.get(2):
        sizes[2] //= max(1, users[2] // users[1])
    return sizes


def core() -> str:
    """LLVM's name for an Arm core that is known; else empty."""
    try:
        return _PARTS.get(int(_read(_MIDR), 0) >> 4 & 0xFFF, "")
    except (OSError, ValueError):
        return ""


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read().strip()
