"""`mnnx verify`: the same inputs through the optimized model, the unoptimized one, and a reference."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mnnx.tools.comparison import Bounds, sufficient_rtol
from mnnx.tools.convert import LEVEL, progress
from mnnx.tools.feeds import FeedOptions, feed_options
from mnnx.tools.main import Command
from mnnx.tools.options import FiniteRange
from mnnx.tools.run import BACKEND, THREADS
from mnnx.tools.session_options import PRECISION

if TYPE_CHECKING:
    from mnnx.tools.verification import Verification


@click.command("verify", cls=Command)
@click.argument("model")
@feed_options
@LEVEL
@click.option(
    "--rtol",
    type=FiniteRange(0),
    default=Bounds().rtol,
    show_default=True,
    help="Allowed difference relative to the largest value of a tensor.",
)
@click.option("--atol", type=FiniteRange(0), default=Bounds().atol, show_default=True, help="Allowed difference that is added to it.")
@click.option(
    "--reference",
    type=click.Choice(["auto", "onnxruntime", "onnx"]),
    default="auto",
    show_default=True,
    help="What to compare with: onnxruntime, or onnx's reference evaluator. auto: onnxruntime where it is installed and can run the model.",
)
@THREADS
@BACKEND
@PRECISION
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def command(
    model: str,
    feeds: FeedOptions,
    level: int,
    rtol: float,
    atol: float,
    reference: str,
    threads: int,
    backend: str,
    precision: str,
    as_json: bool,
) -> None:
    """Convert the ONNX model MODEL, run it, the same without optimization, and a reference on the same inputs, and compare the outputs.

    Where they differ by more than --rtol and --atol allow, the exit status is 1. If the unoptimized model is wrong, the first op is named
    that is wrong on the reference's own inputs; if the optimized one is, the first pass after which it is, and the op that it made.
    """
    import mnnx
    from mnnx.tools.tables import print_json

    with tempfile.TemporaryDirectory(prefix="mnnx-") as folder:
        file = Path(folder) / "model.mnnx"
        with progress(as_json) as say:
            mnnx.convert(model, file, level=level, progress=say)
        from mnnx.tools.verification import Verifier  # the references import onnx, of which convert says how to install it

        bounds = Bounds(rtol, atol)
        config = mnnx.ScheduleConfig(backend=backend, num_threads=threads, backend_config=mnnx.BackendConfig(precision=precision))
        report = Verifier(model, level, bounds, reference, config).verify(file, feeds)
    if as_json:
        print_json({"model": model} | report.as_dict())
    else:
        print_verification(model, report)
    if not report.equal:
        raise SystemExit(1)


def print_verification(model: str, report: Verification) -> None:
    """The outputs in a table, and what is wrong."""
    from mnnx.schema.model import dims_text
    from mnnx.tools.tables import print_table

    if report.reference_problem:
        click.echo(f"{report.reference_problem}; the optimized model is compared with the unoptimized one alone")
    plain = report.unoptimized
    heads = [f"level {report.level}", ">max error", *(["level 0", ">max error"] if plain else []), ">allowed", "note"]
    cells = []
    for place, row in enumerate(report.outputs):
        both = [row, *plain[place : place + 1]]
        verdicts = [text for one in both for text in ("ok" if one["equal"] else "DIFFERS", _number(one["error"]))]
        shape = "" if row["shape"] is None else dims_text(row["shape"])
        cells.append(
            [row["name"], row["dtype"], shape, *verdicts, _number(row["allowed"]), next((r["note"] for r in both if r["note"]), "")]
        )
    print_table(f"{model}: mnnx against {report.reference}", ["output", "dtype", "shape", *heads], cells)
    if report.failure:
        click.echo(f"the optimized model can't run: {report.failure}")
    if report.equal:
        steps = any(row["rounding_steps"] for row in [*report.outputs, *plain])
        click.echo("all outputs agree" + (", but for single rounding steps of quantized values" if steps else ""))
        return
    if report.problem is not None:
        click.echo(f"outputs differ; where that begins can't be seen: {report.problem}")
    elif report.wrong_op is None and report.wrong_pass is None:
        click.echo("outputs differ, but no tensor inside the model that exists on both sides does")
    if report.wrong_op is not None:
        _print_op(report.wrong_op)
    if report.wrong_pass is not None:
        _print_pass(report.wrong_pass)
    if any(row is not None and row["rounding_steps"] for row in (report.wrong_op, (report.wrong_pass or {}).get("tensor"))):
        click.echo(
            "That is no fault by itself: a value on the edge between two quantized ones may be rounded either way, and what follows "
            "magnifies it."
        )
        enough = sufficient_rtol([*report.outputs, *report.unoptimized], *report.bounds)
        click.echo(f"The outputs differ by more than is allowed, though{f'; --rtol {enough:g} would allow it' if enough else ''}.")


def _print_op(row: dict[str, Any]) -> None:
    """What is known of the first op that is wrong without any optimization."""
    made = f"{row['name']!r}, made by the {row['op']} node {row['node']!r}"
    if row["alone"] is False:
        click.echo(f"the first tensor that differs is {made}: {_difference(row)}")
        if not row["rounding_steps"]:
            click.echo("On the reference's own inputs no op differs that was looked at: what was rounded before them is magnified.")
    else:
        click.echo(f"the first wrong op, without optimization, makes {made}: {_difference(row)}")
        if row["alone"]:
            click.echo("It differs by itself too, on the reference's inputs.")
    if row["execution_differs"]:
        click.echo("Its NumPy execution gives something else on the same inputs: the backend's execution is wrong.")
    click.echo(f"({row['compared']} of the model's {row['tensors']} tensors could be compared)")


def _print_pass(found: dict[str, Any]) -> None:
    """What is known of the first pass that changes the numbers."""
    rewrites = ", ".join(f"{what} ({count})" for what, count in found["rewrites"].items())
    click.echo(f"the first pass after which outputs differ is {found['pass']!r}, number {found['position']}, which did: {rewrites}")
    row = found["tensor"]
    if found["error"]:
        click.echo(f"after it the model can't run: {found['error']}")
    elif row is not None:
        click.echo(f"the first wrong op after it makes {row['name']!r}: the {row['op']} node {row['node']!r}: {_difference(row)}")
    if found["execution_differs"]:
        click.echo("That op's NumPy execution gives something else on the same inputs: the backend's execution is wrong, not the pass.")


def _difference(row: dict[str, Any]) -> str:
    return row["note"] if row["error"] is None else f"max error {row['error']:.3g}, allowed {row['allowed']:.3g}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"
