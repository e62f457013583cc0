"""PyTorch modules give the same numbers when PyTorch's exporter and mnnx have converted them. Needs torch and onnxscript."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import mnnx

torch = pytest.importorskip("torch", reason="PyTorch isn't installed")
pytest.importorskip("onnxscript", reason="PyTorch's exporter needs onnxscript, which isn't installed")
nn = torch.nn


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(3)


def _array(tensor) -> np.ndarray:
    tensor = tensor.detach()
    return tensor.float().numpy().astype(ml_dtypes.bfloat16) if tensor.dtype == torch.bfloat16 else tensor.numpy()


def _session(folder: Path, module, **options) -> mnnx.Session:
    mnnx.convert(module, folder / "m.mnnx", **options)
    return mnnx.Interpreter.from_file(folder / "m.mnnx").create_session()


def _assert_same(session: mnnx.Session, module, *inputs) -> None:
    with torch.no_grad():
        wanted = module.eval()(*inputs)
    wanted = list(wanted.values()) if isinstance(wanted, dict) else [wanted] if torch.is_tensor(wanted) else wanted
    results = session.run(dict(zip(session.inputs, map(_array, inputs), strict=True)))
    for got, tensor in zip(results.values(), map(_array, wanted), strict=True):
        assert got.dtype == tensor.dtype
        np.testing.assert_allclose(got.astype(np.float64), tensor.astype(np.float64), rtol=1e-4, atol=1e-5)


class Tagger(nn.Module):
    """Words → what each is, and the states at the end."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 8)
        self.lstm = nn.LSTM(8, 16, 2, batch_first=True, bidirectional=True)
        self.tags = nn.Linear(32, 5)

    def forward(self, tokens):
        y, (h, c) = self.lstm(self.words(tokens))
        return {"logits": self.tags(y), "h": h, "c": c}


def mlp():
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Dropout(), nn.Linear(8, 3))


def cnn():
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(8, 3))


def encoder():
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2)


@pytest.mark.parametrize(
    ("make", "dims", "shape", "other"),
    [
        (mlp, {0: "batch"}, (2, 4), (5, 4)),
        (cnn, {0: "n", 2: "height", 3: "width"}, (2, 3, 16, 16), (3, 3, 24, 32)),
        (encoder, {0: "batch", 1: "time"}, (2, 6, 32), (3, 9, 32)),
    ],
)
def test_open_dims_keep_their_names_and_take_any_size(tmp_path: Path, make, dims, shape, other) -> None:
    module = make()
    session = _session(tmp_path, module, example_inputs=torch.randn(shape), dynamic_shapes=(dims,))
    (tensor,) = session.inputs.values()
    assert tensor.dims == tuple(dims.get(axis, size) for axis, size in enumerate(shape))
    _assert_same(session, module, torch.randn(shape))
    _assert_same(session, module, torch.randn(other))


def test_inputs_by_name_and_outputs_of_a_dict_keep_their_names(tmp_path: Path) -> None:
    module = Tagger()
    shapes = {"tokens": {0: "batch", 1: "time"}}
    session = _session(tmp_path, module, example_inputs={"tokens": torch.randint(0, 20, (2, 7))}, dynamic_shapes=shapes)
    assert (list(session.inputs), list(session.outputs)) == (["tokens"], ["logits", "h", "c"])
    _assert_same(session, module, torch.randint(0, 20, (3, 11)))


@pytest.mark.parametrize("name", ["mobilenet_v2", "resnet18"])
def test_networks_of_torchvision(tmp_path: Path, name: str) -> None:
    models = pytest.importorskip("torchvision.models", reason="torchvision isn't installed")
    module = getattr(models, name)(weights=None)
    session = _session(tmp_path, module, example_inputs=torch.randn(2, 3, 64, 64), dynamic_shapes=({0: "batch"},))
    _assert_same(session, module, torch.randn(3, 3, 64, 64))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_dtypes_are_kept(tmp_path: Path, dtype: str) -> None:
    module = nn.Linear(4, 3).to(getattr(torch, dtype))
    x = torch.randn(2, 4).to(getattr(torch, dtype))
    result = _session(tmp_path, module, example_inputs=(x,)).run({"input": _array(x)})["output"]
    assert result.dtype == np.dtype(dtype)
    rtol = {"float16": 2e-3, "bfloat16": 2e-2, "float64": 1e-7}[dtype]
    np.testing.assert_allclose(result.astype(np.float64), _array(module(x)).astype(np.float64), rtol, rtol)


def test_a_module_in_training_is_converted_for_inference_and_put_back(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.9), nn.BatchNorm1d(4).eval()).train()
    module[2].eval()
    session = _session(tmp_path, module, example_inputs=torch.randn(2, 4))
    assert [part.training for part in module.modules()] == [True, True, True, False]
    _assert_same(session, module, torch.randn(2, 4))


class Several(nn.Module):
    def forward(self, x, scale: float = 1.0):
        return x * scale, [x + 1, x], {"x": x - 1}


def test_outputs_without_names_are_counted_and_an_input_that_is_one_keeps_its_name(tmp_path: Path) -> None:
    session = _session(tmp_path, Several(), example_inputs=(torch.ones(2), 3.0))
    assert list(session.inputs) == ["x"]
    results = session.run({"x": np.float32([1, 2])})
    assert {name: array.tolist() for name, array in results.items()} == {
        "output_0": [3, 6],
        "output_1_0": [2, 3],
        "output_1_1": [1, 2],
        "output_2_x": [0, 1],
    }


def test_names_can_be_given(tmp_path: Path) -> None:
    session = _session(tmp_path, mlp(), example_inputs=torch.randn(2, 4), input_names=["features"], output_names=["scores"])
    assert (list(session.inputs), list(session.outputs)) == (["features"], ["scores"])


def test_arrays_stand_for_tensors(tmp_path: Path) -> None:
    module = mlp()
    session = _session(tmp_path, module, example_inputs=np.ones((2, 4), np.float32))
    _assert_same(session, module, torch.randn(2, 4))


def test_an_exported_program_needs_no_example(tmp_path: Path) -> None:
    module = mlp().eval()
    program = torch.export.export(module, (torch.randn(2, 4),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    session = _session(tmp_path, program)
    _assert_same(session, module, torch.randn(6, 4))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_scripted_module_goes_through_the_older_exporter(tmp_path: Path) -> None:
    for make in (torch.jit.script, lambda module: torch.jit.trace(module, torch.randn(2, 4))):
        module = make(nn.Sequential(nn.Linear(4, 3), nn.ReLU()))
        session = _session(tmp_path, module, example_inputs=torch.randn(2, 4))
        assert list(session.inputs) == ["input"]
        _assert_same(session, module, torch.randn(2, 4))


class DependsOnValues(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


class NoSuchOp(nn.Module):
    def forward(self, x):
        return torch.linalg.eigh(x)[0]


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (DependsOnValues(), r"the module DependsOnValues to ONNX: .*data-dependent"),
        (NoSuchOp(), r"the module NoSuchOp to ONNX: .*No ONNX function found for .*linalg_eigh"),
        (nn.Linear(5, 3), r"the module Linear to ONNX: RuntimeError: .*must have same reduction dim"),
    ],
)
def test_the_error_has_the_module_and_what_torch_says(tmp_path: Path, module, message: str) -> None:
    with pytest.raises(mnnx.ConversionError, match=f"(?s)PyTorch can't export {message}"):
        mnnx.convert(module, tmp_path / "m.mnnx", example_inputs=torch.ones(3, 3))
    assert list(tmp_path.iterdir()) == []
    assert module.training
