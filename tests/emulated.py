"""Runs networks on emulated machines, with kernels that were compiled here: python -m tests.emulated FOLDER [MODEL.onnx …]

64-bit Arm boards (cortex-a53, -a72, -a76) and an x86 processor without AVX, as qemu-user emulates them, without numba and llvmlite there.
FOLDER keeps the emulated Arm box: Debian's Python for arm64 and the wheels that running a model needs. Needs Debian or Ubuntu with
qemu-user-static, and a linker for aarch64 (see `mnnx kernels build`). It says nothing about speed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx

import mnnx
from mnnx.backends.cpu import bundle, kernel_bundles
from mnnx.backends.cpu.compiler import C_LIBRARY
from mnnx.backends.cpu.elf import undefined_symbols
from mnnx.backends.cpu.target import Target
from mnnx.tools.feeds import FeedOptions, make_feed
from mnnx.tools.kernels import plan
from tests.networks import mobilenet_like, resnet_like, squeezenet_like, transformer_like

WHEELS = ("numpy", "ml_dtypes", "flatbuffers")
#: Target → qemu's name of the processor.
MACHINES = {"raspberrypi3": "cortex-a53", "raspberrypi4": "cortex-a72", "raspberrypi5": "cortex-a76", "x86-64-v2": "Nehalem"}
NETWORKS = {
    "mobilenet": lambda: mobilenet_like(64),
    "resnet": lambda: resnet_like(64),
    "squeezenet": lambda: squeezenet_like(64),
    "transformer": transformer_like,
}
TOLERANCE = 1e-3
#: Open sizes become this, an open batch 1.
_OPEN = 32
#: Runs models on one and on two threads, and compares with what this machine gave.
SCRIPT = """
import sys
import numpy, mnnx
for path in sys.argv[1:]:
    feed, wanted = (dict(numpy.load(f"{path}.{what}.npz")) for what in ("feed", "wanted"))
    for threads in (1, 2):
        session = mnnx.Interpreter.from_file(path).create_session(mnnx.ScheduleConfig(num_threads=threads))
        got = session.run(feed)
        error = max(float(abs(got[name] - array).max() / max(1, abs(array).max())) for name, array in wanted.items())
        compiled, compilers = session.info()["kernels_compiled"], {"numba", "llvmlite"} & sys.modules.keys()
        print(f"  {path.rpartition('/')[2]} on {threads} threads: error {error:.1e}, {compiled} kernels compiled", *compilers)
        assert error <= TOLERANCE and not compiled and not compilers
"""


def main() -> None:
    box = arm_box(Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "mnnx").symlink_to(Path(mnnx.__file__).parent)
        (folder / "run.py").write_text(f"TOLERANCE = {TOLERANCE}\n{SCRIPT}")
        models = list(_models(folder, sys.argv[2:]))
        for target, processor in MACHINES.items():
            sys.stdout.write(f"{target} ({processor})\n")
            sys.stdout.flush()
            _make_bundle(folder, target, models)
            python, packages = box if target.startswith("raspberry") else this_python()
            environment = os.environ | {
                "QEMU_CPU": processor,
                "MNNX_CACHE_DIR": str(folder / "cache"),
                "PYTHONPATH": os.pathsep.join([str(folder), *packages]),
            }
            subprocess.run([*python, str(folder / "run.py"), *(str(path) for path, _ in models)], env=environment, check=True)


def _models(folder: Path, paths: list[str]) -> Iterator[tuple[Path, FeedOptions]]:
    """Converts the networks and models; beside each lie what to feed it and what this machine gives for that."""
    protos = {name: make() for name, make in NETWORKS.items()} | {Path(path).stem: onnx.load(path) for path in paths}
    for name, proto in protos.items():
        path = folder / f"{name}.mnnx"
        mnnx.convert(proto, path)
        with mnnx.Interpreter.from_file(path) as interpreter, interpreter.create_session() as session:
            shapes = {key: tuple(_OPEN if d < 0 and i else abs(d) for i, d in enumerate(t.shape)) for key, t in session.inputs.items()}
            options = FeedOptions({}, shapes, {}, 0, {})
            feed = make_feed(session.inputs, options)
            np.savez(f"{path}.feed.npz", **feed)
            np.savez(f"{path}.wanted.npz", **session.run(feed))
        yield path, options


def _make_bundle(folder: Path, name: str, models: list[tuple[Path, FeedOptions]]) -> None:
    target = Target.named(name)
    kernels = {kernel: None for path, options in models for kernel in plan(path, target, options)[0]}
    for old in folder.glob("*.so"):
        old.unlink()
    path = kernel_bundles.beside_models(folder, name)
    bundle.build(list(kernels), target, path)
    foreign = undefined_symbols(path.read_bytes()) - C_LIBRARY
    assert not foreign, f"the bundle for {name} needs {foreign}"


def this_python() -> tuple[list[str], list[str]]:
    """A command that runs this Python on an emulated x86 processor, and the folders of its packages."""
    return [_qemu("qemu-x86_64-static"), os.path.realpath(sys.executable)], [path for path in sys.path if path.endswith("-packages")]


def arm_box(folder: Path) -> tuple[list[str], list[str]]:
    """The same for an arm64 Python, which is put into the folder if it isn't there yet: from Debian's packages, with wheels from PyPI."""
    qemu, root, site = _qemu("qemu-aarch64-static"), folder / "root", folder / "site"
    if not site.exists():
        for part in ("lists/partial", "archives/partial", "wheels"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        (folder / "status").touch()
        settings = {
            "APT::Architecture": "arm64",
            "APT::Architectures": "arm64",
            "Dir::State::lists": folder / "lists",
            "Dir::State::status": folder / "status",
            "Dir::Cache::archives": folder / "archives",
        }
        apt = ["apt-get", "-qq", *(f"-o{key}={value}" for key, value in settings.items())]
        subprocess.run([*apt, "update"], check=True)
        packages = ["python3", "libstdc++6", "zlib1g"]
        subprocess.run([*apt, "install", "--download-only", "--no-install-recommends", "-y", *packages], check=True)
        for package in (folder / "archives").glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, root], check=True)
        version = next(root.glob("usr/bin/python3.*[0-9]")).name.removeprefix("python")
        platforms = [f"--platform=manylinux_2_{minor}_aarch64" for minor in (17, 27, 28, 34)] + ["--platform=manylinux2014_aarch64"]
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", f"--python-version={version}"]
        subprocess.run([*pip, *platforms, "--platform=any", f"--dest={folder / 'wheels'}", *WHEELS], check=True)
        for wheel in (folder / "wheels").glob("*.whl"):
            shutil.unpack_archive(wheel, folder / "unpacked", "zip")
        (folder / "unpacked").rename(site)
    return [qemu, "-L", str(root), str(next(root.glob("usr/bin/python3.*[0-9]")))], [str(site)]


def _qemu(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise SystemExit(f"there is no {name}: apt-get install qemu-user-static")
    return found


if __name__ == "__main__":
    main()
