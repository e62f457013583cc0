"""What commands print: tables for people, JSON for scripts, both on stdout."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Sequence
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mnnx.schema.text import shown, size

__all__ = ["console", "print_json", "print_pairs", "print_table", "size"]

#: Columns for output that goes to a file or another program.
_PIPE_WIDTH = 160


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))  # the command knows what to do


def console(stderr: bool = False) -> Console:
    """A console as wide as the terminal; wide enough for whole rows where there is none."""
    found = _Console(stderr=stderr, highlight=False)
    return found if found.is_terminal else _Console(stderr=stderr, highlight=False, width=max(found.width, _PIPE_WIDTH))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Prints rows under a title. A column whose name starts with ">" is aligned to the right."""
    click.secho(title, bold=True)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for column in columns:
        table.add_column(column.removeprefix(">"), justify="right" if column.startswith(">") else "left", overflow="fold")
    for row in rows:
        table.add_row(*(escape(shown(str(cell))) for cell in row))
    console().print(table)


def print_pairs(rows: Iterable[tuple[str, Any]]) -> None:
    """Prints names and values, one pair a line."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(escape(shown(name)), escape(shown(str(value))))
    console().print(table)


def print_json(value: Any) -> None:
    """Prints strict JSON: NaN and infinities, which JSON doesn't have, become null."""
    click.echo(json.dumps(strict(value), indent=2, ensure_ascii=False))


def strict(value: Any) -> Any:
    """A value made of dicts with str keys, lists, strings, numbers and None only; NaN and infinities become None."""
    if isinstance(value, dict):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict(item) for item in value]
    if isinstance(value, float):
        return value if value - value == 0 else None
    return value
