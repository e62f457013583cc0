"""A process that starts an engine, loads a model, runs it once, and says in JSON how long each took.

    python -m mnnx.tools.cold_start ENGINE BACKEND THREADS INTER_OP_THREADS PRECISION MODEL CACHE_FILE < pickled feed

`mnnx benchmark` starts it.
"""

from __future__ import annotations

import json
import pickle
import sys
import time
from pathlib import Path


def main() -> None:
    engine, backend, threads, inter_op_threads, precision, model, cache_file = sys.argv[1:]
    data = sys.stdin.buffer.read()
    steps = {}
    start = time.perf_counter()
    if engine == "mnnx":
        import mnnx

        # what `import mnnx` leaves for later
        interpreter_class, config_class, hints_class = mnnx.Interpreter, mnnx.ScheduleConfig, mnnx.BackendConfig
        steps["import_ms"] = _since(start)
        start = time.perf_counter()
        interpreter = interpreter_class.from_file(model)
        interpreter.set_cache_file(cache_file or None)
        counts = {"num_threads": int(threads), "inter_op_threads": int(inter_op_threads)}
        session = interpreter.create_session(config_class(backend=backend, backend_config=hints_class(precision=precision), **counts))
        run = session.run
    else:
        import onnxruntime  # noqa: F401

        steps["import_ms"] = _since(start)
        start = time.perf_counter()
        session = onnxruntime_session(model, int(threads))
        run = lambda feed: session.run(None, feed)  # noqa: E731
    steps["load_ms"] = _since(start)
    feed = pickle.loads(data)
    start = time.perf_counter()
    run(feed)
    steps["first_run_ms"] = _since(start)
    steps["total_ms"] = sum(steps.values())
    steps["peak_mb"] = _peak_mb()
    steps["kernels_compiled"] = session.info()["kernels_compiled"] if engine == "mnnx" else 0
    print(json.dumps(steps))


def onnxruntime_session(model: str, threads: int):
    """An onnxruntime.InferenceSession on the CPU; 0 threads: as many as it likes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _since(start: float) -> float:
    return (time.perf_counter() - start) * 1e3


def _peak_mb() -> float | None:
    """The largest resident memory of this process, in MiB; None where the system doesn't say."""
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main()
