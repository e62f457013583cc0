"""Ops of one's own with faults: the error names what is at fault, and nothing but MnnxErrors comes out of `convert` and `run`."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import mnnx
from mnnx.backends.backend import backend_creator, temporary_backend
from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.schema.ops.base import OPS
from mnnx.tools.ops import onnx_ops

#: One op whose result is known when it has run, one whose `infer` says what SPEC does, and an importer that gives no value.
SCRIPT = """
import json, sys
import mnnx, numpy as np, onnx.parser
from mnnx.backends.cpu.numpy_executions import registry

@mnnx.op("com.example::Late")
class Late(mnnx.Op):
    "Gives what RESULT does."

@mnnx.op("com.example::Early")
class Early(mnnx.Op):
    "Has SPEC as its infer."
    def infer(self, x):
        return SPEC(x)

mnnx.importer("Late", domain="com.example")(lambda node, x: Late())
mnnx.importer("Early", domain="com.example")(lambda node, x: Early())
mnnx.importer("Nothing", domain="com.example")(lambda node, x: 3)
mnnx.numpy_execution(Late)(lambda op, x: RESULT(x))
mnnx.numpy_execution(Early)(lambda op, x: x)
RESULTS = {
    "float": lambda x: 3.0,
    "objects": lambda x: np.array([object()]),
    "numpy text": lambda x: np.array(["a"]),
    "date": lambda x: np.array(["2020-01-01"], "datetime64[D]"),
    "text": lambda x: np.array(["a", "b"], object),
    "view": lambda x: np.broadcast_to(x[:1], (200_000, 200_000)),
    "array": lambda x: x[x > 0],
    "writes": lambda x: np.add(x, 1, out=x),
    "no such key": lambda x: {}["alpha"],
    "says nothing": lambda x: next(iter([])),
}
SPECS = {
    "no Spec": lambda x: x.shape,
    "name of a dtype": lambda x: mnnx.Spec("float32", x.shape),
    "negative": lambda x: mnnx.Spec(x.dtype, (-1,)),
    "name of a dim": lambda x: mnnx.Spec(x.dtype, ("N",)),
    "good": lambda x: x,
}
MODEL = '<ir_version: 8, opset_import: ["": 17, "com.example": 1]> g (float[{dim}] x) => ({outputs}) {{ {outputs} = com.example.{op}(x) }}'

def outcome(op, outputs="y", dim="2"):
    try:
        mnnx.convert(onnx.parser.parse_model(MODEL.format(op=op, outputs=outputs, dim=dim)), sys.argv[1])
        return str(mnnx.Interpreter.from_file(sys.argv[1]).create_session().run({"x": np.float32([-1, 2])})["y"].tolist())
    except mnnx.MnnxError as error:
        return f"{type(error).__name__}: {error}"

SPEC, found = SPECS["good"], {}
for name, RESULT in RESULTS.items():
    found[name] = outcome("Late")
for name, SPEC in SPECS.items():
    found[name] = outcome("Early")
    found[f"{name}, seen when it runs"] = outcome("Early", dim="N")
