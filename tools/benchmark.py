"""`mnnx benchmark`."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import click

from mnnx.errors import InputError, MnnxError
from mnnx.tools.feeds import FeedOptions, feed_options, make_feed, telling_of_random_values
from mnnx.tools.main import Command
from mnnx.tools.options import FiniteRange
from mnnx.tools.session_options import INTER_OP_THREADS, SessionOptions, session_options

if TYPE_CHECKING:
    from pathlib import Path

#: Every engine gets its time in this many turns, so that a busy moment of the machine hits all of them.
_TURNS = 3


def _counts(_context: Any, _parameter: Any, text: str) -> list[int]:
    counts = text.split(",")
    if not all(count.isdecimal() and 0 <= int(count) <= 256 for count in counts):
        raise click.BadParameter(f"{text!r} isn't a list of numbers 0 … 256 with commas between them")
    return [int(count) for count in counts]


@click.command("benchmark", cls=Command)
@click.argument("model")
@feed_options
@click.option("--threads", default="0", callback=_counts, metavar="N[,N…]", help="Numbers of threads to try, e.g. 1,2,4 (0: all CPUs).")
@INTER_OP_THREADS
@click.option("--backends", default="cpu", show_default=True, metavar="NAME[,NAME…]", help="Devices to compare.")
@session_options
@click.option("--seconds", default=2.0, show_default=True, type=FiniteRange(0), help="How long to run each warm row.")
@click.option("--against-onnxruntime", is_flag=True, help="Also measure onnxruntime; MODEL must be an .onnx file.")
@click.option("--no-cold", is_flag=True, help="Leave out cold starts.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def command(
    model: str,
    feeds: FeedOptions,
    threads: list[int],
    backends: str,
    options: SessionOptions,
    seconds: float,
    against_onnxruntime: bool,
    no_cold: bool,
    as_json: bool,
) -> None:
    """Measure how fast MODEL (.mnnx or .onnx) runs.

    Cold: in a fresh process, the times to import the package, to load the model, and to run it first, and the process's largest memory.
    The very first start on a machine also compiles kernels, which later starts take from the cache; it gets a row of its own.
    With --tune all sessions are tuned before that.

    Warm: the times of many runs after that, as percentiles. Engines take turns.
    """
    if against_onnxruntime and not model.lower().endswith(".onnx"):
        raise click.UsageError(f"--against-onnxruntime needs the .onnx file, which onnxruntime can run too; {model} is none")
    if against_onnxruntime and importlib.util.find_spec("onnxruntime") is None:
        raise click.UsageError("--against-onnxruntime needs onnxruntime, which isn't installed: pip install onnxruntime")
    import mnnx
    from mnnx.tools.models import mnnx_file

    with mnnx_file(model) as file, _kept(options) as options:
        with mnnx.Interpreter.from_file(file) as interpreter, interpreter.create_session() as session:
            tensors = session.inputs
            feed = make_feed(session.inputs, feeds, session.resize)
        engines = [("mnnx", backend, count) for backend in backends.split(",") for count in threads]
        engines += [("onnxruntime", "cpu", count) for count in threads if against_onnxruntime]
        with _waiting("measuring", hidden=as_json), telling_of_random_values(tensors, feeds):
            if options.tune:
                _tune(engines, file, feed, options)
            files = {"mnnx": file, "onnxruntime": model}
            cold = [] if no_cold else [row for engine in engines for row in _cold(engine, files[engine[0]], feed, options)]
            warm = _warm(engines, file, model, feed, seconds, options._replace(tune=False))
    _print({"model": model, "cold": cold, "warm": warm}, as_json)


@contextmanager
def _waiting(what: str, hidden: bool) -> Iterator[None]:
    from mnnx.tools.tables import console

    screen = console(stderr=True)
    if hidden or not screen.is_terminal:
        yield
        return
    with screen.status(f"{what} …"):
        yield


@contextmanager
def _kept(options: SessionOptions) -> Iterator[SessionOptions]:
    """The same with a cache file in any case where something is tuned; one that wasn't asked for goes afterwards."""
    if not options.tune or options.cache_file is not None:
        yield options
        return
    import tempfile

    with tempfile.TemporaryDirectory(prefix="mnnx-") as folder:
        yield options._replace(cache_file=f"{folder}/tuning.json")


def _tune(engines: list[tuple[str, str, int]], file: Path, feed: dict[str, Any], options: SessionOptions) -> None:
    """Measures what sessions will choose among, into the cache file."""
    import mnnx

    for name, backend, threads in engines:
        if name == "mnnx":
            with mnnx.Interpreter.from_file(file) as interpreter:
                options.create_session(interpreter, backend, threads).run(feed)


