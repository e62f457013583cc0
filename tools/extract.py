"""`mnnx extract`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mnnx.tools.convert import DIM, INPUT_SHAPE, LEVEL, Shape
from mnnx.tools.main import Command
from mnnx.tools.options import tensor_names

if TYPE_CHECKING:
    from mnnx.schema.model import Range


@click.command("extract", cls=Command)
@click.argument("model")
@click.argument("target")
@click.option("--inputs", multiple=True, metavar="NAME[,NAME…]", help="Tensors to start from (default: the model's inputs).")
@click.option("--outputs", multiple=True, metavar="NAME[,NAME…]", help="Tensors to compute (default: the model's outputs).")
@LEVEL
@INPUT_SHAPE
@DIM
def command(
    model: str,
    target: str,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    level: int,
    input_shapes: dict[str, Shape],
    sizes: list[tuple[str, int | Range]],
) -> None:
    """Write the part of MODEL (.mnnx, or .onnx, of which --level then holds) between named tensors to TARGET (.mnnx).

    `mnnx inspect --text` lists the tensors of a model. --input-shape and --dim are of the inputs of a whole .onnx model, as with convert.
    """
    import mnnx

    names = {"inputs": tensor_names(inputs) or None, "outputs": tensor_names(outputs) or None}
    click.echo(str(mnnx.extract(model, target, **names, level=level, input_shapes=input_shapes, dims=dict(sizes))))
