"""Writes a graph as text after each pass, into numbered files that two conversions can be compared by."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from mnnx.converter.graph import Graph
from mnnx.converter.passes import all_passes
from mnnx.converter.passes.base import Pass, Watcher
from mnnx.converter.writer import lower
from mnnx.errors import ConversionError
from mnnx.schema.files import make_folder
from mnnx.schema.graph_text import GraphText


class PassDump(Watcher):
    """Writes NUMBER-PASS.txt into a folder, and the graph as it was imported into 00-import.txt.

    A pass has the same number at every level, whichever passes are disabled. Files of an earlier dump are replaced or removed. Raises
    ConversionError where the folder can't be written, and leaves no part of a dump.
    """

    def __init__(self, folder: str | os.PathLike, graph: Graph):
        self._folder = Path(folder)
        self._text = GraphText()
        self._is_new = not self._folder.exists()
        try:
            make_folder(self._folder)
            self._remove()
        except OSError as error:
            raise self._failed(error) from error
        self._write(_file(0, "import"), graph)

    def after(self, number: int, one: Pass, graph: Graph) -> None:
        self._write(_file(number, one.name), graph)

    def _write(self, name: str, graph: Graph) -> None:
        try:
            (self._folder / name).write_text(self._text.of(lower(graph)[0]), encoding="utf-8", errors="surrogateescape")
        except OSError as error:
            with suppress(OSError):
                self._remove()
                if self._is_new:
                    self._folder.rmdir()
            raise self._failed(error) from error

    def _remove(self) -> None:
        """Removes the files of a dump."""
        for number, name in enumerate(["import", *(one.name for one in all_passes())]):
            (self._folder / _file(number, name)).unlink(missing_ok=True)

    def _failed(self, error: OSError) -> ConversionError:
        return ConversionError(f"the dump of passes can't be written into {self._folder}: {error.strerror or error}")


def _file(number: int, name: str) -> str:
    return f"{number:02}-{name}.txt"
