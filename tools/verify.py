"""`mnnx verify`: the same inputs through mnnx and through a reference."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mnnx.errors import MnnxError
from mnnx.tools.convert import LEVEL, progress
from mnnx.tools.feeds import FeedOptions, feed_options, make_feed, telling_of_random_values
from mnnx.tools.main import Command
from mnnx.tools.run import BACKEND, THREADS

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from mnnx.interpreter.interpreter import Interpreter
    from mnnx.interpreter.session import Session
    from mnnx.tools.references import Reference


@click.command("verify", cls=Command)
@click.argument("model")
@feed_options
@LEVEL
@click.option("--rtol", default=1e-3, show_default=True, help="Allowed difference relative to the largest value of a tensor.")
@click.option("--atol", default=1e-5, show_default=True, help="Allowed difference that is added to it.")
@click.option(
    "--reference",
    type=click.Choice(["auto", "onnxruntime", "onnx"]),
    default="auto",
    show_default=True,
    help="What to compare with: onnxruntime, or onnx's reference evaluator. auto: onnxruntime where it is installed.",
)
@THREADS
@BACKEND
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
    as_json: bool,
) -> None:
    """Convert the ONNX model MODEL, run it and a reference on the same inputs, and compare the outputs.

    Where they differ by more than --rtol and --atol allow, the exit status is 1, and all tensors inside the model that still exist are
    compared in topological order to name the first one that differs. A lower --level keeps more tensors.
    """
    import mnnx
    from mnnx.tools.tables import print_json

    with tempfile.TemporaryDirectory(prefix="mnnx-") as folder:
        file = Path(folder) / "model.mnnx"
        with progress(as_json) as say:
            mnnx.convert(model, file, level=level, progress=say)
        from mnnx.tools.references import choose_reference  # imports onnx, of which convert says how to install it

        chosen = choose_reference(reference, model)
        with mnnx.Interpreter.from_file(file) as interpreter:
            session = interpreter.create_session(mnnx.ScheduleConfig(backend=backend, num_threads=threads))
            feed = make_feed(session.inputs, feeds, session.resize)
            with telling_of_random_values(session.inputs, feeds):
                got = session.run(feed)
            quantizing = _made_by_quantization(chosen.proto)
            rows = [compare(name, got[name], value, rtol, atol, name in quantizing) for name, value in chosen.run(feed).items()]
            equal = all(row["equal"] for row in rows)
            first, problem = (None, None) if equal else _located(chosen, interpreter, session, feed, rtol, atol)
    if as_json:
        print_json(
            {"model": model, "reference": chosen.name, "equal": equal, "outputs": rows, "first_difference": first, "problem": problem}
        )
    else:
        _print(model, chosen.name, rows, first, problem, rtol, atol)
    if not equal:
        raise SystemExit(1)


def compare(name: str, got: Any, wanted: Any, rtol: float, atol: float, quantized: bool = False) -> dict[str, Any]:
    """How a value differs from the reference's: {name, dtype, shape, equal, error, allowed, note, rounding_steps}.

    Floats are equal where |got - wanted| <= atol + rtol * max|wanted| for every finite value, and infinities and NaNs stand in the same
    places; everything else must be the same. quantized: integers are equal too where but a few values, rounding_steps, are one step off.
    """
    import numpy as np

    from mnnx.schema import dtypes

    row: dict[str, Any] = {"name": name, "dtype": "", "shape": None, "equal": False, "error": None, "allowed": None, "note": ""}
    row["rounding_steps"] = None
    wanted = np.asarray(wanted) if isinstance(wanted, np.generic) else wanted  # the reference evaluator gives some scalars so
    if not isinstance(wanted, np.ndarray):
        return row | _compare_others(name, got, wanted, rtol, atol)
    wanted = wanted.astype(object) if wanted.dtype.kind in "SUT" else wanted
    row |= {"dtype": dtypes.name(wanted.dtype), "shape": list(wanted.shape)}
    if not isinstance(got, np.ndarray):
        return row | {"note": f"mnnx gives {type(got).__name__}"}
    if (got.dtype, got.shape) != (wanted.dtype, wanted.shape):
        return row | {"note": f"mnnx gives {dtypes.name(got.dtype)} {list(got.shape)}"}
    if not (dtypes.is_float(wanted.dtype) or wanted.dtype.kind == "c") or not wanted.size:
        different = int(np.count_nonzero(got != wanted))
        if different and _is_rounding(got, wanted, different):
            note = f"one rounding step in {different} of {wanted.size} values"
            return row | {"equal": quantized, "note": note, "rounding_steps": different}
        return row | {"equal": not different, "note": f"{different} of {wanted.size} values differ" if different else ""}
    wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
    a, b = got.astype(wide), wanted.astype(wide)
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(a[finite]).all():
        places = int(np.count_nonzero(~((a == b) | (np.isnan(a) & np.isnan(b)) | (finite & np.isfinite(a)))))
        return row | {"note": f"NaN or infinity in {places} other places"}
    error = float(np.abs(a[finite] - b[finite]).max(initial=0.0))
    allowed = atol + rtol * float(np.abs(b[finite]).max(initial=0.0))
    return row | {"equal": error <= allowed, "error": error, "allowed": allowed}


def _is_rounding(got: np.ndarray, wanted: np.ndarray, different: int) -> bool:
    """Whether these may be quantized values that were rounded differently at the edge between two steps: integers of at most 16 bits,
    of which at most 1 % (or just one) are off, none by more than 1."""
    import numpy as np

    from mnnx.schema import dtypes

    if wanted.dtype in (dtypes.STRING, np.bool_) or wanted.dtype.itemsize > 2 or different > max(1, wanted.size // 100):
        return False
    return bool(np.abs(got.astype(np.int32) - wanted.astype(np.int32)).max() == 1)


def _made_by_quantization(proto: onnx.ModelProto) -> set[str]:
    """The tensors that ops which round to quantized values make."""
    kinds = ("QuantizeLinear", "DynamicQuantizeLinear", "QLinear")
    return {name for node in proto.graph.node if node.op_type.startswith(kinds) for name in node.output if name}


def _compare_others(name: str, got: Any, wanted: Any, rtol: float, atol: float) -> dict[str, Any]:
    """Sequences item by item, maps by their values in order of keys; the first item that differs speaks for all."""
    import numpy as np

    if wanted is None:
        return {"dtype": "absent", "equal": got is None}
    kind = "map" if isinstance(wanted, dict) else "sequence"
    if not isinstance(got, type(wanted)) or len(got) != len(wanted) or (kind == "map" and set(got) != set(wanted)):
        return {"dtype": kind, "note": "mnnx gives another number of items, or other keys"}
    keys = sorted(wanted) if kind == "map" else range(len(wanted))
    for key in keys:
        pair = [np.asarray(v[key]) if kind == "map" or np.isscalar(v[key]) else v[key] for v in (got, wanted)]
        if kind == "map":
            pair[0] = pair[0].astype(pair[1].dtype)  # Python numbers on both sides
        row = compare(f"{name}[{key!r}]", *pair, rtol, atol)
        if not row["equal"]:
            return {"dtype": kind, "error": row["error"], "allowed": row["allowed"], "note": f"item {key!r}: {row['note'] or 'differs'}"}
    return {"dtype": kind, "shape": [len(wanted)], "equal": True}


def find_first(
    reference: Reference, interpreter: Interpreter, session: Session, feed: Mapping[str, Any], rtol: float, atol: float
) -> dict[str, Any] | None:
    """The first tensor, in the order of the model's nodes, that differs: a row of `compare` with the node that makes it.

    Only tensors of the main graph that both sides still have can be seen; None where none of them differs.
    """
    values = interpreter.model.graphs[0].values
    alive = {v.name for v in values if v.constant is None}
    makers = {name: node for node in reference.proto.graph.node for name in node.output if name in alive}
    wanted = reference.run(feed, list(makers))
    got = session.run(feed, outputs=list(makers))
    for name, node in makers.items():
        row = compare(name, got[name], wanted[name], rtol, atol)
        if not row["equal"]:
            return row | {"node": node.name, "op": node.op_type, "compared": len(makers), "tensors": _tensors(reference.proto)}
    return None


def _located(*arguments: Any) -> tuple[dict[str, Any] | None, str | None]:
    """What `find_first` gives, and why it gives nothing where one side can't run for tensors inside the model."""
    try:
        return find_first(*arguments), None
    except MnnxError as error:
        return None, str(error)


