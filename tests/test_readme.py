"""The commands and scripts that the documents show, run as they stand, on a model of the names that they use."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from PIL import Image

import mnnx
from tests.devices import GPU_BACKENDS, missing

ROOT = Path(mnnx.__file__).parent
PAGES = (
    *("README.md", "docs/command-line.md", "docs/python-api.md", "docs/converter.md", "docs/errors-and-limits.md", "docs/pymnn.md"),
    *("docs/image-process.md", "docs/gpu-backends.md"),
)
MODEL = """
<ir_version: 8, opset_import: ["": 17]>
classifier (float[N, 3, 224, 224] image) => (float[N, 10] scores)
{
    stem = Conv<kernel_shape=[7, 7], strides=[4, 4]>(image, weight, bias)
    features = Relu(stem)
    pooled = GlobalAveragePool(features)
    flat = Flatten(pooled)
    logits = Gemm(flat, dense)
    scores = Softmax(logits)
}
"""
DETECTOR = '<ir_version: 8, opset_import: ["": 17]> detector (float[N, 3, H, W] x) => (float[N, 3, H, W] y) { y = Relu(x) }'
#: Blocks with these install things.
SET_UP = ("pip install '", "make ")


def _blocks(page: str) -> list[tuple[str, str]]:
    """(language, text) of the code blocks that can be run, in order. (Excerpts of the source are marked "py".)"""
    text = (ROOT / page).read_text()
    blocks = re.findall(r"^```(sh|python)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(language, block) for language, block in blocks if language == "python" or not any(word in block for word in SET_UP)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with what the pages mention: model.onnx, model.mnnx, detector.mnnx, photo.jpg, image.npy."""
    model = onnx.parser.parse_model(MODEL)
    rng = np.random.default_rng(1)
    for name, shape in (("weight", (8, 3, 7, 7)), ("bias", (8,)), ("dense", (8, 10))):
        model.graph.initializer.append(numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name))
    onnx.save(model, tmp_path / "model.onnx")
    mnnx.convert(model, tmp_path / "model.mnnx")
    mnnx.convert(onnx.parser.parse_model(DETECTOR), tmp_path / "detector.mnnx")
    Image.fromarray(rng.integers(0, 256, (60, 80, 3), np.uint8)).save(tmp_path / "photo.jpg")
    np.save(tmp_path / "image.npy", rng.random((1, 3, 224, 224), np.float32))
    return tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_shows_runs(page: str, folder: Path) -> None:
    if "gpu" in page and (reason := next(filter(None, map(missing, GPU_BACKENDS)), None)):
        pytest.skip(reason)
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    blocks = _blocks(page)
    assert blocks, f"{page} shows nothing that can be run"
    script = "".join(block for language, block in blocks if language == "python")
    commands = [["bash", "-eu", "-c", block] for language, block in blocks if language == "sh"] + [[sys.executable, "-c", script]]
    for command in commands:
        result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
        assert result.returncode == 0, f"{command[-1]}\n{result.stdout}\n{result.stderr}"


@pytest.mark.parametrize("page", sorted(str(p.relative_to(ROOT)) for p in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]))
def test_links_lead_somewhere(page: str) -> None:
    links = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", (ROOT / page).read_text())
    missing = [link for link in links if "://" not in link and not ((ROOT / page).parent / link).exists()]
    assert missing == []


def test_installation_names_an_extra_that_exists() -> None:
    assert "'.[convert]'" in (ROOT / "README.md").read_text()
    assert "\nconvert = [" in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("schema/ops/activation.py", "class LeakyRelu(FloatUnary):"),
        ("schema/ops/activation.py", "alpha: float = 0.01"),
        ("backends/elementwise.py", 'activation.LeakyRelu: Expression("where(x >= 0, x, alpha * x)"),'),
        ("backends/cpu/numpy_executions/indexing.py", "@numpy_execution(ops.Gather)"),
    ],
)
def test_what_contributing_quotes_stands_in_the_code(file: str, line: str) -> None:
    assert line in (ROOT / "CONTRIBUTING.md").read_text()
    assert line in (ROOT / file).read_text()
