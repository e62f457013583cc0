"""The options of commands that run sessions: precision, tuning or the use of what was measured before, branches side by side."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from mnnx.schema.records import Row
from mnnx.tools.options import FiniteRange

if TYPE_CHECKING:
    from mnnx.interpreter.interpreter import Interpreter
    from mnnx.interpreter.session import Session


PRECISION = click.option(
    "--precision", type=click.Choice(["high", "low"]), default="high", show_default=True, help="low: store halves where that is faster."
)
#: For commands that run all ops at once, beside `session_options`.
INTER_OP_THREADS = click.option(
    "--inter-op-threads",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="Ops that don't need each other's results to run at once, on the session's threads (cpu).",
)


class SessionOptions(Row):
    """What --precision, --tune, --tune-seconds, --cache-file and --inter-op-threads say."""

    precision: str
    tune: bool
    tune_seconds: float
    cache_file: str | None
    inter_op_threads: int = 1

    def create_session(self, interpreter: Interpreter, backend: str, threads: int) -> Session:
        """A session of that kind."""
        from mnnx import BackendConfig, ScheduleConfig

        interpreter.set_cache_file(self.cache_file)
        return interpreter.create_session(
            ScheduleConfig(
                backend=backend,
                num_threads=threads,
                backend_config=BackendConfig(precision=self.precision),
                tune=self.tune,
                tune_seconds=self.tune_seconds,
                inter_op_threads=self.inter_op_threads,
            )
        )


def session_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options to a command, which gets them as `options: SessionOptions`."""

    @PRECISION
    @click.option("--tune", is_flag=True, help="Choose algorithms and tiles by measuring them first.")
    @click.option(
        "--tune-seconds", type=FiniteRange(0, 86400, min_open=True), default=10.0, show_default=True, help="How long that may take."
    )
    @click.option("--cache-file", metavar="FILE", help="Where times measured before are looked up, and new ones are kept.")
    @functools.wraps(function)
    def bundled(precision: str, tune: bool, tune_seconds: float, cache_file: str | None, inter_op_threads: int = 1, **others: Any) -> Any:
        return function(options=SessionOptions(precision, tune, tune_seconds, cache_file, inter_op_threads), **others)

    return bundled
