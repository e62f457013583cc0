"""Ways to break a valid ONNX model: each takes a copy of it and a `draw`, and breaks it in one place so that no runtime could run it.

Where a model has no such place, a breakage raises Unbroken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from tests.random_models import generator

Draw = Callable[[st.SearchStrategy], Any]
BREAKAGES: list[Callable[[onnx.ModelProto, Draw], None]] = []


class Unbroken(Exception):
    """The model has no place for this breakage."""


def breakage(function: Callable[[onnx.ModelProto, Draw], None]) -> Callable[[onnx.ModelProto, Draw], None]:
    BREAKAGES.append(function)
    return function


def _one(draw: Draw, things: Any) -> Any:
    things = list(things)
    if not things:
        raise Unbroken
    return things[draw(st.integers(0, len(things) - 1))]


def _node(model: onnx.ModelProto, draw: Draw, *op_types: str) -> onnx.NodeProto:
    """A node, of these op types, that outputs depend on."""
    needed = {output.name for output in model.graph.output}
    found = []
    for node in reversed(model.graph.node):
        if not needed.isdisjoint(node.output):
            needed.update(node.input)
            if not op_types or node.op_type in op_types:
                found.append(node)
    return _one(draw, found)


def _set(node: onnx.NodeProto, **attributes: Any) -> None:
    for name, value in attributes.items():
        kept = [a for a in node.attribute if a.name != name]
        del node.attribute[:]
        node.attribute.extend([*kept, helper.make_attribute(name, value)])


# ---- names
@breakage
def unknown_attribute(model: onnx.ModelProto, draw: Draw) -> None:
    node = _node(model, draw)
    if node.op_type == "Constant":
        raise Unbroken
    _set(node, no_such_attribute=1)


@breakage
def missing_input(model: onnx.ModelProto, draw: Draw) -> None:
    node = _node(model, draw)
    node.input[_one(draw, range(len(node.input)))] = "nowhere"


@breakage
def cycle(model: onnx.ModelProto, draw: Draw) -> None:
    """A node that `node` needs takes its result; or it takes it itself."""
    node = _node(model, draw)
    makers = {name: n for n in model.graph.node for name in n.output}
    chain = [node]
    while (inner := [makers[name] for name in chain[-1].input if name in makers]) and draw(st.booleans()):
        chain.append(_one(draw, inner))
    chain[-1].input[_one(draw, range(len(chain[-1].input)))] = node.output[0]


@breakage
def dangling_output(model: onnx.ModelProto, draw: Draw) -> None:
    model.graph.output.append(helper.make_tensor_value_info("nowhere", TensorProto.FLOAT, None))


@breakage
def output_made_twice(model: onnx.ModelProto, draw: Draw) -> None:
    node = _node(model, draw)
    other = model.graph.node.add()
    other.CopyFrom(helper.make_node("Neg", [model.graph.input[0].name], [node.output[0]]))


@breakage
def output_that_is_an_input(model: onnx.ModelProto, draw: Draw) -> None:
    model.graph.node.append(helper.make_node("Abs", [model.graph.input[0].name], [_one(draw, model.graph.input).name]))


@breakage
def output_that_is_a_weight(model: onnx.ModelProto, draw: Draw) -> None:
    model.graph.node.append(helper.make_node("Abs", [model.graph.input[0].name], [_one(draw, model.graph.initializer).name]))


@breakage
def input_given_twice(model: onnx.ModelProto, draw: Draw) -> None:
    model.graph.input.append(_one(draw, model.graph.input))


@breakage
def output_given_twice(model: onnx.ModelProto, draw: Draw) -> None:
    model.graph.output.append(_one(draw, model.graph.output))


# ---- ops
@breakage
def unknown_op(model: onnx.ModelProto, draw: Draw) -> None:
    _node(model, draw).op_type = draw(st.sampled_from(["Frobnicate", "", "conv", "Conv2D"]))


@breakage
def unknown_domain(model: onnx.ModelProto, draw: Draw) -> None:
    _node(model, draw).domain = draw(st.sampled_from(["com.example", "ai.onnx.ml", "mnnx"]))


@breakage
def too_many_inputs(model: onnx.ModelProto, draw: Draw) -> None:
    node = _node(
        model, draw, "Relu", "Neg", "Tanh", "Add", "Mul", "MatMul", "Conv", "Transpose", "Softmax", "Reshape", "Exp", "Sigmoid", "If"
    )
    node.input.extend([model.graph.input[0].name] * draw(st.integers(3, 9)))


@breakage
def too_few_inputs(model: onnx.ModelProto, draw: Draw) -> None:
    node = _node(model, draw)
    if node.op_type in ("Concat", "Max", "Min") and len(node.input) > 1:
        raise Unbroken
    del node.input[:]


@breakage
def too_many_outputs(model: onnx.ModelProto, draw: Draw) -> None:
    node = _node(model, draw, "Relu", "Neg", "Tanh", "Add", "Mul", "MatMul", "Conv", "Transpose", "Softmax", "Reshape", "Exp", "Sigmoid")
    node.output.extend(["extra0", "extra1"])


@breakage
def unknown_opset(model: onnx.ModelProto, draw: Draw) -> None:
    model.opset_import[0].version = draw(st.sampled_from([999, 2**31, -1, 0]))


@breakage
def without_nodes_and_outputs(model: onnx.ModelProto, draw: Draw) -> None:
    model.ClearField("graph") if draw(st.booleans()) else model.graph.Clear()


# ---- dtypes, ranks and sizes
def _fixed_input(model: onnx.ModelProto, dtype: int, shape: list[int]) -> str:
    name = f"extra{len(model.graph.input)}"
    model.graph.input.append(helper.make_tensor_value_info(name, dtype, shape))
    return name


def _weight(model: onnx.ModelProto, array: np.ndarray) -> str:
    name = f"extra_w{len(model.graph.initializer)}"
    model.graph.initializer.append(numpy_helper.from_array(array, name))
    return name


def _add(model: onnx.ModelProto, op_type: str, *inputs: str, **attributes: Any) -> None:
    """A node that an output depends on."""
    name = f"extra_y{len(model.graph.node)}"
    model.graph.node.append(helper.make_node(op_type, list(inputs), [name], **attributes))
    model.graph.output.append(onnx.ValueInfoProto(name=name))


def _shape(draw: Draw, low: int, high: int) -> list[int]:
    return draw(st.lists(st.integers(1, 6), min_size=low, max_size=high))


@breakage
def other_dtypes(model: onnx.ModelProto, draw: Draw) -> None:
    kinds = [TensorProto.FLOAT, TensorProto.INT64, TensorProto.DOUBLE, TensorProto.BOOL, TensorProto.STRING, TensorProto.FLOAT16]
    a, b = draw(st.permutations(kinds))[:2]
    shape = _shape(draw, 1, 3)
    op_type = draw(st.sampled_from(["Add", "Mul", "MatMul", "Concat", "Where", "Pow"]))
    x, y = _fixed_input(model, a, shape), _fixed_input(model, b, shape)
    if op_type == "Where":
        _add(model, op_type, _fixed_input(model, TensorProto.BOOL, shape), x, y)
    elif op_type == "Pow":
        _add(model, op_type, _fixed_input(model, draw(st.sampled_from([TensorProto.BOOL, TensorProto.STRING])), shape), x)
    else:
        _add(model, op_type, x, y, **({"axis": 0} if op_type == "Concat" else {}))


@breakage
def dtype_that_the_op_hasnt(model: onnx.ModelProto, draw: Draw) -> None:
    kind = draw(st.sampled_from([TensorProto.STRING, TensorProto.BOOL]))
    op_type = draw(st.sampled_from(["Relu", "Exp", "Softmax", "ReduceMean", "Neg", "Sigmoid", "Erf", "CumSum", "Conv"]))
    x = _fixed_input(model, kind, [1, 2, 3, 4])
    more = {"CumSum": [_weight(model, np.array(0))], "Conv": [_weight(model, np.ones((1, 2, 1, 1), np.float32))]}
    _add(model, op_type, x, *more.get(op_type, []))


@breakage
def shapes_that_dont_fit(model: onnx.ModelProto, draw: Draw) -> None:
    shape = _shape(draw, 2, 4)
    x = _fixed_input(model, TensorProto.FLOAT, shape)
    kind = draw(st.sampled_from(["Add", "MatMul", "Gemm", "Concat", "Reshape", "Conv", "Expand", "Gather", "Split", "BatchNormalization"]))
    if kind in ("Add", "Expand"):
        other = [*shape[:-1], shape[-1] + 1] if shape[-1] > 1 else [2, *shape[1:-1], 3, 5]
        if shape[-1] == 1:
            raise Unbroken
        _add(model, kind, x, _weight(model, np.ones(other, np.float32) if kind == "Add" else np.array(other)))
    elif kind == "MatMul":
        _add(model, kind, x, _weight(model, np.ones((shape[-1] + 1, 3), np.float32)))
    elif kind == "Gemm":
        _add(model, kind, x, _weight(model, np.ones((shape[-1] + (len(shape) == 2), 3), np.float32)))
    elif kind == "Concat":
        _add(model, kind, x, _weight(model, np.ones([*shape[:-1], shape[-1] + 1], np.float32)), axis=0)
    elif kind == "Reshape":
        _add(model, kind, x, _weight(model, np.array([int(np.prod(shape)) + 1])))
    elif kind == "Conv":
        _add(model, kind, x, _weight(model, np.ones((2, shape[1] + 1, *[1] * (len(shape) - 2)), np.float32)))
    elif kind == "Gather":
        _add(model, kind, x, _weight(model, np.array([0])), axis=len(shape))
    elif kind == "Split":
        _add(model, kind, x, _weight(model, np.array([shape[0] + 1])), axis=0)
    else:
        _add(model, kind, x, *[_weight(model, np.ones(shape[1] + 1, np.float32))] * 4)


@breakage
def wrong_rank(model: onnx.ModelProto, draw: Draw) -> None:
    x = _fixed_input(model, TensorProto.FLOAT, _shape(draw, 2, 2))
    kind = draw(st.sampled_from(["Conv", "MaxPool", "DepthToSpace", "LSTM", "InstanceNormalization", "Resize", "Transpose"]))
    ones = np.ones((2, 3, 3, 3), np.float32)
    more: dict[str, tuple[list[str], dict[str, Any]]] = {
        "Conv": ([_weight(model, ones)], {}),
        "MaxPool": ([], {"kernel_shape": [2, 2]}),
        "DepthToSpace": ([], {"blocksize": 2}),
        "LSTM": ([_weight(model, ones[0]), _weight(model, ones[0])], {"hidden_size": 3}),
        "InstanceNormalization": ([_weight(model, ones), _weight(model, ones)], {}),
        "Resize": (["", _weight(model, np.ones(3, np.float32))], {}),
        "Transpose": ([], {"perm": [0, 2, 1]}),
    }
    inputs, attributes = more[kind]
    _add(model, kind, x, *inputs, **attributes)


# ---- attributes
@breakage
def absurd_attribute(model: onnx.ModelProto, draw: Draw) -> None:
    x = _fixed_input(model, TensorProto.FLOAT, [2, 4, 6, 6])
    w = _weight(model, np.ones((4, 4, 3, 3), np.float32))
    axes = _weight(model, np.array([draw(st.sampled_from([4, 99, -5, -(2**62), 2**62]))]))
    far = draw(st.sampled_from([4, 99, -5, -(2**40), 2**40]))
    inputs, op_type, attributes = draw(
        st.sampled_from(
            [
                ([x, w], "Conv", {"strides": [0, 1]}),
                ([x, w], "Conv", {"strides": [-1, 1]}),
                ([x, w], "Conv", {"strides": [1]}),
                ([x, w], "Conv", {"dilations": [0, 0]}),
                ([x, w], "Conv", {"dilations": [2**40, 1]}),
                ([x, w], "Conv", {"kernel_shape": [5, 5]}),
                ([x, w], "Conv", {"group": 0}),
                ([x, w], "Conv", {"group": -2}),
                ([x, w], "Conv", {"group": 3}),
                ([x, w], "Conv", {"pads": [1, 1]}),
                ([x, w], "Conv", {"pads": [-9, 0, 0, 0]}),
                ([x, w], "Conv", {"auto_pad": "SOMEHOW"}),
                ([x, w], "Conv", {"strides": "two"}),
                ([x, w], "Conv", {"group": 1.5}),
                ([x], "MaxPool", {}),
                ([x], "MaxPool", {"kernel_shape": [0, 2]}),
                ([x], "MaxPool", {"kernel_shape": [-1, 2]}),
                ([x], "AveragePool", {"kernel_shape": [9, 9]}),
                ([x], "Softmax", {"axis": far}),
                ([x, x], "Concat", {"axis": far}),
                ([x, x], "Concat", {}),
                ([x, axes], "ReduceSum", {}),
                ([x, axes], "Squeeze", {}),
                ([x], "Transpose", {"perm": [0, 1, 2, 2]}),
                ([x], "Transpose", {"perm": [0, 1, 2]}),
                ([x], "Transpose", {"perm": [0, 1, 2, 7]}),
                ([x], "Cast", {"to": 999}),
                ([x], "Cast", {"to": -1}),
                ([x], "Cast", {}),
                ([x], "DepthToSpace", {"blocksize": 0}),
                ([x], "DepthToSpace", {"blocksize": -2}),
                ([x], "DepthToSpace", {"blocksize": 3}),
                ([x, x, w], "Gemm", {}),
                ([x], "Flatten", {"axis": 9}),
                ([x], "LeakyRelu", {"alpha": "steep"}),
                ([x], "LRN", {"size": 0}),
                ([x], "LRN", {}),
                ([x], "Split", {"num_outputs": 0}),
                ([x], "ArgMax", {"axis": far}),
                ([x, axes], "Unsqueeze", {}) if abs(far) > 5 else ([x], "Cast", {"to": 0}),
                ([x], "Einsum", {"equation": "abc->cba"}),
                ([x], "Einsum", {}),
                ([x], "If", {}),
                ([x], "Shape", {"start": "x"}),
                ([x, w], "Pad", {}),
                ([x], "GlobalLpPool", {"p": "x"}),
            ]
        )
    )
    if op_type == "Unsqueeze" and abs(int(numpy_helper.to_array(model.graph.initializer[-1])[0])) <= 5:
        raise Unbroken
    _add(model, op_type, *inputs, **attributes)


@breakage
def attribute_of_another_type(model: onnx.ModelProto, draw: Draw) -> None:
    node = _node(model, draw, "Conv", "Transpose", "Softmax", "Concat", "Gemm", "Cast", "ArgMax", "LeakyRelu", "LayerNormalization")
    name = {"Conv": "group", "Transpose": "perm", "Gemm": "alpha", "Cast": "to", "LeakyRelu": "alpha"}.get(node.op_type, "axis")
    _set(node, **{name: draw(st.sampled_from(["text", [1.5, 2.5], ["a", "b"]]))})


# ---- data
@breakage
def damaged_weight(model: onnx.ModelProto, draw: Draw) -> None:
    tensor = _one(draw, [t for t in model.graph.initializer if t.raw_data])
    kind = draw(st.sampled_from(["short", "long", "negative", "dtype", "dims"]))
    if kind == "short":
        tensor.raw_data = tensor.raw_data[:-1]
    elif kind == "long":
        tensor.raw_data = tensor.raw_data + b"\0"
    elif kind == "negative":
        tensor.dims.append(-1)
    elif kind == "dtype":
        tensor.data_type = draw(st.sampled_from([0, 77, -1, 2**30]))
    else:
        tensor.dims.append(2**40)


@breakage
def damaged_type(model: onnx.ModelProto, draw: Draw) -> None:
    _one(draw, model.graph.input).type.tensor_type.elem_type = draw(st.sampled_from([77, 2**30, -1]))


@breakage
def external_data_that_isnt_there(model: onnx.ModelProto, draw: Draw) -> None:
    tensor = _one(draw, model.graph.initializer)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=draw(st.sampled_from(["nowhere.bin", "../nowhere.bin", "", "/dev/null"])))


@breakage
def broken_branch(model: onnx.ModelProto, draw: Draw) -> None:
    """An If whose branch uses what there isn't, or has no output."""
    test = _fixed_input(model, TensorProto.BOOL, [])
    x = _fixed_input(model, TensorProto.FLOAT, [3])
    node = helper.make_node("Neg", [draw(st.sampled_from(["nowhere", "b"]))], ["b"])
    output = helper.make_tensor_value_info("b", TensorProto.FLOAT, [3])
    bad = helper.make_graph([node], "bad", [], [output] if draw(st.booleans()) else [output, output])
    good = helper.make_graph([helper.make_node("Neg", [x], ["b"])], "good", [], [output])
    branches = (bad, good) if draw(st.booleans()) else (good, bad)
    _add(model, "If", test, then_branch=branches[0], else_branch=branches[1])


@st.composite
def broken(draw: Draw, models: st.SearchStrategy) -> tuple[str, onnx.ModelProto]:
    """A valid model of `models` that was broken in one way, and which."""
    model = draw(models).model
    for place in generator(draw).permutation(len(BREAKAGES)):
        way = BREAKAGES[place]
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        try:
            way(copy, draw)
        except Unbroken:
            continue
        return way.__name__, copy
    raise AssertionError("some breakages fit every model")
