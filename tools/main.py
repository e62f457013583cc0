"""The command `mnnx`: a group of subcommands, each loaded when it is asked for."""

from __future__ import annotations

import importlib

import click

import mnnx
from mnnx.errors import MnnxError

#: Subcommands in the order in which the help lists them; each is the `command` of the module of its name in this folder.
COMMANDS = ("convert", "run", "inspect", "verify", "benchmark", "profile", "kernels", "ops")


class Command(click.Command):
    """A command whose MnnxErrors, lack of memory, and files that can't be read or written end as one message on stderr and the exit
    status 1."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except MnnxError as error:
            raise click.ClickException(str(error)) from error
        except MemoryError as error:
            text = f"not enough memory{f': {error}' if str(error) else ''}; smaller shapes (--shape, --dim) need less"
            raise click.ClickException(text) from error
        except OSError as error:
            if error.filename is None:
                raise
            raise click.ClickException(f"{error.filename}: {error.strerror}") from error


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return importlib.import_module(f"mnnx.tools.{cmd_name}").command if cmd_name in COMMANDS else None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(mnnx.__version__, prog_name="mnnx")
def cli() -> None:
    """Neural network inference on small machines: converts ONNX models to .mnnx files, runs them and looks into them."""


def main() -> None:
    """The console script `mnnx`."""
    cli(prog_name="mnnx")


def convert_main() -> None:
    """The console script `convert`: the same as `mnnx convert`."""
    from mnnx.tools.convert import command

    command(prog_name="convert")