found["two outputs"] = outcome("Early", "y, z")
found["importer"] = outcome("Nothing")
RESULT = lambda sequence: np.array(sequence[0].flags.writeable)
found["sequence"] = str(registry.run(Late(), [[np.zeros(2)]])[0])
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What came of each, in a process of its own: what is registered stays registered."""
    path = tmp_path_factory.mktemp("faulty") / "m.mnnx"
    result = subprocess.run([sys.executable, "-c", SCRIPT, str(path)], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


LATE = "BackendError: op 'Late_0' (com.example::Late): its NumPy execution gave "
EARLY = "ConversionError: node 'Early_0' (com.example::Early) is broken: its infer must give "
EARLY_AT_RUN = "InputError: op 'Early_0' (com.example::Early) can't run on inputs float32[2]: TypeError: "


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("float", LATE + "float, which is no array, as output 0"),
        ("objects", LATE + "an array of objects that aren't all text as output 0"),
        ("numpy text", "['a']"),
        ("date", LATE + "an array of datetime64[D] as output 0"),
        ("text", "['a', 'b']"),
        ("view", "LimitExceeded: op 'Late_0' (com.example::Late) wants to make a tensor float32[200000, 200000] "),
        ("array", "[2.0]"),
        ("writes", "InputError: op 'Late_0' (com.example::Late) can't run on inputs float32[2]: ValueError: output array is read-only"),
        ("no such key", "InputError: op 'Late_0' (com.example::Late) can't run on inputs float32[2]: KeyError: 'alpha'"),
        ("says nothing", "InputError: op 'Late_0' (com.example::Late) can't run on inputs float32[2]: StopIteration"),
        ("sequence", "False"),
        ("no Spec", EARLY + "Specs, not 2"),
        (
            "no Spec, seen when it runs",
            "InputError: op 'Early_0' (com.example::Early) can't run on inputs float32[2]: TypeError: its infer must ",
        ),
        ("name of a dtype", EARLY + "a NumPy dtype and a shape of sizes, not 'float32' and (2,)"),
        ("negative", EARLY + "a NumPy dtype and a shape of sizes, not dtype('float32') and (-1,)"),
        ("name of a dim", EARLY + "a NumPy dtype and a shape of sizes, not dtype('float32') and ('N',)"),
        ("good", "[-1.0, 2.0]"),
        ("two outputs", "ConversionError: node 'Early_0' (com.example::Early) has 2 outputs, the op has 1"),
        ("importer", "ConversionError: node 'Nothing_0' (com.example::Nothing, opset 1): its importer must give an Op or values, not 3"),
    ],
)
def test_a_fault_is_told_where_it_is(found: dict[str, str], name: str, wanted: str) -> None:
    assert found[name].startswith(wanted)


def test_what_is_no_op_cant_be_registered() -> None:
    with pytest.raises(TypeError, match=r"must be a class derived from mnnx\.Op"):
        mnnx.op("com.example::NoOp")(type("NoOp", (), {}))
    with pytest.raises(TypeError, match="are for classes of ops"):
        numpy_execution(int)(lambda op: None)


_KNOWN = r"; an attribute is one of int, bool, float, str, dtype, ndarray, Subgraph, tuple\[int, \.\.\.\], "


@pytest.mark.parametrize(
    ("annotation", "default", "message"),
    [
        (list, ..., f"com.example::Bad.a can't be written to a model file: it is annotated list{_KNOWN}"),
        (list[int], (1,), rf"it is annotated list\[int\]{_KNOWN}"),
        (dict, ..., f"it is annotated dict{_KNOWN}"),
        (set[int], ..., rf"it is annotated set\[int\]{_KNOWN}"),
        (tuple[int, int], (1, 2), rf"it is annotated tuple\[int, int\]{_KNOWN}"),
        (int | str, 1, rf"it is annotated int \| str{_KNOWN}"),
        (int, [1], r"the default of com.example::Bad.a must be int, not \[1\]"),
        (np.ndarray, [1.0], r"the default of com.example::Bad.a must be ndarray, not \[1.0\]"),
    ],
)
def test_an_attribute_that_no_file_can_hold_is_refused_where_the_op_is_defined(annotation: Any, default: Any, message: str) -> None:
    body = {"__annotations__": {"a": annotation}, "__module__": __name__} | ({} if default is ... else {"a": default})
    with pytest.raises(TypeError, match=message):
        mnnx.op("com.example::Bad")(type("Bad", (mnnx.Op,), body))
    assert "com.example::Bad" not in OPS


def test_an_op_is_no_dataclass() -> None:
    body = {"__annotations__": {"a": int}, "__module__": __name__, "a": 1}
    with pytest.raises(TypeError, match="Bad must not be a dataclass"):
        mnnx.op("com.example::Bad")(dataclass(type("Bad", (mnnx.Op,), body)))


def test_a_default_becomes_what_its_annotation_says() -> None:
    body = {"__annotations__": {"a": tuple[int, ...], "b": float, "c": np.dtype}, "__module__": __name__, "a": [1, 2], "b": 1, "c": "int8"}
    try:
        made = mnnx.op("com.example::Good")(type("Good", (mnnx.Op,), body))()
        assert (made.a, made.b, made.c) == ((1, 2), 1.0, np.dtype("int8"))
        assert made.attributes() == {}
    finally:
        OPS.pop("com.example::Good")


def test_a_backend_whose_module_cant_be_loaded_is_unavailable() -> None:
    with temporary_backend("broken", "no_such_module:Backend"):
        with pytest.raises(mnnx.BackendUnavailable, match="'broken' can't be loaded from no_such_module:Backend: No module named"):
            backend_creator("broken")
        assert {row["backends"]["broken"] for row in onnx_ops() if row["op"] != "If"} <= {"", "interpreter"}


FORGOTTEN_DOMAIN = """
import mnnx, onnx.parser, sys
model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }')
if sys.argv[2] == "after":
    mnnx.convert(model, sys.argv[1])
@mnnx.importer("Relu")
def mine(node, x):
    return x
for _ in range(2):
    try:
        mnnx.convert(model, sys.argv[1])
    except mnnx.ConversionError as error:
        print(error)
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_importer_of_an_op_of_onnx_is_named_whenever_it_is_registered(tmp_path, when):
    """Before the first conversion, or after it."""
    command = [sys.executable, "-c", FORGOTTEN_DOMAIN, str(tmp_path / "m.mnnx"), when]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(lines) == 2
    assert all("__main__.mine is an importer of ai.onnx::Relu, which mnnx imports itself" in line for line in lines)


CELLS = """
import mnnx, onnx.parser, numpy as np, sys
define = '''
@mnnx.op("com.example::Times")
class Times(mnnx.Op):
    def infer(self, x):
        return mnnx.Spec(x.dtype, x.shape)
@mnnx.importer("Times", domain="com.example")
def times(node, x):
    return Times()
'''
compute = '''
@mnnx.numpy_execution(Times)
def run(op, x):
    return x * FACTOR
'''
text = '<ir_version: 8, opset_import: ["" : 17, "com.example" : 1]> g (float[2] x) => (float[2] y) { y = com.example.Times(x) }'
for cell, factor in ((define + compute, 2), (define + compute, 3), (compute, 5)):
    exec(cell.replace("FACTOR", str(factor)))
    mnnx.convert(onnx.parser.parse_model(text), sys.argv[1])
    print(mnnx.Interpreter.from_file(sys.argv[1]).create_session().run({"x": np.float32([1, 2])})["y"].tolist())
"""


def test_a_definition_that_is_run_again_takes_the_place_of_the_first(tmp_path):
    """As a cell of a notebook is."""
    result = subprocess.run([sys.executable, "-c", CELLS, str(tmp_path / "m.mnnx")], capture_output=True, text=True)
    assert result.stdout.splitlines() == ["[2.0, 4.0]", "[3.0, 6.0]", "[5.0, 10.0]"], result.stderr
