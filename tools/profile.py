"""`mnnx profile`."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from mnnx.tools.feeds import FeedOptions, feed_options, make_feed
from mnnx.tools.main import Command
from mnnx.tools.options import FiniteRange, check_is_not_model
from mnnx.tools.run import BACKEND
from mnnx.tools.session_options import SessionOptions, session_options

if TYPE_CHECKING:
    from mnnx.interpreter.session import Session
    from mnnx.interpreter.tensor import Tensor
    from mnnx.interpreter.unit import OperatorInfo


@click.command("profile", cls=Command)
@click.argument("model")
@feed_options
@click.option("--threads", type=click.IntRange(0, 256), default=1, show_default=True, help="Threads to compute on (0: all CPUs).")
@BACKEND
@session_options
@click.option("--seconds", default=1.0, show_default=True, type=FiniteRange(0), help="How long to run.")
@click.option("--top", type=click.IntRange(1), help="Show only so many ops, the slowest first.")
@click.option("--trace", metavar="FILE", help="Write a Chrome trace of the last run (chrome://tracing, Perfetto).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def command(
    model: str,
    feeds: FeedOptions,
    threads: int,
    backend: str,
    options: SessionOptions,
    seconds: float,
    top: int | None,
    trace: str | None,
    as_json: bool,
) -> None:
    """Measure how long each op of MODEL (.mnnx or .onnx) takes, and how near it comes to what the machine can do.

    Ops run one at a time, which costs some microseconds each; `run` is the time of whole runs without that. Times are medians over all
    runs. Peaks are measured: multiply-adds in registers, and reading from memory. Data that lies in a cache may be read faster than that.
    """
    from mnnx.schema.files import whole_file
    from mnnx.tools.models import opened
    from mnnx.tools.tables import print_json

    check_is_not_model("--trace", trace, model)
    with opened(model) as interpreter:
        session = options.create_session(interpreter, backend, threads)
        feed = make_feed(session.inputs, feeds)
        run_ms, timeline = _measure(session, feed, seconds)
        used = session.info()["num_threads"]
    report = {"model": model, "backend": backend, "threads": used, "runs": len(timeline.runs), "run_ms": run_ms}
    report |= timeline.report(_peak(backend, used))
    if trace is not None:
        with whole_file(trace) as file:
            file.write(json.dumps({"traceEvents": timeline.trace(), "displayTimeUnit": "ms"}).encode())
    if as_json:
        print_json(report)
    else:
        _print(report, top)


def _peak(backend: str, threads: int) -> dict[str, float] | None:
    """What the device can do at most; None where nobody knows."""
    if backend != "cpu":
        return None
    from mnnx.backends.cpu.peak import measure

    found = measure(threads)
    return {"gflops": found.flops / 1e9, "gbytes_per_s": found.bytes / 1e9}


class Timeline:
    """What happened in runs: every op with its start and end (ns), and what is known of it from the first run."""

    def __init__(self) -> None:
        self.runs: list[list[tuple[int, int]]] = []
        self.ops: list[dict[str, Any]] = []
        self._start = 0
        self._inputs: Sequence[Tensor | None] = ()

    def before(self, tensors: Sequence[Tensor | None], info: OperatorInfo) -> None:
        """A callback of `Session.run_with_callbacks`."""
        self._inputs = tensors
        self._start = time.perf_counter_ns()

    def after(self, tensors: Sequence[Tensor | None], info: OperatorInfo) -> None:
        """A callback of `Session.run_with_callbacks`."""
        end = self._start + info.nanoseconds if info.nanoseconds else time.perf_counter_ns()
        self.runs[-1].append((self._start, end))
        if len(self.runs) == 1:
            self.ops.append(_describe(info, self._inputs, tensors))

    def report(self, peak: dict[str, float] | None) -> dict[str, Any]:
        """The ops in the order of the run with their times and rates, for JSON."""
        from statistics import median

        whole = [run for run in self.runs if len(run) == len(self.ops)]  # a loop may go on for longer in other runs
        times = [median(run[i][1] - run[i][0] for run in whole) for i in range(len(self.ops))]
        total = sum(times) or 1
        rows = []
        for op, nanoseconds in zip(self.ops, times, strict=True):
            rates = {"gflops": op["flops"] / max(1, nanoseconds), "gbytes_per_s": op["bytes"] / max(1, nanoseconds)}
            of_peak = None if peak is None else max(rates[key] / peak[key] for key in peak)
            rows.append(op | {"ms": nanoseconds / 1e6, "share": nanoseconds / total} | rates | {"of_peak": of_peak})
        return {"ops_ms": total / 1e6, "peak": peak, "ops": rows}

    def trace(self) -> list[dict[str, Any]]:
        """The last run as events of Chrome's trace format."""
        last = self.runs[-1]
        origin = last[0][0] if last else 0
        return [
            {
                "name": op["name"] or op["type"],
                "cat": op["type"],
                "ph": "X",
                "ts": (start - origin) / 1e3,
                "dur": (end - start) / 1e3,
                "pid": 1,
                "tid": 1,
                "args": {key: op[key] for key in ("type", "backend", "shape", "flops", "bytes")},
            }
            for op, (start, end) in zip(self.ops, last, strict=False)
        ]