def _tensors(proto: onnx.ModelProto) -> int:
    return sum(1 for node in proto.graph.node for name in node.output if name)


def _print(
    model: str, reference: str, rows: list[dict[str, Any]], first: dict[str, Any] | None, problem: str | None, rtol: float, atol: float
) -> None:
    from mnnx.schema.model import dims_text
    from mnnx.tools.tables import print_table

    cells = [[r["name"], r["dtype"], "" if r["shape"] is None else dims_text(r["shape"]), *_verdict(r)] for r in rows]
    print_table(f"{model}: mnnx against {reference}", ["output", "dtype", "shape", "", ">max error", ">allowed", "note"], cells)
    if all(row["equal"] for row in rows):
        steps = any(row["rounding_steps"] for row in rows)
        click.echo("all outputs agree" + (", but for single rounding steps of quantized values" if steps else ""))
    elif problem is not None:
        click.echo(f"outputs differ; where that begins can't be seen: {problem}")
    elif first is None:
        click.echo("outputs differ, but no tensor inside the model that exists on both sides does; a lower --level keeps more of them")
    else:
        error = f"max error {first['error']:.3g}, allowed {first['allowed']:.3g}" if first["error"] is not None else first["note"]
        click.echo(f"the first tensor that differs is {first['name']!r}, made by the {first['op']} node {first['node']!r}: {error}")
        click.echo(f"({first['compared']} of the model's {first['tensors']} tensors could be compared; a lower --level keeps more)")
        if first["rounding_steps"]:
            click.echo(
                "That is no fault by itself: a value on the edge between two quantized ones may be rounded either way, and what follows "
                "magnifies it."
            )
            enough = _sufficient_rtol(rows, rtol, atol)
            click.echo(f"The outputs differ by more than is allowed, though{f'; --rtol {enough:g} would allow it' if enough else ''}.")


def _sufficient_rtol(rows: list[dict[str, Any]], rtol: float, atol: float) -> float | None:
    """The --rtol, of one digit, with which all outputs would agree; None where none would do."""
    different = [row for row in rows if not row["equal"]]
    if rtol <= 0 or any(row["error"] is None or row["allowed"] <= atol for row in different):
        return None
    needed = max((row["error"] - atol) * rtol / (row["allowed"] - atol) for row in different)
    digit = 10.0 ** math.floor(math.log10(needed))
    return math.ceil(needed / digit) * digit


def _verdict(row: dict[str, Any]) -> list[str]:
    numbers = ["" if row[key] is None else f"{row[key]:.3g}" for key in ("error", "allowed")]
    return ["ok" if row["equal"] else "DIFFERS", *numbers, row["note"]]
