"""Input shapes and named dims that are fixed at conversion."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import mnnx
from mnnx.converter.computed_dims import computed_dim
from mnnx.converter.stages import stages

TWO_INPUTS = """
<ir_version: 9, opset_import: ["" : 20]>
agraph (float[N, 3, H, W] x, float[N, K] z, float[2] fixed) => (float[N, M] y, float[N, K] same)
<int64[2] start = {0, -1}>
{
    a = Flatten(x)
    y = Concat<axis = 1>(a, z)
    same = Identity(z)
    unused = Exp(fixed)
}
"""

#: A shape computed from the input's, as exporters write it.
SHAPE_ARITHMETIC = """
<ir_version: 9, opset_import: ["" : 20]>
agraph (float[N, 3, H, W] x) => (float[N, M] y)
<int64 zero = {0}, int64[1] front = {0}, int64[1] rest = {-1}>
{
    shape = Shape(x)
    n = Gather(shape, zero)
    first = Unsqueeze(n, front)
    target = Concat<axis = 0>(first, rest)
    flat = Reshape(x, target)
    y = Exp(flat)
}
"""


@pytest.fixture
def input_dims(tmp_path: Path) -> Callable[..., dict[str, tuple]]:
    """Converts a model; gives the dims of its inputs and outputs."""

    def convert(text: str, **options: Any) -> dict[str, tuple]:
        mnnx.convert(onnx.parser.parse_model(text), tmp_path / "m.mnnx", **options)
        session = mnnx.Interpreter.from_file(tmp_path / "m.mnnx").create_session()
        return {name: tensor.dims for name, tensor in (session.inputs | session.outputs).items()}

    return convert


@pytest.mark.parametrize(
    ("options", "x", "z"),
    [
        ({"input_shapes": {"x": (1, 3, 224, 224)}}, (1, 3, 224, 224), (1, "K")),
        ({"dims": {"N": 4}}, (4, 3, "H", "W"), (4, "K")),
        ({"dims": {"N": 4, "H": 8}, "input_shapes": {"x": (-1, 3, None, 16)}}, (4, 3, 8, 16), (4, "K")),
        ({"input_shapes": {"x": (1, 3, "?", "?"), "z": [1, 7]}}, (1, 3, "H", "W"), (1, 7)),
        ({"input_shapes": {"x": ("batch", 3, "H", "H")}, "dims": {"batch": 2}}, (2, 3, "H", "H"), (2, "K")),
        ({"input_shapes": {"x": ("batch", 3, "H", "W")}}, ("batch", 3, "H", "W"), ("batch", "K")),
        ({"input_shapes": {"x": (np.int64(5), 3, "H", "W"), "fixed": (2,)}}, (5, 3, "H", "W"), (5, "K")),
    ],
)
def test_what_is_fixed_is_fixed_in_all_inputs_and_the_rest_keeps_its_name(options: dict, x: tuple, z: tuple, input_dims) -> None:
    found = input_dims(TWO_INPUTS, **options)
    assert (found["x"], found["z"], found["fixed"], found["same"]) == (x, z, (2,), z)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"input_shapes": {"image": (1, 3, 8, 8)}}, r"no input 'image'; its inputs are 'x' \[N, 3, H, W\], 'z' \[N, K\], 'fixed' \[2\]"),
        ({"input_shapes": {"start": (2,)}}, "no input 'start'"),
        ({"input_shapes": {"x": (1, 3, 224)}}, r"'x' is \[N, 3, H, W\], of rank 4; the shape given has rank 3: \[1, 3, 224\]"),
        ({"input_shapes": {"x": (1, 4, 8, 8)}}, r"'x' is \[N, 3, H, W\]; its dim 3 is fixed, and can't be 4"),
        ({"input_shapes": {"fixed": ("name",)}}, "its dim 2 is fixed, and can't be 'name'"),
        ({"input_shapes": {"x": (1, 3, 8, 8), "z": (2, 5)}}, "its dim 'N' can't be both 1 and 2"),
        ({"input_shapes": {"x": (1, 3, 8, 8)}, "dims": {"N": 2}}, "the dim 'N' can't be 2: the input shapes make it 1"),
        ({"input_shapes": {"x": ("batch", 3, "H", "W")}, "dims": {"N": 2}}, "the dim 'N' can't be 2: the input shapes make it 'batch'"),
        ({"dims": {"batch": 2}}, "no input has a dim 'batch'; named dims are 'H', 'K', 'N', 'W'"),
        ({"dims": {"N": 0}}, r"'N' must be a whole number from 1 to 2\*\*63 - 1, or a range \(smallest, largest\), not 0"),
        ({"dims": {"N": 1.5}}, "must be a whole number"),
        ({"dims": {"N": 2**70}}, r"the dim 'N' must be a whole number from 1 to 2\*\*63 - 1, .*, not 1180591620717411303424"),
        ({"input_shapes": {"x": ("-5", 3, 8, 8)}}, "a dim of the input 'x' must be a whole number .*, not '-5'"),
        ({"dims": ["N"]}, "dims must be a dict"),
        ({"dims": {"N": (1, 2, 3)}}, r"the dim 'N' must be .* or a range \(smallest, largest\), not \(1, 2, 3\)"),
        ({"dims": {"N": (8, 1)}}, r"the range of the dim 'N' is empty: 8\.\.1"),
        ({"dims": {"N": (-1, 8)}}, "the smallest size of the dim 'N' must be a whole number"),
        ({"dims": {"N": (1, 8.5)}}, "the largest size of the dim 'N' must be a whole number"),
        ({"dims": {"batch": (1, 8)}}, "no input has a dim 'batch'"),
        ({"dims": {"N": (1, 8)}, "input_shapes": {"x": (2, 3, 8, 8)}}, r"the dim 'N' is fixed at 2, and can't have the range 1\.\.8"),
        ({"input_shapes": {"x": (1, (3, 4), 8, 8)}}, r"dim 1 of the input 'x' .* is fixed at 3, and can't have the range 3\.\.4"),
        ({"input_shapes": {"x": ((1, 8), 3, 8, 8), "z": ((1, 4), 5)}}, r"'z' \[N, 5\] can't have two ranges, 1\.\.8 and 1\.\.4"),
        ({"input_shapes": {"x": "1x3x8x8"}}, "must be a list of sizes"),
        ({"input_shapes": {"x": (1, 3, 8, -2)}}, r"a dim of the input 'x' must be a whole number from 1 to 2\*\*63 - 1, .*, not -2"),
        (
            {"input_shapes": {"x": [[1, 8], 3, 8, 8]}},
            r"'x' must be a whole number .*, or a range \(smallest, largest\), or a name, or None, -1 or \"\?\" where it stays as it is, "
            r"not \[1, 8\]; a range is a tuple: \(1, 8\)",
        ),
        ({"dims": {"N": [1, None]}}, r"or a range \(smallest, largest\), not \[1, None\]; a range is a tuple: \(1, None\)"),
        ({"dims": {"N": [4]}}, r"or a range \(smallest, largest\), not \[4\]$"),
        ({"dims": {"N": np.array([1, 8])}}, r"or a range \(smallest, largest\), not array"),
        ({"input_shapes": {"x": (np.array([1, 8]), 3, 8, 8)}}, r"or a name, .* not array"),
        ({"dims": {"N": (1, "8")}}, "the largest size of the dim 'N' must be a whole number .*, or None for no limit, not '8'"),
    ],
)
def test_what_doesnt_fit_the_model_is_an_error(options: dict, message: str, tmp_path: Path) -> None:
    with pytest.raises(mnnx.ConversionError, match=message):
        mnnx.convert(onnx.parser.parse_model(TWO_INPUTS), tmp_path / "m.mnnx", **options)
    assert not (tmp_path / "m.mnnx").exists()


@pytest.mark.parametrize(
    ("options", "ranges"),
    [
        ({"dims": {"N": (1, 8)}}, {"N": (1, 8)}),
        ({"dims": {"N": (0, None), "K": 5}}, {"N": (0, None)}),
        ({"input_shapes": {"x": ((1, 8), 3, None, (np.int64(16), 32))}}, {"N": (1, 8), "W": (16, 32)}),
        ({"input_shapes": {"x": ((1, 8), 3, "?", "?"), "z": ((1, 8), 4)}}, {"N": (1, 8)}),
        ({"input_shapes": {"x": ("batch", 3, "S", "S")}, "dims": {"batch": (1, 4), "S": (7, 7)}}, {"batch": (1, 4), "S": (7, 7)}),
    ],
)
def test_ranges_belong_to_names(options: dict, ranges: dict, tmp_path: Path) -> None:
    report = mnnx.convert(onnx.parser.parse_model(TWO_INPUTS), tmp_path / "m.mnnx", **options)
    assert report.ranges == mnnx.Interpreter.from_file(tmp_path / "m.mnnx").model.ranges == ranges


def test_sessions_take_no_size_out_of_its_range(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(TWO_INPUTS)
    mnnx.convert(model, tmp_path / "m.mnnx", dims={"N": (2, 4), "H": (1, None)})
    session = mnnx.Interpreter.from_file(tmp_path / "m.mnnx").create_session()

    def feed(batch: int, height: int = 5) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(batch)
        shapes = {"x": (batch, 3, height, 6), "z": (batch, 7), "fixed": (2,)}
        return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}

    for batch in (2, 3, 4):
        np.testing.assert_array_equal(session.run(feed(batch))["y"], ReferenceEvaluator(model).run(["y"], feed(batch))[0])
    for batch in (0, 1, 5):
        message = rf"'x' wants the shape \[N, 3, H, W\], got \[{batch}, 3, 5, 6\]: N must be in 2\.\.4"
        with pytest.raises(mnnx.InputError, match=message):
            session.run(feed(batch))
        with pytest.raises(mnnx.InputError, match=message):
            session.resize({"x": (batch, 3, 5, 6)})
    with pytest.raises(mnnx.InputError, match=r"H must be in 1\.\.$"):
        session.run(feed(3, height=0))


def test_a_range_names_its_dim(tmp_path: Path) -> None:
    model = onnx.parser.parse_model('<ir_version: 9, opset_import: ["" : 20]> agraph (float[3, N] x) => (float[3, N] y) { y = Exp(x) }')
    model.graph.input[0].type.tensor_type.shape.dim[1].Clear()
    model.graph.output[0].type.tensor_type.shape.dim[1].Clear()
    mnnx.convert(model, tmp_path / "m.mnnx", input_shapes={"x": (3, (1, 4))})
    session = mnnx.Interpreter.from_file(tmp_path / "m.mnnx").create_session()
    assert (session.inputs["x"].dims, session.inputs["x"].ranges) == ((3, "x.1"), {"x.1": (1, 4)})


def test_a_part_keeps_the_ranges_of_its_inputs(tmp_path: Path) -> None:
    mnnx.convert(onnx.parser.parse_model(TWO_INPUTS), tmp_path / "m.mnnx", dims={"N": (1, 8), "H": (1, 64)}, level=0)
    mnnx.extract(tmp_path / "m.mnnx", tmp_path / "part.mnnx", inputs=["z"], outputs=["same"])
    assert mnnx.Interpreter.from_file(tmp_path / "part.mnnx").model.ranges == {"N": (1, 8)}


def test_a_sequence_has_no_shape_to_fix(tmp_path: Path) -> None:
    model = '<ir_version: 9, opset_import: ["" : 20]> agraph (seq(float[N]) s) => (int64 n) { n = SequenceLength(s) }'
    with pytest.raises(mnnx.ConversionError, match="'s' is a sequence, which has no shape"):
        mnnx.convert(onnx.parser.parse_model(model), tmp_path / "m.mnnx", input_shapes={"s": (1,)})


def test_an_input_of_unknown_rank_takes_any_shape(input_dims) -> None:
    model = onnx.parser.parse_model('<ir_version: 9, opset_import: ["" : 20]> agraph (float[1] x) => (float[1] y) { y = Exp(x) }')
    model.graph.input[0].type.tensor_type.ClearField("shape")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    text = onnx.printer.to_text(model)
    assert input_dims(text, input_shapes={"x": (2, None, "n")})["x"] == (2, None, "n")


def test_the_callers_model_is_left_as_it_is(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(TWO_INPUTS)
    before = model.SerializeToString()
    mnnx.convert(model, tmp_path / "m.mnnx", dims={"N": 1})
    assert model.SerializeToString() == before


def test_what_follows_from_a_fixed_shape_is_folded(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(SHAPE_ARITHMETIC)
    report = mnnx.convert(model, tmp_path / "m.mnnx", input_shapes={"x": (2, 3, 4, 5)})
    assert dict(report.ops_after) == {"Reshape": 1, "Exp": 1}
    assert report.dynamic_dims == {}
    x = np.random.default_rng(1).standard_normal((2, 3, 4, 5)).astype(np.float32)
    session = mnnx.Interpreter.from_file(tmp_path / "m.mnnx").create_session()
    np.testing.assert_allclose(session.run({"x": x})["y"], ReferenceEvaluator(model).run(None, {"x": x})[0], rtol=1e-6)
    with pytest.raises(mnnx.InputError):
        session.run({"x": x[:1]})


def test_a_branch_knows_the_fixed_shape_of_what_it_captures(session_of, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 20]>
        agraph (float[N, 4] x, bool c) => (float[2] y)
        <float zero = {0}>
        { e = Mul(x, zero)
          y = If(c) <then_branch = t () => (float[2] p) { s = Shape(e) p = Cast<to = 1>(s) },
                     else_branch = n () => (float[2] q) { q = ReduceSum<keepdims = 0>(e) }> }"""
    )
    mnnx.convert(model, tmp_path / "m.mnnx", dims={"N": 2})
    (node,) = (n for n in mnnx.Interpreter.from_file(tmp_path / "m.mnnx").model.graphs[0].nodes if n.op.name == "If")
    assert [n.op.name for n in node.op.then_branch.nodes] == ["Cast"]


