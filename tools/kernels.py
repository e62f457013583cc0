"""`mnnx kernels`: compiled kernels, made ahead of time or kept in the cache."""

from __future__ import annotations

import itertools
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mnnx.tools.feeds import FeedOptions, feed_options, make_feed
from mnnx.tools.main import Command

if TYPE_CHECKING:
    from mnnx.backends.cpu.kernel import Kernel
    from mnnx.backends.cpu.target import Target

#: Numbers of threads to plan for: some kernels are only used on few or on many.
_THREADS = (1, 2, 4, 8)


@click.group("kernels")
def command() -> None:
    """Compiled kernels: make bundles of them ahead of time, for this machine or another, and look after the cache."""


@command.command("build", cls=Command)
@click.argument("models", nargs=-1)
@click.option("--target", "targets", multiple=True, metavar="NAME", help="A machine: `host` (the default), a level, or a board.")
@click.option("-o", "--output", metavar="DIR", help="Where to write the bundles.")
@click.option("--common", is_flag=True, help="Add the kernels that networks commonly need; so it is without MODELS.")
@click.option("--weights/--no-weights", default=True, show_default=True, help="Pack the models' weights too.")
@feed_options
@click.option("--cache-file", metavar="FILE", help="Add what sessions need that go by the times in this file (see mnnx run --tune).")
@click.option("--quiet", is_flag=True, help="Print nothing.")
def build_command(
    models: tuple[str, ...],
    targets: tuple[str, ...],
    output: str | None,
    common: bool,
    weights: bool,
    feeds: FeedOptions,
    cache_file: str | None,
    quiet: bool,
) -> None:
    """Make one bundle per target: a shared library with exactly the kernels that MODELS (.mnnx, or .onnx) need for the given input shapes.

    Without --output, the bundle of one model lies beside it, where its sessions find it; that of several models, or of none, in the
    cache folder. With --weights, the weights of every .mnnx model are packed for the target, into a file beside the model (or in --output)
    that sessions map into memory instead of packing them.
    """
    from mnnx.backends import prepared
    from mnnx.backends.cpu import bundle, kernel_bundles
    from mnnx.schema.files import make_folder
    from mnnx.tools.models import mnnx_file
    from mnnx.tools.tables import size

    if output is not None:
        make_folder(output)
    for target in map(_target, targets or ("host",)):
        name = target.level.name if target.name == "host" else target.name
        found: dict[Kernel, None] = {}
        for model in models:
            with mnnx_file(model) as file:
                path = prepared.beside_model(Path(model), name)
                path = path if output is None else Path(output) / path.name
                kernels, nbytes = plan(file, target, feeds, path if weights and Path(model).suffix == ".mnnx" else None, cache_file)
                found |= kernels
                if nbytes and not quiet:
                    click.echo(f"{path}: packed weights, {size(nbytes)}")
        if common or not models:
            found |= common_kernels(target)
        if len(models) == 1:
            path = kernel_bundles.beside_model(Path(models[0]).with_suffix(".mnnx"), name)
            path = path if output is None else Path(output) / path.name
        elif output is None:
            path = kernel_bundles.cache_folder() / f"{name}.so"
        else:
            path = kernel_bundles.beside_models(Path(output), name)
        with _progress(f"compiling for {name}", quiet) as progress:
            compiled = bundle.build(list(found), target, path, progress)
        if not quiet:
            click.echo(f"{path}: {len(found)} kernels ({compiled} compiled now), {size(path.stat().st_size)}")


@command.command("list", cls=Command)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def list_command(as_json: bool) -> None:
    """List the bundles of the package and of the cache folder, and what was compiled on this machine."""
    from mnnx.backends import kernel_cache
    from mnnx.backends.cpu import bundle, kernel_bundles
    from mnnx.errors import BackendError
    from mnnx.tools.tables import print_json, print_table, size

    bundles = []
    for path in kernel_bundles.everywhere():
        row: dict[str, Any] = {"path": str(path), "bytes": path.stat().st_size}
        try:
            index = bundle.read_index(path)
            row |= {"target": index["target"], "level": index["level"], "kernels": len(index["kernels"])}
        except BackendError as error:
            row |= {"target": str(error), "level": "", "kernels": 0}
        bundles.append(row)
    folder = kernel_cache.default_folder() / "kernels"
    cached = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        sizes = [file.stat().st_size for file in path.glob("*.kernel")]
        cached.append({"level": path.name, "kernels": len(sizes), "bytes": sum(sizes)})
    if as_json:
        print_json({"bundles": bundles, "folder": str(folder), "cached": cached})
        return
    rows = [[row["path"], row["target"], row["level"], row["kernels"], size(row["bytes"])] for row in bundles]
    print_table("bundles", ["file", "target", "level", ">kernels", ">size"], rows)
    print_table(
        f"\ncompiled here, in {folder}", ["level", ">kernels", ">size"], [[r["level"], r["kernels"], size(r["bytes"])] for r in cached]
    )


