"""Ops of one's own with faults: the error names what is at fault, and nothing but MnnxErrors comes out of `convert` and `run`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import mnnx
from mnnx.backends.backend import backend_creator, temporary_backend
from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.tools.ops import onnx_ops

#: One op whose result is known when it has run, one whose `infer` says what SPEC does, and an importer that gives no value.
SCRIPT = """
import json, sys
import mnnx, numpy as np, onnx.parser

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
}
SPECS = {
    "no Spec": lambda x: x.shape,
    "name of a dtype": lambda x: mnnx.Spec("float32", x.shape),
    "negative": lambda x: mnnx.Spec(x.dtype, (-1,)),
    "name of a dim": lambda x: mnnx.Spec(x.dtype, ("N",)),
    "good": lambda x: x,
}
MODEL = '<ir_version: 8, opset_import: ["": 17, "com.example": 1]> g (float[2] x) => ({outputs}) {{ {outputs} = com.example.{op}(x) }}'

def outcome(op, outputs="y"):
    try:
        mnnx.convert(onnx.parser.parse_model(MODEL.format(op=op, outputs=outputs)), sys.argv[1])
        return str(mnnx.Interpreter.from_file(sys.argv[1]).create_session().run({"x": np.float32([-1, 2])})["y"].tolist())
    except mnnx.MnnxError as error:
        return f"{type(error).__name__}: {error}"

SPEC, found = SPECS["good"], {}
for name, RESULT in RESULTS.items():
    found[name] = outcome("Late")
for name, SPEC in SPECS.items():
    found[name] = outcome("Early")
found["two outputs"] = outcome("Early", "y, z")
found["importer"] = outcome("Nothing")
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
        ("no Spec", EARLY + "Specs, not 2"),
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


def test_a_backend_whose_module_cant_be_loaded_is_unavailable() -> None:
    with temporary_backend("broken", "no_such_module:Backend"):
        with pytest.raises(mnnx.BackendUnavailable, match="'broken' can't be loaded from no_such_module:Backend: No module named"):
            backend_creator("broken")
        assert {row["backends"]["broken"] for row in onnx_ops() if row["op"] != "If"} <= {"", "interpreter"}
