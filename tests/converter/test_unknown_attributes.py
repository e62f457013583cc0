"""Attributes that an op doesn't have: refused where onnxruntime refuses them, let pass where it does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper

import mnnx
from mnnx.converter.frontends.onnx import registry
from mnnx.converter.frontends.onnx.contrib_schemas import CONTRIB_ATTRIBUTES

X = helper.make_tensor_value_info("x", 1, [2, 2])


def _model(op_type: str, domain: str = "", opset: int = 20, inputs: int = 1, **attributes: Any) -> onnx.ModelProto:
    node = helper.make_node(op_type, ["x"] * inputs, ["y"], "n", domain=domain, **attributes)
    graph = helper.make_graph([node], "g", [X], [helper.make_tensor_value_info("y", 1, None)])
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (_model("Relu", alpha=3.0), r"node 'n' \(Relu, opset 20\) has the attribute 'alpha', which the op doesn't have; it has none"),
        (_model("Relu", _alpha=3.0), "has the attribute '_alpha'"),
        (_model("Relu", "ai.onnx", alpha=3.0), "has the attribute 'alpha'"),
        (
            _model("LayerNormalization", inputs=2, epsilonn=0.1),
            "the attribute 'epsilonn', which the op doesn't have; did you mean 'epsilon'?",
        ),
        (_model("Concat", axsi=1), "the attribute 'axsi', .* did you mean 'axis'?"),
        (_model("Softmax", reduction=1), "doesn't have; it has 'axis'"),
        (_model("Clip", max=6.0), "doesn't have; Clip-6 has it, of another opset"),
        (_model("Resize", opset=13, antialias=1), "doesn't have; Resize-19 has it"),
        (_model("Binarizer", "ai.onnx.ml", treshold=0.5), "did you mean 'threshold'?"),
        (
            _model("Gelu", "com.microsoft", alpha=3.0),
            r"node 'n' \(Gelu, opset 1\) has the attribute 'alpha', which the op doesn't have; it has none",
        ),
        (_model("SkipLayerNormalization", "com.microsoft", inputs=3, epsilonn=0.1), "did you mean 'epsilon'?"),
        (_model("HammingWindow", periodik=1), "did you mean 'periodic'?"),  # expanded from its function body
    ],
)
def test_an_attribute_that_the_op_doesnt_have_is_an_error(model: onnx.ModelProto, message: str, tmp_path: Path) -> None:
    with pytest.raises(mnnx.ConversionError, match=message):
        mnnx.convert(model, tmp_path / "m.mnnx")


def test_it_is_one_in_a_branch_too(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 20]> g (float[2] x, bool c) => (float[2] y)
        { y = If(c) <then_branch = t () => (float[2] p) { p = Relu<alpha=3.0>(x) }, else_branch = e () => (float[2] q) { q = Exp(x) }> }"""
    )
    with pytest.raises(mnnx.ConversionError, match="the attribute 'alpha'"):
        mnnx.convert(model, tmp_path / "m.mnnx")


@pytest.mark.parametrize(
    "model",
    [
        _model("Relu", __alpha=3.0),
        _model("Gelu", "com.microsoft", __alpha=3.0),
        _model("LayerNormalization", opset=16, inputs=2, note="before onnx had it"),
        _model("ScaledTanh", opset=9, alpha=1.0, beta=2.0, note="onnx doesn't know it"),
    ],
)
def test_what_onnxruntime_takes_converts(model: onnx.ModelProto, tmp_path: Path) -> None:
    mnnx.convert(model, tmp_path / "m.mnnx")


def test_a_constant_may_have_more_than_its_value(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 16]> g (float[2] x) => (float[2] y)
        { c = Constant<value = float {1.0}, axis = 1>() y = Mul(x, c) }"""
    mnnx.convert(onnx.parser.parse_model(text), tmp_path / "m.mnnx")


def test_the_attributes_of_all_ops_of_onnxruntime_are_known() -> None:
    contrib = {op_type for domain, op_type in registry.load_all() if domain == "com.microsoft"}
    assert contrib == CONTRIB_ATTRIBUTES.keys()