TWO_NAMES = """
<ir_version: 9, opset_import: ["" : 20]>
agraph (float[N] a, float[M] b) => (float[N] y, float[M] z) { y = Exp(a) z = Exp(b) }
"""


@pytest.mark.parametrize(
    ("options", "a", "b"),
    [
        ({"input_shapes": {"a": ("M",), "b": ("K",)}}, "M", "K"),
        ({"input_shapes": {"a": ("M",), "b": ("N",)}}, "M", "N"),
        ({"input_shapes": {"a": ("M",)}}, "M", "M"),
        ({"input_shapes": {"a": ("M",), "b": ("K",)}, "dims": {"K": 3}}, "M", 3),
        ({"input_shapes": {"a": ("M",), "b": ("K",)}, "dims": {"M": 3}}, 3, "K"),
        ({"input_shapes": {"a": ("M",), "b": ("N",)}, "dims": {"M": 3}}, 3, "N"),
        ({"input_shapes": {"a": ("M",), "b": (5,)}, "dims": {"M": 3}}, 3, 5),
        ({"input_shapes": {"a": ("M",)}, "dims": {"M": 3}}, 3, 3),
    ],
)
def test_dims_are_renamed_at_once(options: dict, a: Any, b: Any, input_dims: Callable[..., dict[str, tuple]]) -> None:
    assert input_dims(TWO_NAMES, **options) == {"a": (a,), "b": (b,), "y": (a,), "z": (b,)}


