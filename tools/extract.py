"""`mnnx extract`."""

from __future__ import annotations

import click

from mnnx.tools.convert import LEVEL
from mnnx.tools.main import Command
from mnnx.tools.options import tensor_names


@click.command("extract", cls=Command)
@click.argument("model")
@click.argument("target")
@click.option("--inputs", multiple=True, metavar="NAME[,NAME…]", help="Tensors to start from (default: the model's inputs).")
@click.option("--outputs", multiple=True, metavar="NAME[,NAME…]", help="Tensors to compute (default: the model's outputs).")
@LEVEL
def command(model: str, target: str, inputs: tuple[str, ...], outputs: tuple[str, ...], level: int) -> None:
    """Write the part of MODEL (.mnnx, or .onnx, of which --level then holds) between named tensors to TARGET (.mnnx).

    `mnnx inspect --text` lists the tensors of a model.
    """
    import mnnx

    names = {"inputs": tensor_names(inputs) or None, "outputs": tensor_names(outputs) or None}
    click.echo(str(mnnx.extract(model, target, **names, level=level)))
