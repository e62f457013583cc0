"""`mnnx extract`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mnnx.tools.convert import LEVEL
from mnnx.tools.main import Command


def _split(_context: Any, _parameter: Any, texts: tuple[str, ...]) -> list[str] | None:
    return [name for text in texts for name in text.split(",")] or None


@click.command("extract", cls=Command)
@click.argument("model")
@click.argument("target")
@click.option("--inputs", multiple=True, callback=_split, metavar="NAME,…", help="Tensors to start from (default: the model's inputs).")
@click.option("--outputs", multiple=True, callback=_split, metavar="NAME,…", help="Tensors to compute (default: the model's outputs).")
@LEVEL
def command(model: str, target: str, inputs: list[str] | None, outputs: list[str] | None, level: int) -> None:
    """Write the part of MODEL (.mnnx, or .onnx, of which --level then holds) between named tensors to TARGET (.mnnx).

    `mnnx inspect --text` lists the tensors of a model.
    """
    import mnnx
    from mnnx.schema.graph_text import type_text
    from mnnx.schema.reader import read_model
    from mnnx.schema.text import size
    from mnnx.tools.tables import print_pairs

    mnnx.extract(model, target, inputs=inputs, outputs=outputs, level=level)
    graph = read_model(target).graphs[0]
    rows = [("model", f"{model} → {target}"), ("ops", len(graph.nodes)), ("size", size(Path(target).stat().st_size))]
    for title, indices in (("input", graph.inputs), ("output", graph.outputs)):
        rows += [(title, f"{graph.values[i].name} {type_text(graph.values[i])}") for i in indices]
    print_pairs(rows)
