"""Speed of generated networks, as ratios to onnxruntime on as many threads: python -m tests.benchmark [name …]

Both engines take turns, so that a busy moment of the machine hits both; a ratio is that of the medians (above 1: mnnx is faster).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
import onnxruntime

import mnnx
from tests.networks import NETWORKS, feed_for


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=", ".join(NETWORKS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0, help="for each engine and network")
    options = parser.parse_args()
    if unknown := set(options.names) - NETWORKS.keys():
        parser.error(f"there is no network {', '.join(sorted(unknown))}; known ones: {', '.join(NETWORKS)}")
    write = sys.stdout.write
    write(f"{'network':<18}{'mnnx ms':>10}{'ort ms':>10}{'ratio':>8}{'max error':>12}\n")
    for name in options.names or NETWORKS:
        make, sizes = NETWORKS[name]
        model = make()
        ours, theirs, error = compare(model, feed_for(model, sizes), options.threads, options.seconds)
        write(f"{name:<18}{ours * 1e3:>10.2f}{theirs * 1e3:>10.2f}{theirs / ours:>8.2f}{error:>12.1e}\n")


def compare(model: onnx.ModelProto, feed: dict[str, np.ndarray], threads: int, seconds: float) -> tuple[float, float, float]:
    """Median seconds of a run of mnnx and of onnxruntime, and the largest difference of their results."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 3
    reference = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.mnnx"
        mnnx.convert(model, path)
        with mnnx.Interpreter(path) as interpreter, interpreter.create_session(mnnx.ScheduleConfig(num_threads=threads)) as session:
            wanted, found = reference.run(None, feed)[0], session.run(feed)["y"]
            ours, theirs = _interleaved([lambda: session.run(feed), lambda: reference.run(None, feed)], seconds)
    return ours, theirs, float(np.abs(wanted - found).max())


def _interleaved(runs: list[Callable[[], Any]], seconds: float) -> list[float]:
    """Median times of functions that take turns."""
    times: list[list[float]] = [[] for _ in runs]
    end = time.perf_counter() + seconds * len(runs)
    while time.perf_counter() < end or len(times[0]) < 3:
        for run, mine in zip(runs, times, strict=True):
            start = time.perf_counter()
            run()
            mine.append(time.perf_counter() - start)
    return [median(mine) for mine in times]


if __name__ == "__main__":
    main()