def test_names_inside_the_model_are_swapped_with_those_of_its_inputs() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 20]>
        agraph (float[N] a, float[M] b) => (float[N] y, float[M] z) <float[N] p, float[M] q>
        { p = Neg(a) y = Exp(p) q = Neg(b) z = Exp(q) }"""
    )
    imported = next(stages(model, 0, input_shapes={"a": ("M",), "b": ("N",)}))
    assert {v.name: v.shape for v in imported.graphs[0].values} == dict.fromkeys("apy", ("M",)) | dict.fromkeys("bqz", ("N",))


@pytest.mark.parametrize(
    ("options", "x", "y"),
    [
        ({}, ("2*N", "M"), ("N//2 + M", "(N - 1)*2", "my-N")),
        ({"dims": {"N": 5}}, (10, "M"), ("5//2 + M", 8, "my-N")),
        ({"dims": {"N": 5, "M": 3}}, (10, 3), (5, 8, "my-N")),
        ({"input_shapes": {"z": ("B",)}}, ("2*B", "M"), ("B//2 + M", "(B - 1)*2", "my-N")),
        ({"input_shapes": {"z": ("B + 1",)}}, ("2*(B + 1)", "M"), ("(B + 1)//2 + M", "((B + 1) - 1)*2", "my-N")),
    ],
)
def test_dims_that_are_computed_of_others_follow_these(options: dict, x: tuple, y: tuple, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 20]> agraph (float[N] z, float[P, M] x, int64[3] s) => (float[A, B, C] y)
        { n = Neg(z) y = Reshape(x, s) }"""
    )
    for dim, name in zip(model.graph.input[1].type.tensor_type.shape.dim, ("2*N", "M"), strict=True):
        dim.dim_param = name
    for dim, name in zip(model.graph.output[0].type.tensor_type.shape.dim, ("N//2 + M", "(N - 1)*2", "my-N"), strict=True):
        dim.dim_param = name
    mnnx.convert(model, tmp_path / "m.mnnx", **options)
    graph = mnnx.Interpreter.from_file(tmp_path / "m.mnnx").model.graphs[0]
    assert graph.values[graph.inputs[1]].shape == x
    assert graph.values[graph.outputs[0]].shape == y