def _describe(info: OperatorInfo, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor | None]) -> dict[str, Any]:
    import math

    from mnnx.schema import dtypes

    read = outputs if info.type.startswith("Gather") else inputs  # most of what is gathered from stays unread
    tensors = [tensor for tensor in (*read, *outputs) if tensor is not None and tensor.dtype is not None]
    made = next((tensor for tensor in outputs if tensor is not None), None)
    return {
        "name": info.name,
        "type": info.type,
        "backend": info.backend,
        "dtype": "" if made is None or made.dtype is None else dtypes.name(made.dtype),
        "shape": None if made is None else list(made.shape),
        "flops": info.flops,
        "bytes": sum(math.prod(tensor.shape) * tensor.dtype.itemsize for tensor in tensors),
    }


def _measure(session: Session, feed: dict[str, Any], seconds: float) -> tuple[float, Timeline]:
    """The median time of whole runs in ms, and a timeline of runs op by op; they take turns."""
    from statistics import median

    timeline, times = Timeline(), []
    session.run(feed)
    session.run(feed)
    end = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        session.run(feed)
        times.append((time.perf_counter() - start) * 1e3)
        timeline.runs.append([])
        session.run_with_callbacks(timeline.before, timeline.after, feed)
    return median(times), timeline


def _print(report: dict[str, Any], top: int | None) -> None:
    from mnnx.schema.model import dims_text
    from mnnx.tools.tables import print_table

    peak, ops = report["peak"], report["ops"]
    where = f"{report['backend']}, {report['threads']} thread{'s' if report['threads'] > 1 else ''}"
    title = f"{report['model']} on {where}: run {report['run_ms']:.3f} ms"
    print_table(f"{title}, sum of its ops {report['ops_ms']:.3f} ms ({report['runs']} runs)", *_by_type(ops))
    shown = ops if top is None else sorted(ops, key=lambda op: -op["ms"])[:top]
    cells = [
        [
            op["name"],
            op["type"],
            "" if op["shape"] is None else dims_text(op["shape"]),
            f"{op['ms']:.3f}",
            f"{op['share']:.1%}",
            f"{op['gflops']:.1f}" if op["flops"] else "",
            f"{op['gbytes_per_s']:.1f}",
            "" if op["of_peak"] is None else f"{op['of_peak']:.0%}",
        ]
        for op in shown
    ]
    print_table("\nops", ["op", "type", "gives", ">ms", ">share", ">GFLOP/s", ">GB/s", ">of peak"], cells)
    if peak is not None:
        click.echo(f"\npeak, measured: {peak['gflops']:.1f} GFLOP/s, {peak['gbytes_per_s']:.1f} GB/s")


def _by_type(ops: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """The columns and rows of a table with one row per type of op."""
    totals: dict[str, list[float]] = {}
    for op in ops:
        total = totals.setdefault(op["type"], [0, 0.0, 0.0, 0])
        for index, value in enumerate((1, op["ms"], op["share"], op["flops"])):
            total[index] += value
    rows = [
        [name, str(count), f"{ms:.3f}", f"{share:.1%}", f"{flops / max(ms, 1e-9) / 1e6:.1f}" if flops else ""]
        for name, (count, ms, share, flops) in sorted(totals.items(), key=lambda item: -item[1][1])
    ]
    return ["type", ">ops", ">ms", ">share", ">GFLOP/s"], rows
