"""Writes docs/operator-cases.md: for each op, opset and element type how many cases pass on each backend.

    python -m tests.op_table [--ops REGEX] [--backends cpu,opencl,vulkan] [--workers 2] [--failures FILE]

Ops and backends that are left out, or that this machine can't test, keep the cells that the page has. --failures lists what doesn't pass,
and why.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import mnnx
from tests.conformance import known_failures
from tests.devices import GPU_BACKENDS, missing
from tests.op_cases import OpCase, all_cases

PAGE = Path(mnnx.__file__).parent / "docs" / "operator-cases.md"
BACKENDS = ("cpu", *GPU_BACKENDS)
SECONDS = 60
#: A cell that was not measured yet.
UNKNOWN = "–"
HEAD = """# Cases of operators

Generated: `make op-table` runs the cases and writes this page; a test compares its rows with those of the cases
there are.

For each operator, opset and element type (of the first input) the number of cases that pass: those of `tests/cases`, the forms of old
opsets, and the node cases of the ONNX project, with their tolerances. An opset is the one that gave the operator its form; the cases of
ONNX are written for the newest form, and run in each older one too in which the same node is legal and means the same.

*12*: twelve cases, which all pass on the device. *9 + 3*: nine on the device, three with the host's help: at least one op (of the
case's op, or of the body that it is written with) ran on the host. *9 + 1 of 12*: two don't pass. What can't pass, and why, is in
`tests/conformance/known_failures.py`. All models are converted at level 0, so that nothing is computed beforehand, and all
inputs are fed, weights too: where a device runs an op with constant weights alone, that counts as the host's help here. The GPU columns
were measured with PoCL and lavapipe, which run OpenCL and Vulkan on a CPU.
"""
Key = tuple[str, int, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", type=re.compile, default="")
    parser.add_argument("--backends", default=",".join(BACKENDS))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--failures", type=Path)
    options = parser.parse_args()
    columns = read_columns(PAGE.read_text()) if PAGE.exists() else {}
    failures: list[str] = []
    for backend in options.backends.split(","):
        if backend != "cpu" and (reason := missing_in_a_process(backend)):
            sys.stderr.write(f"{backend} keeps its column: {reason}\n")
            continue
        cells, missed = run(backend, options.workers, options.ops)
        columns[backend] = columns.get(backend, {}) | cells
        failures += missed
    keys = {case.key for case in all_cases()}
    columns = {backend: {key: cell for key, cell in cells.items() if key in keys} for backend, cells in columns.items()}
    PAGE.write_text(page(columns))
    if options.failures:
        options.failures.write_text("\n".join(failures) + "\n")


def run(backend: str, workers: int, ops: re.Pattern) -> tuple[dict[Key, str], list[str]]:
    """The cells of a backend's column in the rows of these ops, and what failed."""
    cases = all_cases()
    chosen = [index for index, case in enumerate(cases) if ops.match(case.op)]
    counts: dict[Key, Counter[str]] = {cases[index].key: Counter() for index in chosen}
    failures = []
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        for index, outcome, why in pool.imap_unordered(_outcome, ((index, backend) for index in chosen), chunksize=20):
            counts[cases[index].key][outcome] += 1
            if outcome == "failed":
                failures.append(
                    f"{backend} {cases[index].key} {cases[index].name}: {known_failures.reason(cases[index].name, backend) or why}"
                )
    return {key: _cell(count) for key, count in counts.items()}, sorted(failures)


def _outcome(task: tuple[int, str]) -> tuple[int, str, str]:
    """(index, "device" | "host" | "failed", why) of one case; a case that takes more than SECONDS fails."""
    index, backend = task
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(SECONDS)
    try:
        return index, "device" if _runs_on_the_device(all_cases()[index], backend) else "host", ""
    except Exception as error:  # a case that fails in whatever way is a failed case
        return index, "failed", f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    finally:
        signal.alarm(0)


def _too_long(_signal: int, _frame: object) -> None:
    raise TimeoutError(f"not done in {SECONDS} s")


def _runs_on_the_device(case: OpCase, backend: str) -> bool:
    """Whether all ops of a case ran there; fails where the results are wrong."""
    data = case.source if isinstance(case.source, bytes) else _converted(case)
    with mnnx.Interpreter.from_bytes(data) as interpreter:
        session = interpreter.create_session(mnnx.ScheduleConfig(backend=backend, num_threads=1))
        case.check(session.run(case.feed))
        placement = session.placement()
        return backend == "cpu" or (bool(placement) and all(row.backend == backend for row in placement))


def _converted(case: OpCase) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.mnnx"
        mnnx.convert(case.source, path, level=0)
        return path.read_bytes()


def missing_in_a_process(backend: str) -> str | None:
    """Why a backend can't be used here, found out by a process of its own: a driver that this one has started doesn't survive a fork."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(missing, (backend,))


def _cell(count: Counter[str]) -> str:
    passed = str(count["device"]) + (f" + {count['host']}" if count["host"] else "")
    return passed + (f" of {count.total()}" if count["failed"] else "")


def total(cell: str) -> int:
    """The number of cases that a cell stands for."""
    passed, _, cases = cell.partition(" of ")
    return int(cases) if cases else sum(map(int, passed.split(" + ")))


def failed(cell: str) -> int:
    passed, _, cases = cell.partition(" of ")
    return total(cell) - total(passed) if cases else 0


def read_columns(text: str) -> dict[str, dict[Key, str]]:
    """Backend → row → cell, of a page."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    head, _, *body = rows
    return {
        backend: {(row[0], int(row[1]), row[2]): row[column] for row in body if row[column] != UNKNOWN}
        for column, backend in enumerate(head)
        if column > 2
    }


def page(columns: dict[str, dict[Key, str]]) -> str:
    backends = [backend for backend in BACKENDS if backend in columns]
    keys = sorted(set().union(*columns.values()))
    lines = [
        HEAD,
        *(f"{_summary(backend, columns[backend].values())}" for backend in backends),
        "",
        f"| op | opset | element type | {' | '.join(backends)} |",
        f"| --- | --- | --- |{' --- |' * len(backends)}",
        *(
            f"| {op} | {opset} | {dtype} | {' | '.join(columns[b].get((op, opset, dtype), UNKNOWN) for b in backends)} |"
            for op, opset, dtype in keys
        ),
    ]
    return "\n".join(lines) + "\n"


def _summary(backend: str, cells: Iterable[str]) -> str:
    numbers = [re.fullmatch(r"(\d+)(?: \+ (\d+))?(?: of \d+)?", cell).groups(default="0") for cell in cells]
    device, host = (sum(int(number[i]) for number in numbers) for i in (0, 1))
    helped = f", and {host} with the host's help" if backend != "cpu" else ""
    return f"* {backend}: of {sum(map(total, cells))} cases {device} pass{' on the device' if backend != 'cpu' else ''}{helped}."


if __name__ == "__main__":
    main()
