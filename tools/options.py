"""Kinds of options that several commands have."""

from __future__ import annotations

import math
import os
from collections.abc import Container, Iterable
from typing import Any

import click


class FiniteRange(click.FloatRange):
    """A number within limits, of which click lets NaN through, and infinity where there is no upper one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


def at_most_one(**flags: bool) -> str:
    """The name of the flag that is given, "" where none is. Raises click.UsageError where there are more."""
    given = [name for name, is_given in flags.items() if is_given]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(f'--{name}' for name in given)} can't be given together")
    return "".join(given)


def check_is_not_model(option: str, file: str | None, model: str) -> None:
    """Raises click.UsageError where what an option writes would overwrite the model."""
    if file is not None and os.path.exists(file) and os.path.exists(model) and os.path.samefile(file, model):
        raise click.UsageError(f"{option} {file} would overwrite the model")


def tensor_names(texts: Iterable[str], known: Container[str] = ()) -> list[str]:
    """The names in options that can be repeated, each with one name or several with commas between them; those that are known may have
    commas of their own."""
    return [name for text in texts for name in ([text] if text in known else text.split(","))]
