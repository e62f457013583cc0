"""Time and memory of conversions, each in a process of its own: python -m tests.conversion_cost MODEL.onnx …

The time is that of `convert` in a process that has imported everything, the least of three; the memory is the largest resident size of a
process that converts once, and what of it there was before. The bound that the last column compares with is 3 × the model + 150 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

_SCRIPT = """
import json, resource, sys, tempfile, time
import mnnx, onnx, mnnx.converter.convert
from mnnx.converter.frontends.onnx import registry
registry.load_all()
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
before, times = peak(), []
with tempfile.TemporaryDirectory() as folder:
    for _ in range(int(sys.argv[2])):
        start = time.perf_counter()
        mnnx.convert(sys.argv[1], folder + "/m.mnnx")
        times.append(time.perf_counter() - start)
print(json.dumps({"seconds": min(times), "first": times[0], "before": before, "peak": peak()}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    options = parser.parse_args()
    write = sys.stdout.write
    write(f"{'model':<24}{'MB':>8}{'first s':>10}{'s':>8}{'start MB':>10}{'peak MB':>10}{'bound MB':>10}\n")
    for path in options.models:
        size = os.path.getsize(path) / 1e6
        one, three = (measure(path, runs) for runs in (1, 3))
        peak, before = one["peak"] / 1e6, one["before"] / 1e6
        write(
            f"{path.stem:<24}{size:>8.1f}{one['first']:>10.2f}{three['seconds']:>8.2f}{before:>10.0f}{peak:>10.0f}{3 * size + 150:>10.0f}\n"
        )


def measure(path: Path, runs: int) -> dict[str, float]:
    """Converts a model `runs` times in a fresh process."""
    result = subprocess.run([sys.executable, "-c", _SCRIPT, str(path), str(runs)], capture_output=True, text=True, check=True)
    return json.loads(result.stdout)


if __name__ == "__main__":
    main()
