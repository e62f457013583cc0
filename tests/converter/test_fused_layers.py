"""A transformer as onnxruntime's own optimizer writes it, of its fused layers (com.microsoft), with open dims."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import mnnx

HIDDEN, WORDS, POSITIONS = 16, 11, 9
RNG = np.random.default_rng(5)


def weight(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / 2).astype(np.float32)


def transformer(layers: int = 2) -> onnx.ModelProto:
    """[N, L] ids, segments and mask → [N, L, HIDDEN]; a layer is Attention and a product of Gelu, each with a SkipLayerNormalization."""
    nodes, weights = [], {}

    def add(op_type: str, inputs: list[str], outputs: list[str], **attributes) -> None:
        nodes.append(helper.make_node(op_type, inputs, outputs, domain="" if op_type == "MatMul" else "com.microsoft", **attributes))

    def of(name: str, *shape: int) -> str:
        weights[name] = weight(*shape)
        return name

    tables = [of("words", WORDS, HIDDEN), of("positions", POSITIONS, HIDDEN), of("segments", 2, HIDDEN)]
    add("EmbedLayerNormalization", ["ids", "types", *tables, of("g", HIDDEN), of("b", HIDDEN), "mask"], ["x0", "lengths"])
    for i in range(layers):
        qkv = [of(f"qkv{i}", HIDDEN, 3 * HIDDEN), of(f"qkv_bias{i}", 3 * HIDDEN)]
        add("Attention", [f"x{i}", *qkv, "lengths"], [f"a{i}"], num_heads=2)
        add("MatMul", [f"a{i}", of(f"o{i}", HIDDEN, HIDDEN)], [f"p{i}"])
        norm = [of(f"g{i}", HIDDEN), of(f"b{i}", HIDDEN), of(f"s{i}", HIDDEN)]
        add("SkipLayerNormalization", [f"p{i}", f"x{i}", *norm], [f"y{i}"])
        add("MatMul", [f"y{i}", of(f"up{i}", HIDDEN, 24)], [f"u{i}"])
        add("BiasGelu", [f"u{i}", of(f"up_bias{i}", 24)], [f"v{i}"])
        add("MatMul", [f"v{i}", of(f"down{i}", 24, HIDDEN)], [f"d{i}"])
        add("SkipLayerNormalization", [f"y{i}", f"d{i}", *norm], [f"x{i + 1}"])
    inputs = [helper.make_tensor_value_info(name, onnx.TensorProto.INT32, ["N", "L"]) for name in ("ids", "types", "mask")]
    outputs = [helper.make_tensor_value_info(f"x{layers}", onnx.TensorProto.FLOAT, ["N", "L", HIDDEN])]
    graph = helper.make_graph(nodes, "t", inputs, outputs, [numpy_helper.from_array(array, name) for name, array in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)], ir_version=8)


def feed(batch: int, length: int) -> dict[str, np.ndarray]:
    mask = np.ones((batch, length), np.int32)
    mask[-1, max(1, length - 2) :] = 0
    ids, types = RNG.integers(0, WORDS, (batch, length)), RNG.integers(0, 2, (batch, length))
    return {"ids": ids.astype(np.int32), "types": types.astype(np.int32), "mask": mask}


def test_a_transformer_of_fused_layers_is_fused_again(tmp_path: Path) -> None:
    """The dims of fused layers are known by their names, so that residual sums fit, and the mask is made once."""
    ops = mnnx.convert(transformer(), tmp_path / "m.mnnx").ops_after
    layer = {"mnnx::FusedMatMul": 4, "mnnx::PackedAttention": 1, "LayerNormalization": 2}
    once = {"mnnx::EmbedLayerNormalization": 1, "ReduceSum": 1, "Shape": 2, "mnnx::AttentionMask": 1}
    assert dict(ops) == {name: 2 * count for name, count in layer.items()} | once


@pytest.mark.parametrize("level", [0, 2])
def test_it_gives_what_onnxruntime_gives(level: int, session_of) -> None:
    model = transformer()
    session, reference = session_of(model, level=level), onnxruntime.InferenceSession(model.SerializeToString())
    for batch, length in ((2, 6), (3, 1), (1, POSITIONS)):
        fed = feed(batch, length)
        np.testing.assert_allclose(session.run(fed)["x2"], reference.run(None, fed)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "value"), [("ids", WORDS), ("ids", -WORDS - 1), ("types", 2)])
def test_an_id_that_no_table_has_is_named(name: str, value: int, session_of) -> None:
    session, fed = session_of(transformer()), feed(2, 4)
    good = session.run(fed)["x2"]
    with pytest.raises(mnnx.InputError, match=rf"EmbedLayerNormalization.*{value} is outside"):
        session.run(fed | {name: np.full_like(fed[name], value)})
    np.testing.assert_array_equal(session.run(fed)["x2"], good)


def test_more_tokens_than_positions_are_refused(session_of) -> None:
    with pytest.raises(mnnx.InputError, match=f"there are {POSITIONS} positions for {POSITIONS + 1} tokens"):
        session_of(transformer()).run(feed(1, POSITIONS + 1))


@pytest.mark.parametrize(
    ("op_type", "made"),
    [("SkipLayerNormalization", ["y", "mean", "inverse", "sum"]), ("SkipSimplifiedLayerNormalization", ["y", "", "inverse", "sum"])],
)
def test_a_residual_sum_and_statistics_are_results_of_one_op(op_type: str, made: list[str], tmp_path: Path) -> None:
    node = helper.make_node(op_type, ["x", "skip", "g"], made, domain="com.microsoft", epsilon=1e-3)
    inputs = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", 3, HIDDEN]) for name in ("x", "skip")]
    outputs = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in made if name]
    graph = helper.make_graph([node], "t", inputs, outputs, [numpy_helper.from_array(weight(HIDDEN), "g")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)], ir_version=8)
    assert dict(mnnx.convert(model, tmp_path / "m.mnnx").ops_after) == {f"com.microsoft::{op_type}": 1}
    reference = onnxruntime.InferenceSession(model.SerializeToString())
    with mnnx.Interpreter.from_file(tmp_path / "m.mnnx") as interpreter, interpreter.create_session() as session:
        for batch in (2, 1):
            fed = {name: weight(batch, 3, HIDDEN) for name in ("x", "skip")}
            for got, array in zip(session.run(fed).values(), reference.run(None, fed), strict=True):
                np.testing.assert_allclose(got, array, rtol=1e-4, atol=1e-5)
