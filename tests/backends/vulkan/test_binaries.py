"""The kernels in the package are those of the sources, and legal SPIR-V."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from mnnx.backends.gpu.kernel import Kernel, all_variants
from mnnx.backends.vulkan.binaries import FILE, Binaries, packed, shipped
from mnnx.backends.vulkan.compile import digest_of
from mnnx.backends.vulkan.language import glsl

_CAPABILITY = 17
_SHADER, _HALVES, _BYTES = 1, {4433}, {4448}


def _capabilities(spirv: bytes) -> set[int]:
    """The operands of OpCapability; those instructions stand first."""
    words = np.frombuffer(spirv, np.uint32)
    found, place = set(), 5
    while words[place] & 0xFFFF == _CAPABILITY:
        found.add(int(words[place + 1]))
        place += 2
    return found


def test_every_kernel_is_shipped_as_it_is_now() -> None:
    now = {kernel.key: digest_of(glsl(kernel.source)) for kernel in all_variants()}
    shipped_ones = shipped().digests
    different = sorted(key for key in now.keys() | shipped_ones.keys() if now.get(key) != shipped_ones.get(key))
    assert different == [], "run `make spirv` and commit backends/vulkan/kernels.bin"


def test_kernels_ask_for_narrow_storage_only_where_they_use_it() -> None:
    wrong = []
    for kernel in all_variants():
        storages = {buffer.storage for buffer in kernel.source.buffers}
        allowed = {_SHADER}
        allowed |= _HALVES if storages & {"half", "short", "ushort"} else set()
        allowed |= _BYTES if storages & {"char", "uchar", "bool"} else set()
        if extra := _capabilities(shipped().spirv(kernel.key)) - allowed:
            wrong.append((kernel, extra))
    assert wrong == []


def _first_of_each_name() -> list[Kernel]:
    found: dict[str, Kernel] = {}
    for kernel in all_variants():
        found.setdefault(kernel.name, kernel)
    return list(found.values())


def _assert_valid(kernels: list[Kernel], folder: Path) -> None:
    if shutil.which("spirv-val") is None:
        pytest.skip("spirv-val isn't installed (Debian: spirv-tools)")
    for kernel in kernels:
        path = folder / "kernel.spv"
        path.write_bytes(shipped().spirv(kernel.key))
        done = subprocess.run(["spirv-val", "--target-env", "vulkan1.1", path], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{kernel}: {done.stderr}"


def test_a_kernel_of_each_name_is_valid(tmp_path: Path) -> None:
    _assert_valid(_first_of_each_name(), tmp_path)


@pytest.mark.slow
def test_all_kernels_are_valid(tmp_path: Path) -> None:
    _assert_valid(all_variants(), tmp_path)


def test_a_file_of_kernels_gives_back_what_was_packed_in_any_order() -> None:
    kernels = {"b(x=1)": ("11", b"\x07" * 400), "a(y='p q')": ("22", b"\x01\x02\x03" * 100), "c()": ("33", b"")}
    data = packed(kernels)
    assert data == packed(dict(reversed(kernels.items())))
    binaries = Binaries(data)
    assert binaries.digests == {key: digest for key, (digest, _) in kernels.items()}
    assert {key: binaries.spirv(key) for key in kernels} == {key: spirv for key, (_, spirv) in kernels.items()}
    assert "b(x=1)" in binaries
    assert "b(x=2)" not in binaries


def test_another_file_is_refused() -> None:
    with pytest.raises(ValueError, match="Vulkan kernels"):
        Binaries(b"something else\n")


def test_the_file_of_the_package_can_be_made_anew() -> None:
    binaries = shipped()
    assert packed({key: (digest, binaries.spirv(key)) for key, digest in binaries.digests.items()}) == FILE.read_bytes()
