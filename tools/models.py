"""Opens the MODEL argument of commands: an .mnnx file, or an .onnx file that is converted into a temporary one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mnnx.tools.convert import progress

if TYPE_CHECKING:
    from mnnx.interpreter.interpreter import Interpreter


@contextmanager
def mnnx_file(path: str, level: int = 2) -> Iterator[Path]:
    """The path of an .mnnx file with the model of `path`; only an .onnx file is converted (at `level`), and its copy goes afterwards."""
    if not path.lower().endswith(".onnx"):
        yield Path(path)
        return
    import mnnx

    with tempfile.TemporaryDirectory(prefix="mnnx-") as folder:
        target = Path(folder) / f"{Path(path).stem}.mnnx"
        with progress() as say:
            mnnx.convert(path, target, level=level, progress=say)
        yield target


@contextmanager
def opened(path: str, level: int = 2) -> Iterator[Interpreter]:
    """An Interpreter of the model, released afterwards."""
    import mnnx

    with mnnx_file(path, level) as file, mnnx.Interpreter.from_file(file) as interpreter:
        yield interpreter