def _cold(engine: tuple[str, str, int], file: str | Path, feed: dict[str, Any], options: SessionOptions) -> list[dict[str, Any]]:
    """Cold starts: where the first one had to compile kernels, another one follows."""
    rows = [_cold_start(engine, file, feed, options)]
    if rows[0]["kernels_compiled"]:
        rows.append(_cold_start(engine, file, feed, options))
    return rows


def _cold_start(engine: tuple[str, str, int], file: str | Path, feed: dict[str, Any], options: SessionOptions) -> dict[str, Any]:
    import pickle

    name, backend, threads = engine
    arguments = [name, backend, str(threads), str(options.inter_op_threads), options.precision, str(file), options.cache_file or ""]
    command = [sys.executable, "-m", "mnnx.tools.cold_start", *arguments]
    result = subprocess.run(command, input=pickle.dumps(feed), capture_output=True)
    if result.returncode:
        lines = result.stderr.decode(errors="replace").strip().splitlines()
        raise MnnxError(f"the cold start of {name} on {backend} failed: {lines[-1] if lines else f'exit status {result.returncode}'}")
    return {"engine": name, "backend": backend, "threads": threads} | json.loads(result.stdout)


def _warm(
    engines: list[tuple[str, str, int]], file: Path, source: str, feed: dict[str, Any], seconds: float, options: SessionOptions
) -> list[dict[str, Any]]:
    """Percentiles of the runs of each engine, in ms."""
    times: list[list[float]] = [[] for _ in engines]
    with ExitStack() as stack:
        runs = [_runner(engine, file, source, feed, options, stack) for engine in engines]
        for run in runs:
            run()
        for _ in range(_TURNS):
            for run, mine in zip(runs, times, strict=True):
                run()  # wakes its threads
                end = time.perf_counter() + seconds / _TURNS
                while not mine or time.perf_counter() < end:
                    start = time.perf_counter()
                    run()
                    mine.append((time.perf_counter() - start) * 1e3)
    return [
        {"engine": name, "backend": backend, "threads": threads, "runs": len(mine)} | _percentiles(mine)
        for (name, backend, threads), mine in zip(engines, times, strict=True)
    ]


def _runner(
    engine: tuple[str, str, int], file: Path, source: str, feed: dict[str, Any], options: SessionOptions, stack: ExitStack
) -> Callable[[], Any]:
    """A function that runs the model once."""
    name, backend, threads = engine
    if name == "mnnx":
        import mnnx

        interpreter = stack.enter_context(mnnx.Interpreter.from_file(file))
        session = stack.enter_context(options.create_session(interpreter, backend, threads))
        return lambda: session.run(feed)
    from mnnx.tools.cold_start import onnxruntime_session

    other = onnxruntime_session(source, threads)
    try:
        other.run(None, feed)
    except Exception as error:  # whatever onnxruntime raises
        raise InputError(f"onnxruntime can't run this model: {str(error).strip().splitlines()[0]}") from error
    return lambda: other.run(None, feed)


def _percentiles(times: list[float]) -> dict[str, float]:
    import numpy as np

    p50, p90, p99 = np.percentile(times, [50, 90, 99]).tolist()
    return {"min_ms": min(times), "p50_ms": p50, "p90_ms": p90, "p99_ms": p99}


def _print(report: dict[str, Any], as_json: bool) -> None:
    from mnnx.tools.tables import print_json, print_table

    if as_json:
        print_json(report)
        return
    head = ["engine", "backend", ">threads"]
    if report["cold"]:
        keys = ("import_ms", "load_ms", "first_run_ms", "total_ms", "peak_mb")
        cells = [[*_engine(r), *("" if r[k] is None else f"{r[k]:.0f}" for k in keys), r["kernels_compiled"] or ""] for r in report["cold"]]
        columns = [*head, ">import ms", ">load ms", ">first run ms", ">total ms", ">peak MiB", ">kernels compiled"]
        print_table(f"{report['model']}: cold starts", columns, cells)
    cells = [[*_engine(r), r["runs"], *(f"{r[k]:.3f}" for k in ("min_ms", "p50_ms", "p90_ms", "p99_ms"))] for r in report["warm"]]
    print_table("\nwarm runs", [*head, ">runs", ">min ms", ">p50 ms", ">p90 ms", ">p99 ms"], cells)


def _engine(row: dict[str, Any]) -> list[Any]:
    return [row["engine"], row["backend"], row["threads"] or "all"]
