"""Small ONNX models in files, and the commands without a process of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import numpy_helper

from mnnx.tools.main import cli

CLASSIFIER = """
<ir_version: 8, opset_import: ["": 17]>
classifier (float[N, 3, H, W] image) => (float[N, 4] scores)
{
    features = Conv<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>(image, weight, bias)
    active = Relu(features)
    pooled = GlobalAveragePool(active)
    flat = Flatten(pooled)
    scores = Softmax(flat)
}
"""


@pytest.fixture
def classifier(tmp_path: Path) -> Path:
    """A network with an open batch and picture size."""
    model = onnx.parser.parse_model(CLASSIFIER)
    rng = np.random.default_rng(1)
    for name, shape in (("weight", (4, 3, 3, 3)), ("bias", (4,))):
        model.graph.initializer.append(numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name))
    model.metadata_props.add(key="labels", value="cat\ndog\nbird\nfish")
    path = tmp_path / "classifier.onnx"
    onnx.save(model, path)
    return path


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[str], Path]:
    """Saves a model in ONNX's text syntax."""

    def save(text: str) -> Path:
        path = tmp_path / "model.onnx"
        onnx.save(onnx.parser.parse_model(text), path)
        return path

    return save


@pytest.fixture
def mnnx_command() -> Callable[..., Result]:
    """`mnnx_command("run", path)` runs the command; its result has exit_code, stdout and stderr."""

    def run(*arguments: object) -> Result:
        result = CliRunner().invoke(cli, [str(a) for a in arguments], prog_name="mnnx")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run
