"""Makes the kernel bundles that a wheel contains: python -m tests.bundles [target …]

They hold the kernels that networks commonly need, and those of generated networks whose patterns the passes fuse.
"""

from __future__ import annotations

import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import mnnx
from mnnx.backends.cpu import bundle, kernel_bundles
from mnnx.backends.cpu.target import Target
from mnnx.tools.feeds import FeedOptions
from mnnx.tools.kernels import common_kernels, plan
from tests.networks import NETWORKS

TARGETS = ("x86-64-v2", "x86-64-v3", "x86-64-v4", "armv8")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        models = []
        for network, (make, sizes) in NETWORKS.items():
            path = Path(name) / f"{network}.mnnx"
            mnnx.convert(make(), path)
            models.append((path, FeedOptions({}, {}, sizes, 0, {})))
        targets = sys.argv[1:] or TARGETS
        with ProcessPoolExecutor() as pool:
            for line in pool.map(make_bundle, targets, [models] * len(targets)):
                sys.stdout.write(f"{line}\n")


def make_bundle(name: str, models: list[tuple[Path, FeedOptions]]) -> str:
    """Makes the bundle of a target and says what it holds."""
    target, (package, _) = Target.named(name), kernel_bundles.folders()
    kernels = common_kernels(target)
    for path, feeds in models:
        kernels |= plan(path, target, feeds)[0]
    output = package / f"{name}.so"
    compiled = bundle.build(list(kernels), target, output)
    return f"{output}: {len(kernels)} kernels ({compiled} compiled now), {output.stat().st_size >> 10} KiB"


if __name__ == "__main__":
    main()
