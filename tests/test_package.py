"""The package as a whole: what it installs, what importing it costs, and which way imports point."""

from __future__ import annotations

import ast
import configparser
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import mnnx

ROOT = Path(mnnx.__file__).parent
#: A room may import those behind it.
ROOMS = ("tools", "converter", "interpreter", "backends", "schema", "errors")
#: What only some users need: importing the package, and running a model whose kernels are cached, must not.
HEAVY = ("numba", "llvmlite", "onnx", "pyopencl", "vulkan", "PIL", "click", "rich")


@cache
def _modules() -> dict[str, Path]:
    """Dotted name → file, of everything that is installed."""
    paths = [path for folder in (ROOT, *_package_folders()) for path in folder.glob("*.py")]
    names = {path: ".".join(("mnnx", *path.relative_to(ROOT).with_suffix("").parts)) for path in paths}
    return {name.removesuffix(".__init__"): path for path, name in names.items()}


def _package_folders() -> list[Path]:
    return [path.parent for room in ROOMS for path in sorted((ROOT / room).rglob("__init__.py"))]


def _imports(path: Path, lazy: bool = True) -> Iterator[str]:
    """Names of the modules of ours that a file imports; without `lazy` only when it is loaded itself, not in functions or for types."""
    waiting: list[ast.AST] = [ast.parse(path.read_text())]
    while waiting:
        node = waiting.pop()
        if not lazy and (
            isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
        ):
            continue
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "mnnx")
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").split(".")[0] == "mnnx":
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in _modules() else node.module


def _room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ROOMS else ""


def test_setup_cfg_lists_exactly_the_packages() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    listed = config["options"]["packages"].split()
    found = ["mnnx", *(".".join(("mnnx", *folder.relative_to(ROOT).parts)) for folder in _package_folders())]
    assert sorted(listed) == sorted(found)


def test_every_package_data_file_is_listed() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    listed = {(package, name) for package, names in config["options.package_data"].items() for name in names.split()}
    listed.remove(("mnnx", "py.typed"))  # tells type checkers to read the annotations; the rest of that folder isn't the package's
    assert (ROOT / "py.typed").is_file()
    folders = {".".join(("mnnx", *folder.relative_to(ROOT).parts)): folder for folder in _package_folders()}
    other = {(name, file.name) for name, folder in folders.items() for file in folder.iterdir() if file.is_file() and file.suffix != ".py"}
    assert {(package, name) for package, name in other if (package, f"*{Path(name).suffix}") not in listed} == {
        (package, name) for package, name in listed if "*" not in name
    }


def test_modules_use_absolute_imports() -> None:
    relative = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in _modules().values()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert relative == []


def test_imports_point_one_way() -> None:
    wrong = []
    for name, path in _modules().items():
        room = _room(name)
        behind = ROOMS[ROOMS.index(room) :] if room else ROOMS
        wrong += [f"{name} imports {other}" for other in _imports(path) if _room(other) and _room(other) not in behind]
    assert wrong == []


def test_a_device_is_reached_only_through_the_registry() -> None:
    wrong = [
        f"{name} imports {other}"
        for name, path in _modules().items()
        if _room(name) == "interpreter"
        for other in _imports(path)
        if _room(other) == "backends" and len(other.split(".")) > 3
    ]
    assert wrong == []


def test_there_are_no_circles_of_imports() -> None:
    graph = {name: sorted(set(_imports(path, lazy=False)) & _modules().keys() - {"mnnx"}) for name, path in _modules().items()}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " → ".join((*trail[trail.index(name) :], name))
        if name not in done:
            for other in graph[name]:
                visit(other, (*trail, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def _loaded(script: str) -> set[str]:
    """The top-level modules that a fresh interpreter holds after a script."""
    result = subprocess.run([sys.executable, "-c", f"{script}\nimport sys\nprint(*sys.modules)"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return {name.split(".")[0] for name in result.stdout.split()}


def test_importing_the_package_is_light() -> None:
    assert _loaded("import mnnx").isdisjoint({*HEAVY, "numpy"})


def test_importing_every_public_name_is_light() -> None:
    names = [name for name in mnnx.__all__ if name not in ("convert", "extract", "ConversionReport", "ExtractionReport")]
    assert _loaded(f"import mnnx\nfor name in {names}: getattr(mnnx, name)").isdisjoint(HEAVY)


def test_a_session_with_cached_kernels_imports_no_compiler(tmp_path: Path) -> None:
    model = tmp_path / "model.mnnx"
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[2, 3] x) => (float[2, 3] y) { s = Sigmoid(x) y = Softmax(s) }'
    import onnx.parser

    mnnx.convert(onnx.parser.parse_model(text), model)
    script = (
        "import mnnx, numpy\n"
        f"session = mnnx.Interpreter.from_file({str(model)!r}).create_session()\n"
        "session.run({'x': numpy.zeros((2, 3), numpy.float32)})"
    )
    _loaded(script)  # fills the cache
    assert _loaded(script).isdisjoint({"numba", "onnx", "PIL", "click", "rich"})


def test_all_public_names_exist() -> None:
    for name in mnnx.__all__:
        assert getattr(mnnx, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        mnnx.nothing  # noqa: B018
