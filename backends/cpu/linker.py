"""Links object files into a shared library with whatever linker is there for the target's processor."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from mnnx.errors import BackendError
from mnnx.schema.files import make_folder, naming, whole_file

_OPTIONS = ("-shared", "-z", "noexecstack", "-z", "now", "--hash-style=gnu", "--build-id=none", "-s")


def link(objects: Sequence[bytes], output: Path, arch: str) -> None:
    """Writes the shared library `output`, whole or not at all, and its folder.

    Raises BackendError where no linker for `arch` is found, or all fail, and OSError where a file can't be written.
    """
    failures = []
    with tempfile.TemporaryDirectory(prefix="mnnx-link-") as name:
        folder = Path(name)
        with naming(folder):
            for index, code in enumerate(objects):
                (folder / f"{index}.o").write_bytes(code)
            (folder / "objects").write_text("\n".join(f"{index}.o" for index in range(len(objects))))
        for command in _linkers(arch):
            try:
                done = subprocess.run(
                    [*command, "-o", "linked.so", "@objects"], cwd=folder, capture_output=True, text=True, errors="replace"
                )
            except OSError as error:
                failures.append(f"{command[0]}: {error.strerror}")
                continue
            if done.returncode == 0:
                make_folder(output.parent)
                with whole_file(output) as file, open(folder / "linked.so", "rb") as made:
                    shutil.copyfileobj(made, file)
                return
            failures.append(f"{' '.join(command[:4])} …: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    tried = f"\ntried: {'; '.join(failures)}" if failures else ""
    became = "could make the bundle" if failures else "was found"
    raise BackendError(
        f"no linker for {arch} {became}: install one of: lld (apt-get install lld), the GNU one (apt-get install "
        f"binutils-{arch.replace('_', '-')}-linux-gnu), zig (pip install ziglang){tried}"
    )


def _linkers(arch: str) -> Iterator[list[str]]:
    native = platform.machine() == arch
    names = [*(["ld"] if native else []), f"{arch}-linux-gnu-ld", "ld.lld"]
    for name in names:
        if path := shutil.which(name):
            yield [path, *_OPTIONS]
    if importlib.util.find_spec("ziglang"):
        yield [sys.executable, "-m", "ziglang", "ld.lld", *_OPTIONS]
    if native and (path := shutil.which("cc")):
        yield [path, "-nostdlib", "-shared", f"-Wl,{','.join(_OPTIONS[1:])}"]
