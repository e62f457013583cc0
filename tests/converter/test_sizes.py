"""Open sizes as formulas, and what is fused because sizes are known to be equal."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import mnnx
from mnnx.converter.frontends.onnx.importer import import_model
from mnnx.converter.passes.constant_folding import ConstantFolding
from mnnx.converter.sizes import Size
from tests.converter.filled import filled

#: A dim of x, the nodes that make y of x, and how a dim of y is named.
FORMULAS = {
    "a window that leaves the size": ("y = Conv<pads = [1, 1, 1, 1]>(x, w3)", "h"),
    "a window without padding": ("y = Conv(x, w3)", "h - 2"),
    "strides": ("y = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(x, w3)", "(h + 1)//2"),
    "strides of a kernel of 1": ("y = Conv<strides = [2, 2]>(x, w1)", "(h + 1)//2"),
    "dilations": ("y = Conv<strides = [3, 3], dilations = [2, 2]>(x, w3)", "(h - 2)//3"),
    "SAME": ('y = MaxPool<kernel_shape = [3, 3], strides = [2, 2], auto_pad = "SAME_UPPER">(x)', "(h + 1)//2"),
    "VALID": ('y = AveragePool<kernel_shape = [2, 2], strides = [2, 2], auto_pad = "VALID">(x)', "(h)//2"),
    "strides twice": (
        """a = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(x, w3)
           y = MaxPool<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]>(a)""",
        "(h + 3)//4",
    ),
    "transposed": ("y = ConvTranspose<strides = [2, 2]>(x, w3)", "2*h + 1"),
    "transposed and back": (
        """a = ConvTranspose<strides = [2, 2], pads = [1, 1, 1, 1], output_padding = [1, 1]>(x, w3)
           y = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(a, w3)""",
        "h",
    ),
    "up after down": (
        """a = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x)
           y = Resize<mode = "nearest">(a, none, twice)""",
        "2*((h)//2)",
    ),
    "up after down, and down again": (
        """a = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x)
           b = Resize<mode = "nearest">(a, none, twice)
           y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(b)""",
        "(h)//2",
    ),
    "resized to another's size": (
        """a = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x)
           s = Shape(x)
           y = Resize<mode = "nearest">(a, none, none, s)""",
        "h",
    ),
    "padding": ("y = Pad(x, pads)", "h + 3"),
    "blocks": ("y = DepthToSpace<blocksize = 2>(x)", "2*h"),
    "pooling that rounds up is left open": ("y = MaxPool<kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1>(x)", None),
    "a quarter more is left open": ('y = Resize<mode = "nearest">(x, none, more)', None),
}


def _model(nodes: str) -> onnx.ModelProto:
    constants = {
        "none": np.zeros(0, np.float32),
        "twice": np.array([1, 1, 2, 2], np.float32),
        "more": np.array([1, 1, 1.25, 1.25], np.float32),
        "pads": np.array([0, 0, 1, 1, 0, 0, 2, 2]),
        "w3": np.linspace(-1, 1, 144, dtype=np.float32).reshape(4, 4, 3, 3),
        "w1": np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4, 1, 1),
    }
    text = '<ir_version: 9, opset_import: ["" : 20]> agraph (float[n, 4, h, w] x) => (float[n, c, a, b] y) {' + nodes + "}"
    model = onnx.parser.parse_model(text)
    for dim in model.graph.output[0].type.tensor_type.shape.dim:
        dim.ClearField("dim_param")
    used = {name for node in model.graph.node for name in node.input}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in constants.items() if name in used)
    return model


@pytest.mark.parametrize(("nodes", "name"), FORMULAS.values(), ids=FORMULAS)
def test_a_name_says_what_the_size_is(nodes: str, name: str | None) -> None:
    model = _model(nodes)
    graph = import_model(model).graph
    ConstantFolding().run(graph, Counter())
    found = graph.outputs[0].shape[2]
    if name is None:
        assert found is None or "h" not in found
        return
    assert found == name
    for h in range(5, 20):
        (y,) = ReferenceEvaluator(model).run(None, {"x": np.zeros((1, 4, h, 5), np.float32)})
        assert eval(found, {"h": h}) == y.shape[2]


@pytest.mark.parametrize("name", ["h", "h - 2", "(h + 1)//2", "(3*h - 7)//4", "2*((h)//2)", "(2*((h + 1)//3) - 1)//5", "s27//2 + 1", ""])
def test_a_name_is_read_as_it_is_written(name: str) -> None:
    assert Size.of(name).name == name


@pytest.mark.parametrize("name", ["2*a + b", "a - b", "2*a//3", "(a)//2 + (b)//2", "(a) - (b)", "(a + b)", "2*(a + b)", "a//2 + 1", "a"])
def test_arithmetic_on_a_name_of_a_model_s_own_keeps_its_meaning(name: str) -> None:
    for a, b in ((5, 3), (8, 1), (9, 4)):
        size = eval(name, {"a": a, "b": b})
        for found, wanted in (
            (Size.of(name).times(2).plus(1), 2 * size + 1),
            (Size.of(name).over(2), size // 2),
            (Size.of(name).plus(1).over(2).times(4), (size + 1) // 2 * 4),
        ):
            assert eval(found.name, {"a": a, "b": b}) == wanted
            assert Size.of(found.name) == found


@pytest.mark.parametrize("name", ["()", ")(", "((h", "(h)//2)"])
def test_a_name_that_only_looks_like_a_formula_is_a_symbol(name: str) -> None:
    assert Size.of(name).plus(2).over(2).name.count(name) == 1


def test_a_long_name_is_a_symbol_however_it_is_nested() -> None:
    name = "(" * 5000 + "h" + ")" * 5000
    assert Size.of(name).plus(1).over(2).times(3).over(3).name.count(name) == 1
    assert Size.of(name).over(2).over(2) == Size(name, divisor=4)


def test_a_sum_of_two_dims_is_no_multiple_of_a_third(tmp_path: Path) -> None:
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 20]>
        agraph (float[n, m] a, float[p, m] b, float[m, m] c) => (float[k, m] y)
        { d = Concat<axis = 0>(a, b)
          e = Concat<axis = 0>(c, c)
          s = Shape(e)
          y = Expand(d, s) }""")
    mnnx.convert(model, tmp_path / "m.mnnx")
    session = mnnx.Interpreter.from_file(tmp_path / "m.mnnx").create_session()
    feed = {name: np.ones(shape, np.float32) for name, shape in {"a": (1, 3), "b": (0, 3), "c": (3, 3)}.items()}
    np.testing.assert_array_equal(session.run(feed)["y"], np.ones((6, 3), np.float32))


