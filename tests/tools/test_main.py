"""The command as a whole."""

from __future__ import annotations

import subprocess
import sys

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
