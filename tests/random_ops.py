"""The steps that random models are made of: ops, and patterns that passes look for, some with a difference that they must see."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import TensorProto, helper

from tests.random_models import Network, Rejected, image_shape

STEPS: list[Callable[[Network], None]] = []


def step(weight: int = 1) -> Callable:
    def register(function: Callable[[Network], None]) -> Callable[[Network], None]:
        STEPS.extend([function] * weight)
        return function

    return register


UNARY = (
    *("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Erf", "LeakyRelu", "Elu", "Selu", "HardSigmoid", "HardSwish", "Softplus", "Softsign"),
    *(
        "Mish",
        "Gelu",
        "Exp",
        "Cos",
        "Sin",
        "Atan",
        "Sign",
        "Floor",
        "Ceil",
        "Round",
        "Identity",
        "Sqrt",
        "Log",
        "Reciprocal",
        "ThresholdedRelu",
    ),
)


@step(4)
def unary(net: Network) -> None:
    op_type, x = net.one_of(*UNARY), net.tensor()
    if op_type in ("Sqrt", "Log", "Reciprocal"):
        x = net.node("Add", net.node("Abs", x), net.constant(0.5, np.float32))
    net.node(op_type, x)


def _operand(net: Network, x: str) -> str:
    """Something that broadcasts with x: another tensor, or a constant."""
    shape = net.values[x].shape
    if net.often():
        return net.tensor(lambda a: _broadcasts(a.shape, shape), net.values[x].dtype.kind)
    sizes = [size if net.often() else 1 for size in shape][net.between(0, len(shape)) :]
    array = net.array(*sizes, scale=2.0)
    return net.constant(array if net.values[x].dtype.kind == "f" else np.round(array * 3), net.values[x].dtype)


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(m == n or 1 in (m, n) for m, n in zip(reversed(a), reversed(b), strict=False))


@step(4)
def binary(net: Network) -> None:
    x = net.tensor()
    y = _operand(net, x)
    if net.values[x].dtype != net.array_of(y).dtype:
        raise Rejected("other dtypes")
    op_type = net.one_of("Add", "Sub", "Mul", "Div", "Max", "Min")
    if op_type == "Div":
        y = net.node("Add", net.node("Abs", y), net.constant(0.5, net.array_of(y).dtype))
    net.node(op_type, *((x, y) if net.often() else (y, x)) if op_type != "Div" else (x, y))


@step()
def divide_by_a_constant(net: Network) -> None:
    x = net.tensor()
    net.node("Div", x, net.constant(net.one_of(2.0, 3.0, -0.7, 8.0), net.values[x].dtype))


@step()
def neutral(net: Network) -> None:
    x = net.tensor()
    dtype = net.values[x].dtype
    op_type, value = net.one_of(("Add", 0), ("Mul", 1), ("Div", 1), ("Sub", 0), ("Pow", 1), ("Pow", 2))
    shape = [1] * net.between(0, net.values[x].ndim + 1)
    net.node(op_type, x, net.constant(np.full(shape, value), dtype))


@step()
def same_again(net: Network) -> None:
    """A node once more, alone or with a difference."""
    if not net.nodes:
        raise Rejected("nothing yet")
    node = net.draw_from(net.nodes)
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute if not a.HasField("g")}
    if len(node.output) == 1 and len(attributes) == len(node.attribute):
        net.node(node.op_type, *node.input, **attributes)


# ---- reductions
@step(2)
def reduction(net: Network) -> None:
    x = net.tensor(lambda a: a.ndim >= 1 and a.size)
    rank = net.values[x].ndim
    axes = sorted({net.between(-rank, rank - 1) % rank for _ in range(net.between(1, rank))})
    op_type = net.one_of("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceL1", "ReduceSumSquare", "ReduceLogSumExp")
    net.node(op_type, x, *([net.shape(*axes)] if net.between(0, 4) else []), keepdims=net.between(0, 1))


@step()
def pooling(net: Network) -> None:
    x = net.tensor(lambda a: a.ndim == 4 and a.size and min(a.shape[2:]) >= 2 and a.dtype == np.float32, new=image_shape(net))
    if net.often():
        net.node(net.one_of("GlobalAveragePool", "GlobalMaxPool"), x)
        return
    op_type = net.one_of("MaxPool", "AveragePool")
    uneven = [1, 0, 1, 1] if op_type == "AveragePool" else [1] * 4  # the reference pads MaxPool unevenly in another way
    net.node(op_type, x, kernel_shape=[2, 2], strides=[net.between(1, 2)] * 2, pads=net.one_of([0] * 4, uneven))


@step()
def softmax(net: Network) -> None:
    x = net.tensor(lambda a: a.ndim >= 1 and a.size)
    net.node(net.one_of("Softmax", "LogSoftmax"), x, axis=net.between(0, net.values[x].ndim - 1))


@step()
def positions(net: Network) -> None:
    x = net.tensor(lambda a: a.ndim >= 1 and a.size, "fi")
    axis = net.between(0, net.values[x].ndim - 1)
    if net.often():
        net.node(net.one_of("ArgMax", "ArgMin"), x, axis=axis, keepdims=net.between(0, 1))
    elif net.often():
        net.node("CumSum", x, net.constant(axis, np.int64), exclusive=net.between(0, 1))
    else:
        net.node("TopK", x, net.shape(net.between(1, net.values[x].shape[axis])), outputs=2, axis=axis)


# ---- movement
@step(3)
def reshape(net: Network) -> None:
    x = net.tensor(lambda a: a.size, "fi")
    shape = list(net.values[x].shape)
    kind = net.one_of("flat", "merge", "split", "zero", "flatten", "squeeze", "unsqueeze")
    if kind == "flat":
        net.node("Reshape", x, net.shape(-1))
    elif kind == "merge" and len(shape) >= 2:
        axis = net.between(0, len(shape) - 2)
        net.node("Reshape", x, net.shape(*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]))
    elif kind == "split" and shape and shape[-1] % 2 == 0:
        net.node("Reshape", x, net.shape(*shape[:-1], 2, -1))
    elif kind == "zero" and len(shape) >= 2:
        net.node("Reshape", x, net.shape(0, -1))
    elif kind == "flatten":
        net.node("Flatten", x, axis=net.between(0, len(shape)))
    elif kind == "squeeze" and 1 in shape:
        net.node("Squeeze", x, net.shape(shape.index(1)))
    else:
        net.node("Unsqueeze", x, net.shape(net.between(0, len(shape))))


@step(2)
def transpose(net: Network) -> None:
    x = net.tensor(lambda a: a.ndim >= 2)
    net.node("Transpose", x, perm=net.draw_order(net.values[x].ndim))


@step()
def concat(net: Network) -> None:
    x = net.tensor(lambda a: a.ndim >= 1)
    a = net.values[x]
    axis = net.between(0, a.ndim - 1)

    def fits(b: np.ndarray) -> bool:
        return b.dtype == a.dtype and b.ndim == a.ndim and np.delete(b.shape, axis).tolist() == np.delete(a.shape, axis).tolist()

    others = [net.tensor(fits) for _ in range(net.between(0, 2))]
    net.node("Concat", x, *others, axis=axis - (a.ndim if net.often() else 0))


@step()
def split(net: Network) -> None:
    x = net.tensor(lambda a: a.ndim >= 1 and max(a.shape) >= 2)
    axis = int(np.argmax(net.values[x].shape))
    size = net.values[x].shape[axis]
    first = net.between(1, size - 1)
    parts = net.node("Split", x, net.shape(first, size - first), outputs=2, axis=axis)
    if net.often():
        net.node("Concat", *(parts if net.often() else reversed(parts)), axis=axis)


@step(2)
def slice_(net: Network) -> None:
    x = net.tensor(lambda a: a.ndim >= 1 and a.size, "fi")
    axis = net.between(0, net.values[x].ndim - 1)
    size = net.values[x].shape[axis]
    start, end, pace = net.one_of(
        (0, size, 1), (0, 1 << 40, 2), (size // 2, size, 1), (-1, -size - 1, -1), (0, max(1, size - 1), 1), (1, -1, 1), (0, 0, 1)
    )
    net.node("Slice", x, net.shape(start), net.shape(end), net.shape(axis), net.shape(pace))


@step()
def pad(net: Network) -> None:
    x = net.tensor(lambda a: 1 <= a.ndim <= 4 and a.size and a.dtype == np.float32)
    rank = net.values[x].ndim
    mode = net.one_of("constant", "edge", "reflect")
    most = [0 if mode == "reflect" and size < 3 else 2 for size in net.values[x].shape] * 2
    net.node(
        "Pad",
        x,
        net.shape(*(net.between(0, m) for m in most)),
        *([net.constant(0.5, np.float32)] if mode == "constant" and rank > 1 else []),
        mode=mode,
    )


@step()
def spread(net: Network) -> None:
    x = net.tensor(lambda a: 1 <= a.ndim <= 4, "fi")
    shape = net.values[x].shape
    if net.often():
        net.node("Tile", x, net.shape(*(net.between(1, 2) for _ in shape)))
    else:
        net.node("Expand", x, net.shape(net.between(1, 2), *(1 if net.often() else size for size in shape)))


@step()
def gather(net: Network) -> None:
    x = net.tensor(lambda a: a.ndim >= 1 and a.size, "fi")
    axis = net.between(0, net.values[x].ndim - 1)
    size = net.values[x].shape[axis]
    indices = net.random.integers(-size, size, net.one_of((), (2,), (2, 2)))
    net.node("Gather", x, net.constant(indices, np.int64), axis=axis)


@step()
def depth_to_space(net: Network) -> None:
    x = net.tensor(lambda a: a.ndim == 4 and a.shape[1] % 4 == 0 and a.size)
    net.node("DepthToSpace", x, blocksize=2, mode=net.one_of("DCR", "CRD"))


@step()
def there_and_back(net: Network) -> None:
    """Movements that cancel, or nearly."""
    x = net.tensor(lambda a: a.ndim >= 2 and a.size)
    rank = net.values[x].ndim
    order = net.draw_order(rank)
    y = net.node("Transpose", x, perm=order)
    if net.often():
        y = net.node(net.one_of("Relu", "Neg", "Tanh"), y)
    net.node("Transpose", y, perm=[order.index(i) for i in range(rank)] if net.often() else order)


# ---- dtypes, conditions
@step()
def cast(net: Network) -> None:
    x = net.tensor(kinds="fib")
    to = net.one_of(TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL)
    y = net.node("Cast", x, to=to)
    if net.often():
        net.node("Cast", y, to=TensorProto.FLOAT)


@step()
def where(net: Network) -> None:
    x = net.tensor(lambda a: a.dtype == np.float32)
    y = _operand(net, x)
    if net.array_of(y).dtype != np.float32:
        raise Rejected("other dtypes")
    condition = net.node(net.one_of("Greater", "Less", "GreaterOrEqual", "LessOrEqual"), x, y)
    if net.often():
        condition = net.node("Not", condition)
    net.node("Where", condition, x, y)


@step()
def integers(net: Network) -> None:
    x = net.tensor(kinds="i")
    y = net.node(net.one_of("Add", "Mul", "Sub", "Max", "Min"), x, net.constant(net.between(-3, 4), net.values[x].dtype))
    if net.often():
        net.node("Cast", y, to=TensorProto.FLOAT)


# ---- shapes, control flow
@step(2)
def shape_arithmetic(net: Network) -> None:
    """A Reshape, Expand or ConstantOfShape by what is computed from shapes."""
    x = net.tensor(lambda a: a.ndim >= 2 and a.size, "fi")
    rank = net.values[x].ndim
    shape = net.node("Shape", x)
    kind = net.one_of("reshape", "product", "constant", "expand")
    if kind == "reshape":
        first = net.node("Slice", shape, net.shape(0), net.shape(1), net.shape(0))
        net.node("Reshape", x, net.node("Concat", first, net.shape(-1), axis=0))
    elif kind == "product":
        first = net.node("Gather", shape, net.constant(0, np.int64), axis=0)
        second = net.node("Gather", shape, net.constant(1, np.int64), axis=0)
        merged = net.node("Unsqueeze", net.node("Mul", first, second), net.shape(0))
        net.node("Reshape", x, net.node("Concat", merged, net.shape(*[-1] if rank > 2 else []), axis=0) if rank > 2 else merged)
    elif kind == "constant":
        net.node(
            "Add",
            net.node("Cast", net.node("ConstantOfShape", shape), to=TensorProto.FLOAT),
            net.constant(net.one_of(0.0, 1.5), np.float32),
        )
    else:
        row = net.tensor(lambda a: _broadcasts(a.shape, net.values[x].shape) and a.ndim <= rank, "fi")
        net.node("Expand", row, shape)


@step()
def size_of(net: Network) -> None:
    size = net.node("Cast", net.node("Size", net.tensor(kinds="fi")), to=TensorProto.FLOAT)
    x = net.tensor(lambda a: a.dtype == np.float32)
    net.node("Div", x, net.node("Add", size, net.constant(1, np.float32)))


@step()
def dropout(net: Network) -> None:
    net.node("Dropout", net.tensor(lambda a: a.dtype == np.float32))


@step()
def if_(net: Network) -> None:
    """Its condition is a constant, follows from shapes, or from data; its branches capture a tensor."""
    x = net.tensor(lambda a: a.dtype == np.float32 and a.size)
    condition = net.one_of("constant", "shape", "data")
    if condition == "constant":
        test = net.constant(net.often(), np.bool_)
    elif condition == "shape":
        test = net.node("Greater", net.node("Size", x), net.constant(net.between(0, 40), np.int64))
    else:
        test = net.node("Greater", net.node("ReduceMax", x, keepdims=0), net.constant(0.5, np.float32))
    branches = []
    for label in ("then", "else"):
        op_type = net.one_of("Relu", "Neg", "Sigmoid", "Identity")
        first = helper.make_node(op_type, [x], [f"{label}{len(net.nodes)}_a"])
        second = helper.make_node(net.one_of("Add", "Mul"), [first.output[0], x], [f"{label}{len(net.nodes)}_b"])
        nodes = [first, second] if net.often() else [first]
        branches.append(helper.make_graph(nodes, label, [], [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)]))
    net.node("If", test, then_branch=branches[0], else_branch=branches[1])
