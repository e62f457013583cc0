"""Conversions that are made to go wrong: `mnnx verify` names the first wrong op, and the pass that made it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import pytest

import mnnx
from mnnx.backends.backend import temporary_backend
from mnnx.backends.cpu import creators
from mnnx.backends.cpu.backend import CpuBackend
from mnnx.backends.cpu.host_execution import HostExecution
from mnnx.converter import passes
from mnnx.converter.frontends.onnx.registry import IMPORTERS
from mnnx.converter.graph import Graph, Node
from mnnx.converter.passes.base import Pass, Rule, RulePass, substitute
from mnnx.converter.stages import stages
from mnnx.schema.ops.activation import HardSigmoid, Sigmoid, Swish
from mnnx.schema.ops.arithmetic import Add, Exp, Mul, Sub, Tanh
from mnnx.schema.ops.base import Op
from mnnx.schema.ops.pooling import GlobalMaxPool
from mnnx.tools.references import Reference, ReferenceFailed

SHAPE = ("--shape", "image=1,3,8,8")
#: Two sums, of which the passes see one as a bias.
SUMS = """<ir_version: 8, opset_import: ["": 17]> g (float[2, 3] x, float[3] z) => (float[2, 4] y)
    <float[3, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}>
    { first = Add(x, z) hidden = MatMul(first, w) act = Sigmoid(hidden) s = ReduceMean<axes = [0], keepdims = 0>(act) second = Add(act, s)
      y = Tanh(second) }"""


def _report(mnnx_command, *arguments: object) -> dict:
    result = mnnx_command("verify", *arguments, "--json")
    assert result.exit_code == 1
    return json.loads(result.stdout)


class SubForAdd(Rule):
    """Takes the second sum for a difference."""

    name = "Sub for Add"
    ops = (Add,)

    def match(self, node: Node, graph: Graph) -> str | None:
        return None if isinstance(node.op, Add) and node.outputs[0].name == "second" else "it isn't the second sum"

    def rewrite(self, node: Node, graph: Graph) -> None:
        substitute(graph, node, Node(Sub(), node.inputs, node.outputs, node.name))


class BrokenPass(RulePass):
    name = "broken-pass"
    level = 2
    rules = (SubForAdd(),)


class FailingPass(Pass):
    """Makes a model that no longer runs."""

    name = "failing-pass"
    level = 1

    def run(self, graph: Graph, counts: Counter[str]) -> None:
        node = next(node for node in graph.nodes if node.op.name == "Add")
        node.set_input(1, next(value for value in graph.values() if value.name == "w"))
        counts["a bias of another shape"] += 1

    def reasons(self, node: Node, graph: Graph) -> Iterator[tuple[str, str]]:
        return iter(())


@pytest.fixture
def injected(monkeypatch: pytest.MonkeyPatch):
    """Puts a pass among the passes, behind some of them."""

    def inject(one: Pass, position: int = 5) -> None:
        all_passes = passes.all_passes
        monkeypatch.setattr(passes, "all_passes", lambda: [*all_passes()[:position], one, *all_passes()[position:]])

    return inject


@pytest.fixture
def imported_as(monkeypatch: pytest.MonkeyPatch):
    """Lets an ONNX op be imported as another one."""
    return lambda op_type, op: monkeypatch.setitem(IMPORTERS, ("", op_type), lambda node, *inputs: op)


def test_a_pass_that_changes_results_is_named(mnnx_command, saved, injected) -> None:
    injected(BrokenPass())
    found = _report(mnnx_command, saved(SUMS))
    assert found["wrong_op"] is None
    assert [row["equal"] for row in found["unoptimized"]] == [True]
    wrong = found["wrong_pass"]
    assert (wrong["pass"], wrong["position"], wrong["rewrites"]) == ("broken-pass", 6, {"Sub for Add": 1})
    assert (wrong["tensor"]["name"], wrong["tensor"]["op"], wrong["execution_differs"]) == ("second", "Sub", False)
    text = mnnx_command("verify", saved(SUMS)).stdout
    assert "the first pass after which outputs differ is 'broken-pass', number 6, which did: Sub for Add (1)" in text
    assert "the first wrong op after it makes 'second': the Sub node " in text
    assert mnnx_command("verify", saved(SUMS), "--level", 1).exit_code == 0


def test_what_later_passes_make_of_a_wrong_op_doesnt_hide_it(mnnx_command, saved, injected) -> None:
    injected(BrokenPass(), position=0)
    assert _report(mnnx_command, saved(SUMS), "--level", 3)["wrong_pass"]["pass"] == "broken-pass"


def test_a_pass_after_which_the_model_cant_run_is_named(mnnx_command, saved, injected) -> None:
    source = saved(SUMS)
    assert mnnx_command("verify", source).exit_code == 0
    injected(FailingPass())
    found = _report(mnnx_command, source)
    assert "(Add) can't run on inputs" in found["failure"]
    assert [row["equal"] for row in found["unoptimized"]] == [True]
    assert [row["note"] for row in found["outputs"]] == ["the model can't run"]
    assert found["wrong_op"] is None
    assert found["wrong_pass"]["pass"] == "failing-pass"
    assert "(Add) can't run on inputs" in found["wrong_pass"]["error"]
    assert "the optimized model can't run: op " in mnnx_command("verify", source).stdout


def test_what_is_wrong_is_found_beside_random_numbers(mnnx_command, saved, injected) -> None:
    injected(BrokenPass())
    text = SUMS.replace("y = Tanh(second)", "y = Tanh(second) r = RandomNormalLike(hidden) n = Add(r, second)")
    source = saved(text.replace("(float[2, 4] y)", "(float[2, 4] y, float[2, 4] n)"))
    found = _report(mnnx_command, source)
    assert [(row["name"], row["equal"]) for row in found["outputs"]] == [("y", False), ("n", True)]
    assert (found["wrong_op"], found["wrong_pass"]["pass"], found["wrong_pass"]["tensor"]["name"]) == (None, "broken-pass", "second")


@pytest.mark.parametrize("reference", ["onnxruntime", "onnx"])
@pytest.mark.parametrize("level", [0, 2])
def test_a_wrong_importer_is_found(mnnx_command, classifier: Path, imported_as, reference: str, level: int) -> None:
    imported_as("GlobalAveragePool", GlobalMaxPool())
    found = _report(mnnx_command, classifier, *SHAPE, "--reference", reference, "--level", level)
    row = found["wrong_op"]
    assert (row["name"], row["op"], row["alone"], row["execution_differs"]) == ("pooled", "GlobalAveragePool", True, False)
    assert row["compared"] == row["tensors"] == 5
    assert found["wrong_pass"] is None
    text = mnnx_command("verify", classifier, *SHAPE, "--reference", reference).stdout
    assert "the first wrong op, without optimization, makes 'pooled', made by the GlobalAveragePool node" in text


def test_a_wrong_execution_is_told_from_a_wrong_model(mnnx_command, saved, monkeypatch) -> None:
    find = creators.find
    wrong = (lambda op, backend, inputs, outputs: HostExecution(Tanh(), backend)), (lambda op, inputs, outputs: None)
    monkeypatch.setattr(creators, "find", lambda op_class: wrong if op_class is Sigmoid else find(op_class))
    source = saved('<ir_version: 8, opset_import: ["": 17]> g (float[40, 50] x) => (float[40, 50] y) { s = Sigmoid(x) y = Exp(s) }')
    found = _report(mnnx_command, source, "--level", 0)
    assert (found["wrong_op"]["name"], found["wrong_op"]["execution_differs"]) == ("s", True)


def test_a_node_that_magnifies_what_was_rounded_before_isnt_called_wrong(mnnx_command, saved, monkeypatch) -> None:
    """Exp is a little off, within what is allowed; the subtraction behind it leaves nothing but that."""
    source = saved(
        """<ir_version: 8, opset_import: ["": 17]> g (float[1] x) => (float[1] y) <float a = {0.0001}, float one = {1}>
        { e = Exp(x) z = Identity(e) d = Sub(z, one) y = Identity(d) }"""
    )
    monkeypatch.setitem(IMPORTERS, ("", "Exp"), lambda node, x: node.add(Mul(), node.add(Exp(), x), node.constant(1.0004, "float32")))
    found = _report(mnnx_command, source, "-i", "x=[0.001]", "--rtol", "1e-3", "--atol", "0")
    assert (found["wrong_op"]["name"], found["wrong_op"]["alone"]) == ("d", False)
    text = mnnx_command("verify", source, "-i", "x=[0.001]", "--atol", "0").stdout
    assert "the first tensor that differs is 'd', made by the Sub node" in text
    assert "what was rounded before them is magnified" in text


def test_a_difference_is_told_even_where_it_cant_be_located(mnnx_command, classifier: Path, imported_as, monkeypatch) -> None:
    run = Reference.run

    def only_outputs(self, feed, names=None):
        if names is not None:
            raise ReferenceFailed("not today")
        return run(self, feed)

    monkeypatch.setattr(Reference, "run", only_outputs)
    imported_as("Relu", HardSigmoid())
    result = mnnx_command("verify", classifier, *SHAPE)
    assert result.exit_code == 1
    assert "DIFFERS" in result.stdout
    assert "where that begins can't be seen: not today" in result.stdout


def test_without_a_reference_that_runs_the_model_the_levels_are_compared(mnnx_command, saved, injected, monkeypatch) -> None:
    def fails(self, feed, names=None):
        raise ReferenceFailed("no such op")

    monkeypatch.setattr(Reference, "run", fails)
    source = saved(SUMS)
    result = mnnx_command("verify", source)
    assert result.exit_code == 0
    assert "no such op; the optimized model is compared with the unoptimized one alone" in result.stdout
    injected(BrokenPass())
    assert _report(mnnx_command, source)["wrong_pass"]["pass"] == "broken-pass"


def test_a_node_in_an_if_is_run_with_what_its_branches_capture(mnnx_command, saved, imported_as) -> None:
    imported_as("Neg", HardSigmoid())
    source = saved(
        """<ir_version: 8, opset_import: ["": 17]> g (float[2] x, bool c) => (float[2] y)
        { a = Exp(x)
          y = If (c) <then_branch = t () => (float[2] u) { u = Neg(a) }, else_branch = e () => (float[2] v) { v = Exp(a) }> }"""
    )
    found = _report(mnnx_command, source, "-i", "c=true")
    assert (found["wrong_op"]["name"], found["wrong_op"]["op"], found["wrong_op"]["alone"]) == ("y", "If", True)


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_a_right_model_has_nothing_wrong(mnnx_command, saved, level: int) -> None:
    report = json.loads(mnnx_command("verify", saved(SUMS), "--level", level, "--json").stdout)
    assert (report["equal"], report["wrong_op"], report["wrong_pass"]) == (True, None, None)
    assert len(report["unoptimized"]) == (level > 0)


@pytest.fixture
def wrong_backend():
    """A backend that takes every op of a class for a Tanh."""

    @contextmanager
    def make(op_class: type[Op]) -> Iterator[None]:
        class WrongBackend(CpuBackend):
            name = "wrong"

            def create(self, op, inputs, outputs):
                return HostExecution(Tanh(), self) if isinstance(op, op_class) else super().create(op, inputs, outputs)

        with temporary_backend("wrong", WrongBackend):
            yield

    return make


def test_a_wrong_execution_of_another_backend_is_looked_for_there(mnnx_command, saved, wrong_backend) -> None:
    source = saved('<ir_version: 8, opset_import: ["": 17]> g (float[40, 50] x) => (float[40, 50] y) { s = Sigmoid(x) y = Exp(s) }')
    with wrong_backend(Sigmoid):
        found = _report(mnnx_command, source, "--level", 0, "--backend", "wrong")
    assert (found["wrong_op"]["name"], found["wrong_op"]["alone"], found["wrong_op"]["execution_differs"]) == ("s", True, True)


def test_a_pass_that_makes_an_op_which_another_backend_gets_wrong_is_named(mnnx_command, saved, wrong_backend) -> None:
    source = saved(
        """<ir_version: 8, opset_import: ["": 17]> g (float[40, 50] x) => (float[40, 50] y)
        { e = Exp(x) s = Sigmoid(e) m = Mul(e, s) y = Sqrt(m) }"""
    )
    with wrong_backend(Swish):
        found = _report(mnnx_command, source, "--backend", "wrong")
    assert found["wrong_op"] is None
    wrong = found["wrong_pass"]
    assert (wrong["pass"], wrong["tensor"]["name"], wrong["execution_differs"]) == ("activation-recognition", "m", True)


def test_passes_are_numbered_as_they_are_dumped(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(SUMS)
    mnnx.convert(model, tmp_path / "m.mnnx", disable_passes=["dead-code"], dump_passes=tmp_path)
    found = [stage for stage in stages(model, 2, disable_passes=["dead-code"]) if stage.by_pass]
    assert found
    assert all((tmp_path / f"{stage.position:02}-{stage.by_pass}.txt").exists() for stage in found)


def test_half_weights_are_a_stage_where_no_pass_runs() -> None:
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]> g (float[2, 64] x) => (float[2, 64] y) { y = MatMul(x, w) }')
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((64, 64), np.float32), "w"))
    found = [(stage.position, stage.by_pass) for stage in stages(model, 0, "float16", disable_passes=["dead-code"])]
    assert found == [(0, ""), (len(passes.all_passes()) + 1, "half-weights")]
