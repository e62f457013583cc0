"""Opens the MODEL argument of commands: an .mnnx file, or an .onnx file that is converted into a temporary one."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mnnx.tools.convert import progress

if TYPE_CHECKING:
    from mnnx.interpreter.interpreter import Interpreter


@contextmanager
def mnnx_file(path: str, level: int = 2) -> Iterator[Path]:
    """The path of an .mnnx file with the model of `path`; only an .onnx file is converted (at `level`), and its copy goes afterwards.

    Meanwhile, where stderr is a terminal, it shows when kernels are being compiled, or tuned.
    """
    if not path.lower().endswith(".onnx"):
        with _compiling():
            yield Path(path)
        return
    import mnnx

    with _compiling(), tempfile.TemporaryDirectory(prefix="mnnx-") as folder:
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


@contextmanager
def _compiling() -> Iterator[None]:
    """A line on stderr that counts what has been compiled and tuned, from the first such thing on. (A progress bar's thread would disturb
    measurements.)"""
    import logging

    if not sys.stderr.isatty():
        yield
        return

    class Count(logging.Handler):
        compiled = tuned = 0

        def emit(self, record: logging.LogRecord) -> None:
            what = str(record.msg).partition(" ")[0]
            if record.levelno != logging.DEBUG or what not in ("compiled", "tuned"):
                return
            setattr(self, what, getattr(self, what) + 1)
            tuned = f"; tuned: {self.tuned}" if self.tuned else ""
            click.echo(f"\rcompiling kernels, which later starts will find in the cache: {self.compiled}{tuned}", nl=False, err=True)

    counter, logger = Count(), logging.getLogger("mnnx")
    level = logger.level
    logger.addHandler(counter)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.removeHandler(counter)
        logger.setLevel(level)
        if counter.compiled or counter.tuned:
            click.echo(f"\r{' ' * 80}\r", nl=False, err=True)
