"""An op of one's own: the example, entry points, and what is said where the op isn't known."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mnnx

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def _python(script: str, *folders: Path) -> subprocess.CompletedProcess:
    """A process of its own: what is registered stays registered."""
    path = os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path})


CONVERT = """
import mnnx, onnx.parser, custom_op
mnnx.convert(onnx.parser.parse_model(custom_op.MODEL), {path!r}, level={level})
"""
RUN = """
import mnnx, numpy as np
session = mnnx.Interpreter.from_file({path!r}).create_session()
print(session.run({{"signal": np.float32([[1, 2, 90, 3, 4, -5, 6, 7, 8], [1, 1, 1, 1, 1, 1, 1, 1, 1]])}})["loud"].tolist())
"""


@pytest.fixture(scope="module", params=[0, 2])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("custom") / "smooth.mnnx"
    result = _python(CONVERT.format(path=str(path), level=request.param), EXAMPLES)
    assert result.returncode == 0, result.stderr
    return path


def test_the_example_runs() -> None:
    result = subprocess.run([sys.executable, str(EXAMPLES / "custom_op.py")], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "[[3. 3. 4. 4. 6.]]" in result.stdout


def test_the_model_runs_where_the_op_is_registered(model: Path) -> None:
    result = _python(f"import custom_op\n{RUN.format(path=str(model))}", EXAMPLES)
    assert result.returncode == 0, result.stderr
    rows = np.float32([[1, 2, 90, 3, 4, -5, 6, 7, 8], [1] * 9])
    wanted = np.maximum(np.median(np.lib.stride_tricks.sliding_window_view(rows, 5, axis=1), axis=2), 0)
    assert result.stdout.strip() == str(wanted.tolist())


def test_elsewhere_the_error_says_what_to_do(model: Path) -> None:
    with pytest.raises(mnnx.ModelFormatError, match=r"\(com\.example::RunningMedian\): nobody has registered this operator") as error:
        mnnx.Interpreter.from_file(model)
    assert "entry point mnnx.ops" in str(error.value)


def _installed(folder: Path, value: str, group: str = "mnnx.ops") -> Path:
    """A folder with what installing a package leaves: its metadata."""
    metadata = folder / "median-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: median\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{group}]\nmedian = {value}\n")
    return folder


def test_an_entry_point_registers_it(model: Path, tmp_path: Path) -> None:
    result = _python(RUN.format(path=str(model)), EXAMPLES, _installed(tmp_path, "custom_op"))
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("[[3.0, 3.0,")


@pytest.mark.parametrize("group", ["mnnx.ops", "mnnx.importers"])
def test_an_entry_point_is_loaded_for_conversions(tmp_path: Path, group: str) -> None:
    text = (EXAMPLES / "custom_op.py").read_text().partition("MODEL = ")[2].partition('"""\n\n\n')[0]
    script = f'import mnnx, onnx.parser\nMODEL = {text}"""\nmnnx.convert(onnx.parser.parse_model(MODEL), {str(tmp_path / "m.mnnx")!r})'
    result = _python(script, EXAMPLES, _installed(tmp_path, "custom_op", group))
    assert result.returncode == 0, result.stderr


def test_an_entry_point_that_cant_be_loaded_is_told(model: Path, tmp_path: Path) -> None:
    script = f"import logging; logging.basicConfig()\n{RUN.format(path=str(model))}"
    result = _python(script, _installed(tmp_path, "no_such_module"))
    assert result.returncode == 1
    assert "the entry point median = 'no_such_module' of the group mnnx.ops can't be loaded: No module named" in result.stderr
    assert "nobody has registered this operator of com.example" in result.stderr


def test_a_rule_of_the_op_is_checked(model: Path) -> None:
    script = "import custom_op, mnnx, numpy as np\ncustom_op.RunningMedian(width=4)"
    assert "width must be odd, it is 4" in _python(script, EXAMPLES).stderr
    narrow = RUN.format(path=str(model)).replace("[[1, 2, 90, 3, 4, -5, 6, 7, 8], [1, 1, 1, 1, 1, 1, 1, 1, 1]]", "[[1, 2]]")
    assert "InputError" in _python(f"import custom_op\n{narrow}", EXAMPLES).stderr


@pytest.mark.parametrize(
    ("name", "future", "message"),
    [
        ("Mine", False, "needs a name of its own, with a domain"),
        ("com.microsoft::Inverse", False, "needs a name of its own, with a domain"),
        ("com.example::Mine", True, "must not have `from __future__ import annotations`"),
    ],
)
def test_definitions_that_cant_be(name: str, future: bool, message: str) -> None:
    script = f"import mnnx\n@mnnx.op({name!r})\nclass Mine(mnnx.Op):\n    width: int = 3"
    result = _python(f"from __future__ import annotations\n{script}" if future else script)
    assert message in result.stderr


def test_verify_compares_the_levels_of_a_model_that_no_reference_runs(tmp_path: Path) -> None:
    script = f"""
import custom_op, onnx, onnx.parser
onnx.save(onnx.parser.parse_model(custom_op.MODEL), {str(tmp_path / "m.onnx")!r})
from mnnx.tools.main import cli
cli(["verify", {str(tmp_path / "m.onnx")!r}])"""
    result = _python(script, EXAMPLES)
    assert result.returncode == 0, result.stderr
    assert "the optimized model is compared with the unoptimized one alone" in result.stdout