@pytest.mark.parametrize("name", ["2N", "N 1", "N()", "-N", "N**2", "N/2", "N//0", "N - 4", "N if N else N", "007*N", "N" + " + N" * 5000])
def test_a_name_that_is_no_arithmetic_stays_as_it_is(name: str) -> None:
    assert computed_dim(name, {"N": 3}, {"N"}) == name


def _computed(*shapes: tuple[str, ...]) -> onnx.ModelProto:
    """A model whose inputs a, b, … have dims of these names."""
    names = "abcd"[: len(shapes)]
    info = [
        (onnx.helper.make_tensor_value_info(name, 1, shape), onnx.helper.make_tensor_value_info(f"{name}_out", 1, shape))
        for name, shape in zip(names, shapes, strict=True)
    ]
    nodes = [onnx.helper.make_node("Neg", [name], [f"{name}_out"]) for name in names]
    graph = onnx.helper.make_graph(nodes, "g", [i for i, _ in info], [o for _, o in info])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dims": {"N": 2}, "input_shapes": {"b": (6, 8)}}, r"the dim '2\*N' can't be 6: 'N' is 2, which makes it 4"),
        ({"input_shapes": {"a": (2,), "b": (6, 8)}}, r"the dim '2\*N' can't be 6: 'N' is 2, which makes it 4"),
        ({"dims": {"N": 2, "2*N": 6}}, r"the dim '2\*N' can't be 6: 'N' is 2"),
        ({"input_shapes": {"a": ("B",), "b": (6, 8)}, "dims": {"B": 2}}, r"the dim '2\*N' can't be 6: 'N' is 2"),
        ({"input_shapes": {"a": ("B",), "b": ("2*B", 8)}, "dims": {"B": 2, "2*B": 6}}, r"the dim '2\*B' can't be 6: 'B' is 2"),
        ({"input_shapes": {"b": (7, 8)}}, r"the dim '2\*N' can't be 7: no size of 'N' makes it so"),
        ({"input_shapes": {"b": (6, 8), "c": (5, 8)}}, r"the dim 'N \+ 1' can't be 5, which makes 'N' 4: '2\*N' is 6, which makes it 3"),
        ({"dims": {"N": 9}, "input_shapes": {"d": (4, 8)}}, r"the dim '\(N \+ 1\)//2' can't be 4: 'N' is 9, which makes it 5"),
        ({"dims": {"N": (1, 8)}, "input_shapes": {"b": (40, 8)}}, r"the dim '2\*N' can't be 40: 'N' is 1\.\.8, which makes it 2\.\.16"),
        ({"input_shapes": {"a": ((1, 8),), "b": (40, 8)}}, r"the dim '2\*N' can't be 40: 'N' is 1\.\.8, which makes it 2\.\.16"),
        ({"input_shapes": {"b": (12, 8), "d": (4, 8)}}, r"the dim '\(N \+ 1\)//2' can't be 4: 'N' is 6, which makes it 3"),
        ({"dims": {"N": (1, 8), "2*N": (20, None)}}, r"the dim '2\*N' can't be 20\.\.: 'N' is 1\.\.8, which makes it 2\.\.16"),
        ({"dims": {"N": 3, "2*N": (2, 8)}}, r"the dim '2\*N' is fixed at 6, and can't have the range 2\.\.8"),
    ],
)
def test_sizes_that_dont_go_with_each_other_are_an_error(options: dict, message: str, tmp_path: Path) -> None:
    model = _computed(("N",), ("2*N", 8), ("N + 1", 8), ("(N + 1)//2", 8))
    with pytest.raises(mnnx.ConversionError, match=message):
        mnnx.convert(model, tmp_path / "m.mnnx", **options)