def test_how_many_windows_of_an_open_size_there_are_stays_open(tmp_path: Path) -> None:
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 20]>
        agraph (float[n, n, h, h] x, float[c, n, n, n] w) => (float[n, c, p, q] y) { y = Conv(x, w) }""")
    mnnx.convert(model, tmp_path / "m.mnnx")
    session = mnnx.Interpreter.from_file(tmp_path / "m.mnnx").create_session()
    feed = {"x": np.ones((2, 2, 5, 5), np.float32), "w": np.ones((3, 2, 2, 2), np.float32)}
    np.testing.assert_array_equal(session.run(feed)["y"], np.full((2, 3, 4, 4), 8, np.float32))


RESIDUALS = {
    "a block that keeps the size": (
        """agraph (float[n, 4, h, w] x) => (float[n, 4, p, q] y)
        <float[4, 4, 3, 3] w1, float[4, 4, 3, 3] w2>
        { s = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(x, w1)
          c = Conv<pads = [1, 1, 1, 1]>(s, w2)
          a = Add(c, s)
          y = Relu(a) }""",
        {"Conv": 1, "mnnx::FusedConv": 1},
    ),
    "a block that halves it, with another convolution beside": (
        """agraph (float[n, 4, h, w] x) => (float[n, 4, p, q] y)
        <float[4, 4, 3, 3] w1, float[4, 4, 1, 1] w2>
        { c = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(x, w1)
          d = Conv<strides = [2, 2]>(x, w2)
          a = Add(c, d)
          y = Relu(a) }""",
        {"Conv": 1, "mnnx::FusedConv": 1},
    ),
    "a map that is resized to the size of the one it is added to": (
        """agraph (float[n, 4, h, w] x) => (float[n, 4, p, q] y)
        <float[4, 4, 3, 3] w1, float[4, 4, 1, 1] w2, int64[1] zero = {0}, int64[1] two = {2}, int64[1] four = {4}>
        { d = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(x, w1)
          l = Conv(x, w2)
          s = Shape(x)
          t = Slice(s, two, four, zero)
          u = Shape(d)
          v = Slice(u, zero, two, zero)
          z = Concat<axis = 0>(v, t)
          r = Resize<mode = "nearest">(d, , , z)
          y = Add(l, r) }""",
        {"Conv": 1, "mnnx::FusedConv": 1, "Shape": 2, "Slice": 1, "Concat": 1, "Resize": 1},
    ),
    "not what has only one row, and is broadcast": (
        """agraph (float[n, 4, h, w] x) => (float[n, 4, p, q] y)
        <float[4, 4, 3, 3] w1, float[4, 4, 1, 1] w2>
        { c = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(x, w1)
          l = Conv(x, w2)
          g = GlobalMaxPool(l)
          y = Add(c, g) }""",
        {"Conv": 2, "GlobalMaxPool": 1, "Add": 1},
    ),
}


@pytest.mark.parametrize(("text", "ops"), RESIDUALS.values(), ids=RESIDUALS)
def test_sums_of_open_sizes_that_are_equal_are_fused(text: str, ops: dict[str, int], tmp_path: Path) -> None:
    model = filled(text)
    assert dict(mnnx.convert(model, tmp_path / "m.mnnx").ops_after) == ops
    session = mnnx.Interpreter.from_file(tmp_path / "m.mnnx").create_session()
    for shape in ((1, 4, 6, 7), (2, 4, 9, 8)):
        x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
        np.testing.assert_allclose(session.run({"x": x})["y"], wanted, rtol=1e-4, atol=1e-4)
