"""The options of commands that tune sessions, or use what was measured before."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from mnnx.schema.records import Row

if TYPE_CHECKING:
    from mnnx.interpreter.interpreter import Interpreter
    from mnnx.interpreter.session import Session


class TuningOptions(Row):
    """What --tune, --tune-seconds and --cache-file say."""

    tune: bool
    seconds: float
    cache_file: str | None

    def create_session(self, interpreter: Interpreter, backend: str, threads: int) -> Session:
        """A session that is tuned so."""
        from mnnx import ScheduleConfig

        interpreter.set_cache_file(self.cache_file)
        return interpreter.create_session(ScheduleConfig(backend=backend, num_threads=threads, tune=self.tune, tune_seconds=self.seconds))


def tuning_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options to a command, which gets them as `tuning: TuningOptions`."""

    @click.option("--tune", is_flag=True, help="Choose algorithms and tiles by measuring them first.")
    @click.option(
        "--tune-seconds", type=click.FloatRange(0, min_open=True), default=10.0, show_default=True, help="How long that may take."
    )
    @click.option("--cache-file", metavar="FILE", help="Where times measured before are looked up, and new ones are kept.")
    @functools.wraps(function)
    def bundled(tune: bool, tune_seconds: float, cache_file: str | None, **others: Any) -> Any:
        return function(tuning=TuningOptions(tune, tune_seconds, cache_file), **others)

    return bundled
