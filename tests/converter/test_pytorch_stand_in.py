"""What `convert` asks of PyTorch, and says where that can't do it; by a stand-in for torch, which exports a fixed model."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

import mnnx

MODEL = '<ir_version: 8, opset_import: ["": 17]> g (float[N, 2] x_orig) => (float[N, 2] relu) { relu = Relu(x_orig) }'


class Module:
    training = True

    def modules(self):
        return [self]

    def eval(self):
        self.training = False

    def forward(self, x, mask): ...


class Scripted(Module): ...


class Program: ...


class Exporter:
    """torch.onnx.export: notes how it is called; `fails` is raised."""

    def __init__(self):
        self.calls: list[dict[str, Any]] = []
        self.fails: Exception | None = None

    def __call__(self, module: Any, args: tuple, f: str | None = None, *, dynamo: bool = False, **options: Any) -> Any:
        self.calls.append({"args": args, "dynamo": dynamo, "training": getattr(module, "training", None), **options})
        if self.fails is not None:
            raise self.fails
        proto = onnx.parser.parse_model(MODEL)
        if f is not None:
            onnx.save(proto, f)
        program = SimpleNamespace(
            graph_signature=SimpleNamespace(user_inputs=("x",)), call_spec=SimpleNamespace(out_spec=SimpleNamespace(num_leaves=1))
        )
        model = SimpleNamespace(graph=Graph([Value("x_orig")], [Value("relu")]))
        return SimpleNamespace(model=model, exported_program=program, save=lambda path, external_data: onnx.save(proto, path))


class Value:
    def __init__(self, name: str):
        self.name = name


class Graph:
    def __init__(self, inputs: list, outputs: list):
        self.inputs, self.outputs, self.initializers = inputs, outputs, {}

    def __iter__(self):
        return iter(())


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Exporter:
    torch = ModuleType("torch")
    export = Exporter()
    torch.__version__ = "2.4.0"
    torch.nn = SimpleNamespace(Module=Module)
    torch.jit = SimpleNamespace(ScriptModule=Scripted)
    torch.export = SimpleNamespace(ExportedProgram=Program)
    torch.onnx = SimpleNamespace(export=export)
    torch.as_tensor = lambda array: ("tensor", array.shape)
    for name in ("torch", "torch.utils", "torch.utils._pytree"):
        monkeypatch.setitem(sys.modules, name, torch if name == "torch" else ModuleType(name))
    pytree = sys.modules["torch.utils._pytree"]
    pytree.tree_unflatten = lambda leaves, spec: leaves[0]
    pytree.tree_flatten_with_path = lambda tree: ([((), tree)], None)
    sys.modules["torch.utils"]._pytree = pytree
    return export


@pytest.mark.parametrize(
    ("example", "args", "kwargs"),
    [
        ("a tensor", ("a tensor",), {}),
        (("a", "b"), ("a", "b"), {}),
        ({"x": "a", "mask": None}, (), {"x": "a", "mask": None}),
        (np.ones((2, 3)), (("tensor", (2, 3)),), {}),
    ],
)
def test_examples_are_arguments_of_forward(tmp_path: Path, exporter: Exporter, example, args, kwargs) -> None:
    mnnx.convert(Module(), tmp_path / "m.mnnx", example_inputs=example, dynamic_shapes={"x": {0: "N"}})
    (call,) = exporter.calls
    wanted = {"args": args, "kwargs": kwargs, "dynamo": True, "dynamic_shapes": {"x": {0: "N"}}, "training": False}
    assert wanted.items() <= call.items()


def test_the_report_names_the_module_and_its_stages_begin_with_the_export(tmp_path: Path, exporter: Exporter) -> None:
    stages = []
    report = mnnx.convert(Module(), tmp_path / "m.mnnx", example_inputs="a", progress=lambda stage, fraction: stages.append(stage))
    assert report.source == "Module"
    assert stages == ["export", "import", "optimize", "write", "done"]


def test_a_program_brings_its_own_examples(tmp_path: Path, exporter: Exporter) -> None:
    mnnx.convert(Program(), tmp_path / "m.mnnx")
    assert exporter.calls[0]["args"] == ()
    with pytest.raises(mnnx.ConversionError, match="an ExportedProgram has those that it was exported with"):
        mnnx.convert(Program(), tmp_path / "m.mnnx", example_inputs="a")


def test_a_scripted_module_is_traced_with_the_names_of_its_forward(tmp_path: Path, exporter: Exporter) -> None:
    mnnx.convert(Scripted(), tmp_path / "m.mnnx", example_inputs=("a",))
    assert exporter.calls[0]["args"] == ("a", {})
    assert (exporter.calls[0]["dynamo"], exporter.calls[0]["input_names"]) == (False, ["x"])
    with pytest.raises(mnnx.ConversionError, match="Scripted is scripted: give the module itself"):
        mnnx.convert(Scripted(), tmp_path / "m.mnnx", example_inputs=("a",), dynamic_shapes=({0: "n"},))


def test_pytorch_without_the_newer_exporter_traces(tmp_path: Path, exporter: Exporter) -> None:
    sys.modules["torch"].onnx.export = lambda module, args, f, **options: exporter(module, args, f, **options)
    mnnx.convert(Module(), tmp_path / "m.mnnx", example_inputs={"x": "a"})
    assert exporter.calls[0]["args"] == ({"x": "a"},)
    assert exporter.calls[0]["input_names"] == ["x"]
    with pytest.raises(mnnx.ConversionError, match=r"PyTorch 2\.5 or newer; this is 2\.4\.0"):
        mnnx.convert(Module(), tmp_path / "m.mnnx", example_inputs="a", dynamic_shapes=({0: "n"},))


def _caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ModuleNotFoundError("No module named 'onnxscript'", name="onnxscript"), "needs the package onnxscript.*pip install onnxscript"),
        (ValueError("\x1b[96mstep 1\x1b[0m"), "can't export the module Module to ONNX: ValueError: step 1$"),
        (_caused(RuntimeError("advice"), TypeError("no such op")), "can't export the module Module to ONNX: TypeError: no such op$"),
    ],
)
def test_an_export_that_fails_says_why_and_leaves_nothing(tmp_path: Path, exporter: Exporter, error: Exception, message: str) -> None:
    exporter.fails = error
    module = Module()
    with pytest.raises(mnnx.ConversionError, match=message):
        mnnx.convert(module, tmp_path / "m.mnnx", example_inputs="a")
    assert module.training
    assert list(tmp_path.iterdir()) == []


def test_a_module_needs_examples(tmp_path: Path, exporter: Exporter) -> None:
    with pytest.raises(mnnx.ConversionError, match="the module Module needs example_inputs"):
        mnnx.convert(Module(), tmp_path / "m.mnnx")


def test_other_sources_take_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(mnnx.ConversionError, match=r"example_inputs are for .*torch\.nn\.Module; this one is a str.*pip install torch"):
        mnnx.convert("model.pt", tmp_path / "m.mnnx", example_inputs=1)


def test_a_file_of_pytorch_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(b"PK")
    with pytest.raises(mnnx.ConversionError, match="load the module in Python and give that"):
        mnnx.convert(tmp_path / "model.pt", tmp_path / "m.mnnx")


def test_a_traced_module_has_the_names_of_its_schema(tmp_path: Path, exporter: Exporter) -> None:
    module = Scripted()
    module.forward = SimpleNamespace(schema=SimpleNamespace(arguments=[SimpleNamespace(name=name) for name in ("self", "image", "mask")]))
    mnnx.convert(module, tmp_path / "m.mnnx", example_inputs=("a",))
    assert exporter.calls[0]["input_names"] == ["image"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"input_names": "image"}, "input_names must be a list of names, not 'image'"),
        ({"output_names": [1]}, "output_names must be a list of names"),
        ({"input_names": ["a"], "output_names": ["a"]}, "the name 'a' is given to two inputs or outputs"),
        ({"output_names": ["a", "a"]}, "the name 'a' is given to two inputs or outputs"),
        ({"output_names": ["a", "b"]}, "output_names has 2 names, the module has 1: relu"),
        ({"input_names": ["a", "b"]}, "input_names has 2 names, the module has 1: x_orig"),
    ],
)
def test_names_that_dont_fit_are_an_error(tmp_path: Path, exporter: Exporter, names: dict, message: str) -> None:
    with pytest.raises(mnnx.ConversionError, match=message):
        mnnx.convert(Module(), tmp_path / "m.mnnx", example_inputs="a", **names)