@pytest.mark.parametrize(
    ("options", "shapes"),
    [
        ({"dims": {"N": 2}, "input_shapes": {"b": (4, 8)}}, [(2,), (4, 8), (3, 8), (1, 8)]),
        ({"input_shapes": {"b": (6, 8)}}, [(3,), (6, 8), (4, 8), (2, 8)]),
        ({"input_shapes": {"d": (2, 8)}}, [("N",), ("2*N", 8), ("N + 1", 8), (2, 8)]),
        ({"input_shapes": {"a": ("B",), "b": ("2*B", 8)}, "dims": {"B": 2}}, [(2,), (4, 8), (3, 8), (1, 8)]),
        ({"dims": {"N": (1, 8), "2*N": (4, 40)}}, [("N",), ("2*N", 8), ("N + 1", 8), ("(N + 1)//2", 8)]),
    ],
)
def test_sizes_follow_from_each_other(options: dict, shapes: list, tmp_path: Path) -> None:
    mnnx.convert(_computed(("N",), ("2*N", 8), ("N + 1", 8), ("(N + 1)//2", 8)), tmp_path / "m.mnnx", **options)
    graph = mnnx.Interpreter.from_file(tmp_path / "m.mnnx").model.graphs[0]
    assert [graph.values[i].shape for i in graph.inputs] == shapes


def test_ranges_of_computed_dims_follow_new_names(tmp_path: Path) -> None:
    report = mnnx.convert(_computed(("N",), ("2*N",)), tmp_path / "m.mnnx", dims={"2*N": (2, 8)}, input_shapes={"a": ("B",)})
    assert report.ranges == {"2*B": (2, 8)}


@pytest.mark.parametrize(("mask", "fits"), [(5, True), (1, True), (6, False)])
def test_a_dim_that_is_a_sum_of_others_may_be_broadcast(mask: int, fits: bool, tmp_path: Path) -> None:
    model, options = _computed(("N",), ("M",), ("N + M",)), {"dims": {"N": 2, "M": 3}, "input_shapes": {"c": (mask,)}}
    if fits:
        mnnx.convert(model, tmp_path / "m.mnnx", **options)
        return
    with pytest.raises(mnnx.ConversionError, match=r"the dim 'N \+ M' can't be 6: 'M' is 3, 'N' is 2, which makes it 5"):
        mnnx.convert(model, tmp_path / "m.mnnx", **options)
