"""`mnnx run`."""

from __future__ import annotations

import re
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click

from mnnx.errors import InputError
from mnnx.tools.feeds import FeedOptions, feed_options, make_feed, telling_of_random_values
from mnnx.tools.main import Command
from mnnx.tools.options import tensor_names
from mnnx.tools.session_options import INTER_OP_THREADS, SessionOptions, session_options

if TYPE_CHECKING:
    import numpy as np

    from mnnx.schema.model import Model

THREADS = click.option("--threads", type=click.IntRange(0, 256), default=0, help="Threads to compute on (default: all CPUs it may use).")
BACKEND = click.option("--backend", default="cpu", show_default=True, help="The device to run on.")


def _archive_name(_context: Any, _parameter: Any, path: str | None) -> str | None:
    if path is not None and not path.endswith(".npz"):
        raise click.BadParameter(f"{path!r} must end in .npz; --output-dir writes .npy files")
    return path


class _Stopwatch:
    """Adds up the time spent within `with` blocks, in seconds."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *_exc: object) -> None:
        self.seconds += time.perf_counter() - self._start

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose time counts."""

        def inner(*arguments: Any) -> Any:
            with self:
                return function(*arguments)

        return inner


@click.command("run", cls=Command)
@click.argument("model")
@feed_options
@click.option(
    "--outputs", multiple=True, metavar="NAME[,NAME…]", help="Outputs, or any tensors inside the model, to compute (default: all outputs)."
)
@click.option("--save", metavar="FILE.npz", callback=_archive_name, help="Write the outputs to one file.")
@click.option("--output-dir", metavar="DIR", help="Write the outputs to one .npy file each.")
@THREADS
@INTER_OP_THREADS
@BACKEND
@session_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def command(
    model: str,
    feeds: FeedOptions,
    outputs: tuple[str, ...],
    save: str | None,
    output_dir: str | None,
    threads: int,
    backend: str,
    options: SessionOptions,
    as_json: bool,
) -> None:
    """Run MODEL (.mnnx, or .onnx where onnx is installed) once and say what comes out."""
    import mnnx
    from mnnx.tools.models import mnnx_file
    from mnnx.tools.tables import print_json, print_table

    with mnnx_file(model) as file:
        load, first_run = _Stopwatch(), _Stopwatch()
        with load:
            interpreter = mnnx.Interpreter.from_file(file)
        with interpreter:
            chosen = tensor_names(outputs, known_names(interpreter.model)) or None
            with load:
                session = options.create_session(interpreter, backend, threads)
            # With chosen outputs the rest of the model may be one that can't be planned.
            feed = make_feed(session.inputs, feeds, None if chosen else load.timed(session.resize))
            with first_run, telling_of_random_values(session.inputs, feeds):
                results = session.run(feed, outputs=chosen)
            info = session.info()
    saved = _save(results, save, output_dir)
    rows = [summary(name, value) for name, value in results.items()]
    if as_json:
        counts = {key: info[key] for key in ("kernels_compiled", "tuned", "tuned_from_cache")}
        times = {"load_ms": load.seconds * 1e3, **counts, "first_run_ms": first_run.seconds * 1e3}
        print_json({"model": model} | times | {"outputs": rows, "saved": saved})
        return
    columns = ["output", "dtype", "shape", ">min", ">mean", ">max"]
    compiled = info["kernels_compiled"]
    kernels = f"{compiled} kernel{'s'[: compiled != 1]} compiled" if compiled else "no kernels to compile"
    if options.tune or options.cache_file:
        kernels += f", tuned by {info['tuned']} measured problems and {info['tuned_from_cache']} from the cache file"
    title = f"{model}: loaded in {load.seconds:.2f} s, {kernels}, first run {first_run.seconds * 1e3:.1f} ms"
    print_table(title, columns, [_cells(row) for row in rows])
    for path in saved:
        click.echo(f"saved {path}")


def known_names(model: Model) -> set[str]:
    """The tensors that a model has, and those that it had before passes took them away."""
    return {value.name for value in model.graphs[0].values} | {gone.name for gone in model.removed}


def summary(name: str, value: Any) -> dict[str, Any]:
    """What there is to say of an output in one line: name, dtype, shape, and for numbers min, mean and max."""
    import numpy as np

    from mnnx.schema import dtypes

    if not isinstance(value, np.ndarray):
        what = "absent" if value is None else f"{'map' if isinstance(value, dict) else 'sequence'} of {len(value)}"
        return {"name": name, "dtype": what, "shape": None, "min": None, "mean": None, "max": None}
    row = {"name": name, "dtype": dtypes.name(value.dtype), "shape": list(value.shape), "min": None, "mean": None, "max": None}
    if value.size and value.dtype != dtypes.STRING and value.dtype.kind != "c":
        wide = value if value.dtype.kind in "iu" and value.dtype.isbuiltin == 1 else value.astype(np.float64)
        row |= {"min": wide.min().item(), "mean": float(wide.mean()), "max": wide.max().item()}
    return row


def _cells(row: dict[str, Any]) -> list[str]:
    numbers = ["" if row[key] is None else f"{row[key]:.6g}" for key in ("min", "mean", "max")]
    return [row["name"], row["dtype"], "" if row["shape"] is None else str(row["shape"]), *numbers]


def _save(results: dict[str, Any], archive: str | None, folder: str | None) -> list[str]:
    if archive is None and folder is None:
        return []
    import numpy as np

    from mnnx.schema.files import make_folder, whole_file

    arrays = {key: array for name, value in results.items() for key, array in _arrays(name, value)}
    saved = []
    if archive is not None:
        with whole_file(archive) as file, zipfile.ZipFile(file, "w") as members:
            for key, array in arrays.items():
                with members.open(f"{key}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
        saved.append(archive)
    if folder is not None:
        make_folder(folder)
        names: set[str] = set()
        for key, array in arrays.items():
            name = re.sub(r"[^\w.-]+", "_", key)
            while name in names:
                name += "_"
            names.add(name)
            path = Path(folder) / f"{name}.npy"
            with whole_file(path) as file:
                np.save(SimpleNamespace(write=file.write), array, allow_pickle=False)  # to a file of its own NumPy won't say why it can't
            saved.append(str(path))
    return saved


def _arrays(name: str, value: Any) -> list[tuple[str, np.ndarray]]:
    """An output as arrays that .npy files can hold: text as fixed-width strings, bfloat16 and its kin as float32, int4 as int8."""
    import numpy as np

    from mnnx.schema import dtypes

    if isinstance(value, list):
        return [pair for index, item in enumerate(value) for pair in _arrays(f"{name}/{index}", item)]
    if not isinstance(value, np.ndarray):
        raise InputError(
            f"the output {name!r} is {'absent' if value is None else 'a map'}, which NumPy files can't hold; choose others with --outputs"
        )
    if value.dtype == dtypes.STRING:
        return [(name, value.astype(str))]
    if value.dtype.isbuiltin != 1:
        return [(name, value.astype(np.float32 if dtypes.is_float(value.dtype) else np.int8))]
    return [(name, value)]