@command.command("info", cls=Command)
@click.argument("bundle", required=False)
@click.option("--kernels", "names", is_flag=True, help="List every kernel with its parameters.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def info_command(bundle: str | None, names: bool, as_json: bool) -> None:
    """Say what is in the file BUNDLE; without it, what mnnx knows of this machine."""
    from mnnx.tools.tables import print_json, print_pairs, print_table

    if bundle is None:
        found = _describe(_target("host"))
        print_json(found) if as_json else print_pairs(found.items())
        return
    from mnnx.backends.cpu.bundle import read_index

    index = read_index(Path(bundle))
    if as_json:
        print_json(index)
        return
    made_with = ", ".join(f"{name} {version}" for name, version in index["made_with"].items())
    rows = [(key, index[key]) for key in ("target", "level", "tune", "abi")]
    print_pairs([*rows, ("made with", made_with), ("kernels", len(index["kernels"]))])
    if names:
        for name, parameters in sorted(index["kernels"].values(), key=str):
            click.echo(f"  {name}({', '.join(f'{key}={value!r}' for key, value in parameters.items())})")
    else:
        counts = Counter(name for name, _ in index["kernels"].values())
        print_table("", ["kernel", ">variants"], counts.most_common())


@command.command("clear", cls=Command)
def clear_command() -> None:
    """Remove the cache folder's kernels and bundles. What is needed again will be compiled again."""
    from mnnx.backends import kernel_cache
    from mnnx.backends.cpu import kernel_bundles
    from mnnx.schema.files import naming
    from mnnx.tools.tables import size

    folders = [folder for folder in (kernel_cache.default_folder() / "kernels", kernel_bundles.cache_folder()) if folder.is_dir()]
    nbytes = sum(file.stat().st_size for folder in folders for file in folder.rglob("*") if file.is_file())
    for folder in folders:
        with naming(folder):
            shutil.rmtree(folder)
    click.echo(f"removed {size(nbytes)} from {kernel_cache.default_folder()}")


def plan(
    file: Path, target: Target, feeds: FeedOptions, packed: Path | None = None, cache_file: str | None = None
) -> tuple[dict[Kernel, None], int]:
    """The kernels that sessions on an .mnnx file ask for on a machine, whatever their number of threads; with and without a cache file.

    Writes the weights as they pack them to the file `packed`; returns its size too.
    """
    import mnnx
    from mnnx.backends import prepared
    from mnnx.backends.backend import SharedWeights, temporary_backend
    from mnnx.backends.cpu.recording import RecordingBackend

    found: dict[Kernel, None] = {}
    weights = SharedWeights()
    with mnnx.Interpreter.from_file(file) as interpreter:
        for variant, threads, times in itertools.product(target.variants, _THREADS, {None, cache_file}):

            def recording(config, shared, target=variant) -> RecordingBackend:
                return RecordingBackend(config, weights, target, found)

            interpreter.set_cache_file(times)
            config = mnnx.ScheduleConfig(backend="cpu-recording", backup="cpu-recording", num_threads=threads)
            with temporary_backend("cpu-recording", recording), interpreter.create_session(config) as session:
                feed = make_feed(session.inputs, feeds)
                if all(tensor.kind == "tensor" for tensor in session.inputs.values()):
                    session.resize({name: value.shape for name, value in feed.items()})
                    if session.is_planned:
                        continue
                session.run(feed)  # what depends on data is planned when the data are there
        return found, 0 if packed is None else prepared.write(packed, interpreter.model, weights.packed)


def common_kernels(target: Target) -> dict[Kernel, None]:
    """The kernels that networks commonly need."""
    import mnnx
    from mnnx.backends.backend import SharedWeights
    from mnnx.backends.cpu import common_kernels
    from mnnx.backends.cpu.recording import RecordingBackend

    found: dict[Kernel, None] = {}
    for variant in target.variants:
        for threads in _THREADS[::2]:
            common_kernels.record(RecordingBackend(mnnx.ScheduleConfig(num_threads=threads), SharedWeights(), variant, found))
    return found


def _target(name: str) -> Target:
    from mnnx.backends.cpu.target import Target

    return Target.host() if name == "host" else Target.named(name)


def _describe(target: Target) -> dict[str, Any]:
    from mnnx.backends import kernel_cache
    from mnnx.backends.cpu import kernel_bundles
    from mnnx.backends.cpu.target import BOARDS, LEVELS

    level = target.level
    return {
        "level": level.name,
        "vectors": f"{8 * level.vector_bytes} bits, {level.vector_registers} registers{', multiply-add' if level.fma else ''}",
        "byte products": target.dot_product or "no instruction",
        "core": target.tune or "unknown",
        "caches": ", ".join(f"L{index} {nbytes >> 10} KiB" for index, nbytes in enumerate(target.caches, 1) if nbytes),
        "CPUs": target.cores,
        "compiled kernels": str(kernel_cache.default_folder() / "kernels"),
        "bundles": ", ".join(map(str, kernel_bundles.folders())),
        "known targets": ", ".join([*LEVELS, *BOARDS]),
    }


@contextmanager
def _progress(what: str, hidden: bool) -> Iterator[Callable[[int, int], None]]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from mnnx.tools.tables import console

    screen = console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=screen, transient=True, disable=hidden or not screen.is_terminal) as bar:
        task = bar.add_task(what)
        yield lambda done, count: bar.update(task, completed=done, total=count)
