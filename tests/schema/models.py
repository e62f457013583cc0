"""Models for the tests of the file format: a small one with everything in it, random ones, and how to compare two."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from mnnx.schema import dtypes
from mnnx.schema.model import Graph, Model, Node, RemovedValue, Value
from mnnx.schema.ops.base import Op, load_all

OPS = load_all()
FLOAT = np.dtype("float32")
ALL_DTYPES = [dtypes.from_code(code) for code in range(1, 27)]


def chain(*ops: Op, name: str = "main") -> Graph:
    """A graph x → ops, one after the other → y."""
    values = [Value(f"v{i}", FLOAT, ("N", 4)) for i in range(len(ops) + 1)]
    values[0].name, values[-1].name = "x", "y"
    nodes = [Node(f"n{i}", op, (i,), (i + 1,)) for i, op in enumerate(ops)]
    return Graph(name, values, (0,), (len(ops),), nodes)


def small() -> Model:
    """A model with every kind of thing that a file can hold. It stands in golden/version1.mnnx, so it stays as it is."""
    then_branch = chain(OPS["Relu"](), name="then")
    else_branch = chain(OPS["LeakyRelu"](alpha=0.25), name="else")
    values = [
        Value("condition", np.dtype(bool), ()),
        Value("x", FLOAT, ("N", 4)),
        Value("weight", constant=np.arange(16, dtype=np.float32).reshape(4, 4)),
        Value("labels", constant=np.array(["cat", "Äpfel", ""], object)),
        Value("product", FLOAT, ("N", 4)),
        Value("y", FLOAT, None),
        Value("filled", np.dtype("int64"), (None, 3)),
        Value("shape", constant=np.array([2, 3])),
        Value("list", FLOAT, None, "sequence"),
        Value("same list", FLOAT, None, "sequence"),
    ]
    nodes = [
        Node("multiply", OPS["MatMul"](), (1, 2), (4,)),
        Node("choose", OPS["If"](then_branch=then_branch, else_branch=else_branch), (0, 4), (5,)),
        Node("fill", OPS["ConstantOfShape"](value=np.array([7])), (7,), (6,)),
        Node("rename", OPS["Identity"](), (8,), (9,)),
    ]
    main = Graph("main", values, (0, 1, 8), (5, 6, 9), nodes)
    return Model([main, then_branch, else_branch], "tests", 21, {"author": "nobody"}, [RemovedValue("bias", "fuse-bias", 1)])


def array(rng: random.Random, dtype: np.dtype | None = None) -> np.ndarray:
    """A random constant of a random (or the given) dtype."""
    dtype = rng.choice(ALL_DTYPES) if dtype is None else dtype
    shape = tuple(rng.choice((0, 1, 1, 2, 3, 7)) for _ in range(rng.randrange(4)))
    if dtype == dtypes.STRING:
        texts = np.empty(int(np.prod(shape)), object)
        texts[:] = [rng.choice(("", "a", "ü", "long " * 50)) for _ in texts]
        return texts.reshape(shape)
    return np.array([rng.randrange(2) for _ in range(int(np.prod(shape)))]).astype(dtype).reshape(shape)


def _value(rng: random.Random, name: str) -> Value:
    dims = tuple(rng.choice((None, "N", "height", 0, 1, 224, 2**40)) for _ in range(rng.randrange(5)))
    kind = rng.choice(("tensor",) * 9 + ("sequence", "optional", "map"))
    return Value(name, rng.choice([None, *ALL_DTYPES]), rng.choice((None, dims)), kind)


def _op(rng: random.Random, depth: int) -> Op:
    name = rng.choice(("Relu", "LeakyRelu", "Transpose", "Concat", "Cast", "ConstantOfShape", "Conv", "If", "Loop"))
    if name == "If" and depth:
        return OPS["If"](then_branch=random_graph(rng, depth - 1), else_branch=random_graph(rng, depth - 1))
    if name == "Loop" and depth:
        return OPS["Loop"](body=random_graph(rng, depth - 1), states=rng.randrange(4))
    attributes = {
        "LeakyRelu": lambda: {"alpha": rng.uniform(-1, 1)},
        "Transpose": lambda: {"perm": tuple(rng.sample(range(4), 4))},
        "Concat": lambda: {"axis": rng.randrange(-3, 3)},
        "Cast": lambda: {"to": rng.choice(ALL_DTYPES)},
        "ConstantOfShape": lambda: {"value": np.array([rng.random()], np.float32)},
        "Conv": lambda: {"strides": (rng.randrange(1, 4), 1), "pads": (1, 1, 1, 1), "group": rng.randrange(1, 9)},
    }
    return OPS[name](**attributes[name]()) if name in attributes else OPS["Relu"]()


def random_graph(rng: random.Random, depth: int = 2) -> Graph:
    """A legal graph of a few nodes with random ops; it wouldn't run."""
    values = [_value(rng, f"input {i}") for i in range(rng.randrange(4))]
    inputs = tuple(range(len(values)))
    values += [Value(f"constant {i}", constant=array(rng)) for i in range(rng.randrange(4))]
    nodes = []
    for i in range(rng.randrange(8)):
        known = [-1, *range(len(values))]
        taken = tuple(rng.choice(known) for _ in range(rng.randrange(4)))
        made = tuple(rng.choice((-1, 0, 0, 0)) for _ in range(rng.randrange(3)))
        made = tuple(-1 if place else len(values) + made[:k].count(0) for k, place in enumerate(made))
        values += [_value(rng, f"result {i}.{k}") for k, place in enumerate(made) if place >= 0]
        nodes.append(Node(rng.choice((f"node {i}", "")), _op(rng, depth), taken, made))
    outputs = tuple(rng.sample(range(len(values)), min(len(values), rng.randrange(4))))
    return Graph(rng.choice(("main", "", "граф")), values, inputs, outputs, nodes)


def random_model(seed: int) -> Model:
    rng = random.Random(seed)
    metadata = {f"key {i}": "value" * i for i in range(rng.randrange(3))}
    removed = [RemovedValue(f"old {i}", "fuse", i) for i in range(rng.randrange(3))]
    ranges = {f"dim {i}": (i, rng.choice((i, i + 7, 2**62, None))) for i in range(rng.randrange(3))}
    return Model([random_graph(rng)], "tests", rng.randrange(1, 30), metadata, removed, ranges=ranges)


def plain(thing: Any) -> Any:
    """What a model (or graph, value, op, array …) says, as something that compares by value."""
    if isinstance(thing, Model):
        removed = [(value.name, value.by_pass, value.keep_level) for value in thing.removed]
        return plain(thing.graphs[0]), thing.producer, thing.opset, thing.metadata, removed, thing.ranges
    if isinstance(thing, Graph):
        return thing.name, plain(thing.values), tuple(thing.inputs), tuple(thing.outputs), plain(thing.nodes)
    if isinstance(thing, Value):
        dtype, shape = (thing.dtype, thing.shape) if thing.constant is None else (thing.constant.dtype, thing.constant.shape)
        return thing.name, dtype, shape, thing.kind, plain(thing.constant)
    if isinstance(thing, Node):
        return thing.name, plain(thing.op), tuple(thing.inputs), tuple(thing.outputs)
    if isinstance(thing, Op):
        return thing.name, {key: plain(getattr(thing, key)) for key in thing.fields}
    if isinstance(thing, np.ndarray):
        return thing.dtype, thing.shape, thing.tolist() if thing.dtype == dtypes.STRING else thing.tobytes()
    if isinstance(thing, list):
        return [plain(item) for item in thing]
    return thing
