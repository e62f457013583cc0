"""The command `mnnx`: a group of subcommands, each loaded when it is asked for."""

from __future__ import annotations

import errno
import importlib
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

import mnnx
from mnnx.errors import MnnxError

#: Subcommands in the order in which the help lists them, with what they do in a few words; each is the `command` of the module of its
#: name in this folder.
COMMANDS = {
    "convert": "Convert an ONNX model into an .mnnx file.",
    "run": "Run a model once and say what comes out.",
    "inspect": "Say what is in a model: inputs, outputs, ops, weights, memory.",
    "extract": "Make a model of the part between named tensors.",
    "verify": "Compare what a model computes with a reference.",
    "benchmark": "Measure how fast a model starts and runs.",
    "profile": "Measure how long each op of a model takes.",
    "kernels": "Make and manage compiled kernels.",
    "ops": "List the ONNX ops that are supported.",
}


#: What a shell says of a process that SIGPIPE ended.
_BROKEN_PIPE = 141


@contextmanager
def _quiet_where_nobody_reads() -> Iterator[None]:
    """Ends the process as other tools end, without a word, where a reader of the output (`| head`) has gone."""
    try:
        try:
            yield
        except (click.exceptions.Exit, SystemExit):
            sys.stdout.flush()
            raise
    except OSError as error:
        if error.errno != errno.EPIPE:
            raise
        _discard_output()
        raise SystemExit(_BROKEN_PIPE) from None


class Command(click.Command):
    """A command whose MnnxErrors, lack of memory, and files that can't be read or written end as one message on stderr and the exit
    status 1."""

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        with _quiet_where_nobody_reads():
            return super().make_context(*args, **options)

    def invoke(self, ctx: click.Context) -> object:
        with _quiet_where_nobody_reads():
            return self._invoke(ctx)

    def _invoke(self, ctx: click.Context) -> object:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except MnnxError as error:
            raise click.ClickException(str(error)) from error
        except MemoryError as error:
            text = f"not enough memory{f': {error}' if str(error) else ''}; smaller shapes (--shape, --dim) need less"
            raise click.ClickException(text) from error
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            if error.filename is None:
                _discard_output()
            raise click.ClickException(f"{error.filename or 'the output'}: {error.strerror or error}") from error


def _discard_output() -> None:
    """Lets go of what couldn't be written to stdout, which would fail once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Commands(click.Group):
    def make_context(self, *args: Any, **options: Any) -> click.Context:
        with _quiet_where_nobody_reads():
            return super().make_context(*args, **options)

    def invoke(self, ctx: click.Context) -> object:
        with _quiet_where_nobody_reads():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return importlib.import_module(f"mnnx.tools.{cmd_name}").command if cmd_name in COMMANDS else None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(mnnx.__version__, prog_name="mnnx")
def cli() -> None:
    """Neural network inference on small machines: converts ONNX models to .mnnx files, runs them and looks into them."""


def main() -> None:
    """The console script `mnnx`."""
    _open_closed_outputs()
    _leave_on_signals()
    cli(prog_name="mnnx")


def convert_main() -> None:
    """The console script `convert`: the same as `mnnx convert`."""
    from mnnx.tools.convert import command

    _open_closed_outputs()
    _leave_on_signals()
    command(prog_name="convert")


def _open_closed_outputs() -> None:
    """Gives a process that was started without stdout or stderr (`>&-`), which Python then has None for, some that nobody reads."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))


def _leave_on_signals() -> None:
    """Lets the signals that ask a process to end do so with the cleaning up of an exit: no unfinished file stays behind."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # under nohup it isn't
            signal.signal(number, _leave)


def _leave(number: int, _frame: object) -> None:
    signal.signal(number, signal.SIG_DFL)  # what hinders this exit doesn't hinder a second signal
    sys.exit(128 + number)
