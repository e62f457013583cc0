"""Compiles the kernels for Vulkan ahead of time; for development alone: it needs glslangValidator and spirv-opt.

    python -m mnnx.backends.vulkan.compile                 all kernels whose text has changed → kernels.bin
    python -m mnnx.backends.vulkan.compile --check matmul  only says which kernels of that name don't compile, and why
    python -m mnnx.backends.vulkan.compile --show matmul   the GLSL of the first of them

Debian: apt-get install glslang-tools spirv-tools.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mnnx.backends.gpu.kernel import Kernel, all_variants
from mnnx.backends.vulkan.binaries import FILE, Binaries, packed
from mnnx.backends.vulkan.language import glsl

_TARGET = "vulkan1.1"


class CompileError(Exception):
    """A kernel whose GLSL isn't right; the text says why."""


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def spirv_of(kernel: Kernel, text: str) -> bytes:
    """Raises CompileError."""
    with tempfile.TemporaryDirectory() as folder:
        shader, binary, small = (Path(folder, f"kernel.{suffix}") for suffix in ("comp", "spv", "opt.spv"))
        shader.write_text(text)
        _tool(kernel, text, "glslangValidator", "-V", "--target-env", _TARGET, str(shader), "-o", str(binary))
        _tool(kernel, text, "spirv-opt", f"--target-env={_TARGET}", "-Os", "--strip-debug", str(binary), "-o", str(small))
        if shutil.which("spirv-val"):
            _tool(kernel, text, "spirv-val", "--target-env", _TARGET, str(small))
        return small.read_bytes()


def _tool(kernel: Kernel, text: str, *command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        numbered = "".join(f"{number:4} {line}\n" for number, line in enumerate(text.splitlines(), 1))
        raise CompileError(f"{kernel}: {command[0]} says\n{done.stdout}{done.stderr}\n{numbered}")


def compiled(kernels: list[Kernel], known: dict[str, tuple[str, bytes]]) -> dict[str, tuple[str, bytes]]:
    """Key → (digest, SPIR-V) of all `kernels`; taken from `known` where the text is the same."""

    def one(kernel: Kernel) -> tuple[str, bytes]:
        text = glsl(kernel.source)
        digest = digest_of(text)
        before = known.get(kernel.key)
        return before if before is not None and before[0] == digest else (digest, spirv_of(kernel, text))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip((kernel.key for kernel in kernels), pool.map(one, kernels), strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", metavar="NAME", help="compile the kernels whose names begin so, and write nothing")
    parser.add_argument("--show", metavar="NAME", help="print the GLSL of the first kernel whose name begins so")
    parser.add_argument("--all", action="store_true", help="compile also what hasn't changed")
    given = parser.parse_args()
    kernels = [kernel for kernel in all_variants() if kernel.name.startswith(given.check or given.show or "")]
    if given.show:
        sys.stdout.write(glsl(kernels[0].source))
        return 0
    known = {}
    if FILE.is_file() and not given.all and given.check is None:
        binaries = Binaries(FILE.read_bytes())
        known = {key: (digest, binaries.spirv(key)) for key, digest in binaries.digests.items()}
    try:
        made = compiled(kernels, known)
    except CompileError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if given.check is None:
        FILE.write_bytes(packed(made))
    sys.stdout.write(f"{len(kernels)} kernels, {sum(len(spirv) for _, spirv in made.values()) >> 10} KiB of SPIR-V\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
