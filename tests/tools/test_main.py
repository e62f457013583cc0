"""The command as a whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

import mnnx
from mnnx.tools.main import COMMANDS


def _python(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True)


def test_python_m_mnnx_is_the_command() -> None:
    result = _python("-m", "mnnx", "--version")
    assert (result.returncode, result.stdout, result.stderr) == (0, f"mnnx, version {mnnx.__version__}\n", "")


def test_version_imports_no_numbers() -> None:
    script = (
        "import sys; sys.argv[1:] = ['--version']\nfrom mnnx.tools.main import main\ntry: main()\nfinally: print('numpy' in sys.modules)"
    )
    assert _python("-c", script).stdout.splitlines()[-1] == "False"


def test_help_lists_all_commands(mnnx_command) -> None:
    text = mnnx_command("--help").stdout
    assert all(f"\n  {name} " in text for name in COMMANDS)
    assert all(summary in text for summary in COMMANDS.values())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(mnnx_command, name: str) -> None:
    result = mnnx_command(name, "-h")
    assert result.exit_code == 0
    assert f"Usage: mnnx {name}" in result.stdout


def test_an_unknown_command_is_a_usage_error(mnnx_command) -> None:
    assert mnnx_command("frobnicate").exit_code == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cant_be_written_is_an_error() -> None:
    with open("/dev/full", "w") as full:
        result = subprocess.run([sys.executable, "-m", "mnnx", "ops", "Conv"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 1
    assert result.stderr == "Error: the output: No space left on device\n"


@pytest.mark.parametrize(("closed", "source", "status"), [(">&-", "m", 0), ("2>&-", "m", 0), (">&- 2>&-", "m", 0), (">&- 2>&-", "none", 1)])
def test_closed_outputs_are_no_error(closed: str, source: str, status: int, tmp_path: Path) -> None:
    onnx.save(
        onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 18]> g (float[2] x) => (float[2] y) { y = Neg(x) }'),
        tmp_path / "m.onnx",
    )
    command = f"'{sys.executable}' -m mnnx convert {source}.onnx m.mnnx {closed}"
    result = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True)
    assert (result.returncode, "Traceback" in result.stderr) == (status, False)
    assert (tmp_path / "m.mnnx").exists() == (status == 0)


@pytest.mark.skipif(not hasattr(signal, "SIGPIPE"), reason="no such signal")
@pytest.mark.parametrize(
    "arguments",
    [
        *(["ops"], ["ops", "--json"], ["--help"], ["--version"], ["inspect", "--help"], ["convert", "--list-passes"], ["kernels", "list"]),
        *(["inspect", "MODEL"], ["inspect", "MODEL", "--text"], ["inspect", "MODEL", "--json"], ["inspect", "MODEL", "--nodes"]),
        *(["convert", "MODEL", "TARGET"], ["extract", "MODEL", "TARGET"], ["run", "MODEL"], ["profile", "MODEL"]),
        *(["verify", "MODEL"], ["benchmark", "MODEL", "--no-cold", "--seconds", "0.01"]),
    ],
    ids=" ".join,
)
def test_output_that_nobody_reads_ends_a_command_quietly(arguments: list[str], tmp_path: Path) -> None:
    model = onnx.parser.parse_model('<ir_version: 9, opset_import: ["" : 18]> g (float[2] x) => (float[2] y) { y = Exp(x) }')
    onnx.save(model, tmp_path / "m.onnx")
    words = [{"MODEL": str(tmp_path / "m.onnx"), "TARGET": str(tmp_path / "m.mnnx")}.get(word, word) for word in arguments]
    reader, writer = os.pipe()
    os.close(reader)
    try:
        result = subprocess.run([sys.executable, "-m", "mnnx", *words], stdout=writer, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writer)
    assert (result.returncode, result.stderr) == (141, "")


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no such signals")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_command_that_is_told_to_end_leaves_no_unfinished_file(tmp_path: Path, name: str) -> None:
    model = onnx.parser.parse_model('<ir_version: 9, opset_import: ["" : 18]> g (float[2] x) => (float[2] y) { y = Exp(x) }')
    onnx.save(model, tmp_path / "m.onnx")
    script = f"""import os, signal
from mnnx.schema import writer
from mnnx.tools.main import main
writer.os.fsync = lambda file: os.kill(os.getpid(), signal.{name})
main()"""
    result = _python("-c", script, "convert", str(tmp_path / "m.onnx"), str(tmp_path / "m.mnnx"))
    assert (result.returncode, result.stderr) == (128 + getattr(signal, name), "")
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]
