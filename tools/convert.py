"""`mnnx convert`, and the console script `convert`."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mnnx.tools.feeds import each
from mnnx.tools.main import Command

if TYPE_CHECKING:
    from mnnx.converter.report import ConversionReport
    from mnnx.schema.model import Range
    from mnnx.tools.verification import Verification

LEVEL = click.option(
    "--level",
    type=click.IntRange(0, 3),
    default=2,
    show_default=True,
    help="0 keeps every op, 1 removes what has no effect and folds constants, 2 also fuses ops, 3 also allows rewrites that "
    "round differently.",
)
_PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".pdf", ".svg", ".tif", ".tiff")
#: Of an input: sizes, names, and None for what stays as it is.
Shape = tuple["int | str | Range | None", ...]
_STAGES = {"import": "reading the model", "optimize": "optimizing", "write": "writing the file", "done": "done"}


def _input_shapes(_context: click.Context, _option: click.Parameter, texts: Sequence[str]) -> dict[str, Shape]:
    """Input name → shape, of texts that have one or more NAME:1x3x?x1..8 with commas between them. A name may have colons."""
    shapes: dict[str, Shape] = {}
    for text in (part for given in texts for part in given.split(",")):
        name, found, sizes = text.rpartition(":")
        dims = tuple(_dim(size) for size in sizes.split("x")) if sizes else ()
        if not name or not found or "" in dims:
            raise click.BadParameter(f"{text!r} isn't NAME:1x3x224x224, with ? or 1..8 for what stays open (NAME: for a scalar)")
        if name in shapes:
            raise click.BadParameter(f"{name!r} is given twice")
        shapes[name] = dims
    return shapes


def _size(text: str) -> tuple[str, int | Range]:
    """The name of a dim and its size or range, of NAME=4 or NAME=1..8."""
    name, found, size = text.rpartition("=")
    dim = _dim(size)
    if not found or not isinstance(dim, int | tuple):
        raise click.BadParameter(f"{text!r} isn't DIM=SIZE with a whole number, or a range as 1..8")
    return name, dim


def _dim(text: str) -> int | str | Range | None:
    text = text.strip()
    if text == "?":
        return None
    if limits := re.fullmatch(r"(\d*)\.\.(\d*)", text):
        smallest, largest = limits.groups()
        return int(smallest or 0), int(largest) if largest else None
    if text.startswith("-"):
        raise click.BadParameter(f"{text} is no size of a dim; ? leaves it open")
    return int(text) if text.isdecimal() else text


INPUT_SHAPE = click.option(
    "--input-shape",
    "input_shapes",
    multiple=True,
    callback=_input_shapes,
    metavar="NAME:1x3x224x224",
    help="Fix the shape of an input; ? leaves a dim open, 1..8 within these limits. What follows from it is computed now.",
)
DIM = click.option(
    "--dim", "sizes", multiple=True, callback=each(_size), metavar="DIM=SIZE", help="The size of a named dim, or its limits: 1..8."
)


def _list_passes(context: click.Context, _option: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        from mnnx.tools.tables import print_json, print_table

        rows = list(_passes())
        if context.params["as_json"]:  # eager, so it is known by now
            print_json(rows)
        else:
            cells = [[row["name"], row["when"], row["description"]] for row in rows]
            print_table("passes, in their order", ["name", "when it runs", "what it does"], cells)
        context.exit()


def _passes() -> Iterator[dict[str, Any]]:
    """All that may change a graph, for JSON."""
    from mnnx.converter import half_weights
    from mnnx.converter.passes import list_passes

    for one in list_passes():
        when = f"from level {one.level} on" if one.level else "at every level"
        yield {"name": one.name, "level": one.level, "when": when, "description": one.description()}
    when = "with --fp16 or --weights"
    yield {"name": half_weights.NAME, "level": 0, "when": when, "description": "Stores large float32 weights in 16 bits, each with a Cast"}


@click.command("convert", cls=Command)
@click.argument("source")
@click.argument("target")
@LEVEL
@INPUT_SHAPE
@DIM
@click.option("--disable-pass", "disable_passes", multiple=True, metavar="NAME", help="Don't run a pass.")
@click.option("--dump-pass", "dump_passes", metavar="FOLDER", help="Write the graph as text into FOLDER after each pass.")
@click.option("--explain", metavar="NODE", help="Say for each pass what it did at a node (or a result, or an op type), or why nothing.")
@click.option("--list-passes", is_flag=True, expose_value=False, callback=_list_passes, help="List the passes, and leave.")
@click.option(
    "--weights",
    type=click.Choice(["float32", "float16", "bfloat16"]),
    show_default="float32",
    help="What large float32 weights are stored as. Products are computed in float32 all the same.",
)
@click.option("--fp16", is_flag=True, help="The same as --weights float16: a file of half the size.")
@click.option("-v", "--verbose", is_flag=True, help="Say what each pass did.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
@click.option("--json", "as_json", is_flag=True, is_eager=True, help="Print the report as JSON.")
@click.option(
    "--verify",
    "is_verified",
    is_flag=True,
    help="Then compare what TARGET computes on random inputs with a reference; exit status 1 where it differs. See `mnnx verify`.",
)
def command(
    source: str,
    target: str,
    level: int,
    weights: str | None,
    fp16: bool,
    input_shapes: dict[str, Shape],
    sizes: list[tuple[str, int | Range]],
    disable_passes: tuple[str, ...],
    dump_passes: str | None,
    explain: str | None,
    verbose: bool,
    quiet: bool,
    as_json: bool,
    is_verified: bool,
) -> None:
    """Convert the ONNX model SOURCE into the file TARGET (.mnnx), which replaces one of that name whole or not at all.

    This `convert` is mnnx's. ImageMagick has a command of the same name.
    """
    if source.lower().endswith(_PICTURES):
        raise click.UsageError(
            f"{source} is a picture; this is mnnx's convert, for ONNX models. ImageMagick's is `magick`, or /usr/bin/convert"
        )
    if fp16 and weights not in (None, "float16"):
        raise click.UsageError(f"--fp16 and --weights {weights} contradict each other")
    weights = "float16" if fp16 else weights or "float32"
    import mnnx

    options = {"input_shapes": input_shapes, "dims": dict(sizes), "disable_passes": disable_passes}
    watching = {"dump_passes": dump_passes, "explain": explain}
    with progress(quiet or as_json) as say:
        report = mnnx.convert(source, target, level=level, weights=weights, **options, **watching, progress=say)
    if not as_json and not quiet:
        if verbose and (details := report.details()):
            click.echo(details)
        if explain is not None:
            click.echo(report.explanation())
        click.echo(str(report))
    verification = _verified(source, target, report, weights, options) if is_verified else None
    if as_json:
        from mnnx.tools.tables import print_json

        print_json(as_dict(report) | ({"verification": verification.as_dict()} if verification else {}))
    if verification:
        if not as_json and not (quiet and verification.equal):
            from mnnx.tools.verify import print_verification

            print_verification(source, verification)
        if not verification.equal:
            raise SystemExit(1)


def _verified(source: str, target: str, report: ConversionReport, weights: str, options: dict[str, Any]) -> Verification:
    """What comparing the target with references gives, for the smallest sizes of dims that have a range.

    Raises InputError where an input has another open dim beside its batch, MnnxError where something can't run.
    """
    from mnnx.errors import InputError, MnnxError
    from mnnx.tools.comparison import Bounds
    from mnnx.tools.feeds import FeedOptions
    from mnnx.tools.verification import Verifier

    sizes = {name: max(1, smallest) for name, (smallest, _) in report.ranges.items()}
    still_open = {n: dims for n, dims in report.dynamic_dims.items() if not all(isinstance(d, int) or d in sizes for d in dims[1:])}
    if still_open:
        given = {n: ",".join(str(d) if isinstance(d, int) else str(sizes.get(d, "SIZE")) for d in dims) for n, dims in still_open.items()}
        raise InputError(
            f"{target} is written, but not verified: the input {next(iter(still_open))!r} has open dims. Give their sizes: "
            + " ".join([f"mnnx verify {shlex.quote(source)}", *(f"--shape {shlex.quote(f'{n}=')}{text}" for n, text in given.items())])
        )
    bounds = {"float32": Bounds(), "float16": Bounds(rtol=1e-2), "bfloat16": Bounds(rtol=5e-2)}[weights]
    changed = {key: value for key, value in (options | {"weights": "" if weights == "float32" else weights}).items() if value}
    try:
        return Verifier(source, report.level, bounds, options=changed).verify(Path(target), FeedOptions({}, {}, sizes, 0, {}))
    except MnnxError as error:
        advice = f"mnnx verify {shlex.quote(source)} takes inputs (-i) and shapes"
        raise type(error)(f"{target} is written, but not verified: {error}. {advice}") from error


@contextmanager
def progress(hidden: bool = False) -> Iterator[Callable[[str, float], None]]:
    """A progress bar on stderr while a conversion runs, where that is a terminal; gives the `progress` argument of `mnnx.convert`."""
    if hidden or not sys.stderr.isatty():
        yield lambda stage, fraction: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # a seventh of a small model's conversion

    from mnnx.tools.tables import console

    columns = (TextColumn("{task.description:<18}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda stage, fraction: bar.update(task, description=_STAGES.get(stage, stage), completed=fraction)


def as_dict(report: ConversionReport) -> dict[str, Any]:
    """A report for JSON."""
    return {
        "source": report.source,
        "target": report.target,
        "level": report.level,
        "ops_before": report.ops_before.total(),
        "ops_after": report.ops_after.total(),
        "op_counts_before": dict(sorted(report.ops_before.items())),
        "op_counts_after": dict(sorted(report.ops_after.items())),
        "passes": [{"name": p.name, "counts": p.counts, "seconds": p.seconds} for p in report.passes],
        "dynamic_dims": report.dynamic_dims,
        "ranges": report.ranges,
        "source_bytes": report.source_bytes,
        "target_bytes": report.target_bytes,
        "seconds": report.seconds,
        "explanations": [asdict(one) for one in report.explanations],
    }
