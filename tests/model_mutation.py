"""Breaks a model's meaning rather than its bytes, for tests/mutation.py: files that the reader takes, and that ask for nonsense.

Attributes, constants, the wiring, the ops themselves and the declared shapes are altered at random, so that inference, planning and
executions see what no exporter writes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from mnnx.schema import dtypes
from mnnx.schema.model import Graph, Model, Node, Value
from mnnx.schema.ops.base import Subgraph, load_all
from mnnx.schema.reader import read_model_bytes
from mnnx.schema.writer import encode

_OPS = load_all()
_INTS = (0, 1, -1, 2, 3, 5, 7, -2, -3, 16, 255, 2**15, 2**31 - 1, -(2**31), 2**33, 2**62, 2**63 - 1, -(2**63))
_FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-30, 1e30, float("inf"), float("-inf"), float("nan"))
_DTYPES = [dtypes.from_code(code) for code in range(1, 27)]
_COMMON = [np.dtype(name) for name in ("float32", "int64", "int32", "uint8", "int8", "bool", "float16", "float64")]


def altered(data: bytes, structure: int, seed: int, index: int) -> bytes:
    """The file with one to three alterations; the same for the same seed and index."""
    rng = random.Random(f"{seed} {index}")
    model = read_model_bytes(data)
    wanted = rng.choice((1, 1, 1, 2, 3))
    while wanted:
        (alter,) = rng.choices(list(_ALTERATIONS), list(_ALTERATIONS.values()))
        graph = rng.choice([*model.graphs, model.graphs[0]])
        wanted -= alter(rng, model, graph)
    return encode(model)


def _alter_attribute(rng: random.Random, model: Model, graph: Graph) -> bool:
    return bool(graph.nodes) and _alter_attribute_of(rng, rng.choice(graph.nodes))


def _alter_attribute_of(rng: random.Random, node: Node) -> bool:
    names = [name for name, (annotation, _) in node.op.fields.items() if annotation is not Subgraph]
    if not names:
        return False
    name = rng.choice(names)
    try:
        node.op = node.op.replace(**{name: _other(rng, getattr(node.op, name))})
    except (TypeError, ValueError):  # what the op's definition forbids, no file that loads can hold
        return False
    return True


def _other(rng: random.Random, value: Any) -> Any:
    """Another value of an attribute, of its type where that can be seen."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice((*_INTS, value + 1, value - 1, value * 2))
    if isinstance(value, float):
        return rng.choice((*_FLOATS, value * 2, -value))
    if isinstance(value, str):
        return rng.choice(("", "NOTSET", "SAME_UPPER", "VALID", "linear", "nearest", "reflect", "sum", value.lower(), value.upper()))
    if isinstance(value, np.dtype):
        return rng.choice(_DTYPES)
    if isinstance(value, np.ndarray):
        return _other_array(rng, value)
    if isinstance(value, tuple):
        items = list(value)
        match rng.randrange(4):
            case 0 if items:
                items.pop(rng.randrange(len(items)))
            case 1:
                items.append(rng.choice(items) if items else rng.choice(_INTS))
            case _ if items:
                position = rng.randrange(len(items))
                items[position] = _other(rng, items[position])
        return tuple(items)
    return rng.choice((None, 0, 1, (), (0,), (1, 1), (2**31, 1), "", 1.0))


def _other_array(rng: random.Random, array: np.ndarray) -> np.ndarray:
    array = array.copy()
    match rng.randrange(5):
        case 0 | 1 if array.size and array.dtype != dtypes.STRING:
            wide = rng.choice(_INTS if array.dtype.kind in "iub" else _FLOATS)
            with np.errstate(all="ignore"):
                array.reshape(-1)[rng.randrange(array.size)] = np.array([wide]).astype(array.dtype)[0]
        case 2 if array.size:
            array = array.reshape(rng.choice(((-1,), (1, -1), (-1, 1), (*array.shape, 1), array.shape[::-1])))
        case 3:
            shape = list(array.shape)
            if shape:
                shape[rng.randrange(len(shape))] = rng.choice((0, 1, 2, 3, 17))
            array = np.resize(array, shape)
        case _ if array.dtype != dtypes.STRING:
            dtype = rng.choice(_COMMON)
            with np.errstate(all="ignore"):
                array = array.astype(np.float64).astype(dtype)
    return array


def _alter_constant(rng: random.Random, model: Model, graph: Graph) -> bool:
    constants = [value for value in graph.values if value.constant is not None]
    small = [value for value in constants if value.constant.dtype.kind in "iu" and value.constant.size < 20]
    if not constants:
        return False
    value = rng.choice(small if small and rng.random() < 0.5 else constants)
    value.constant = _other_array(rng, value.constant)
    value.dtype, value.shape = value.constant.dtype, value.constant.shape
    return True


def _rewire(rng: random.Random, model: Model, graph: Graph) -> bool:
    """Lets a node read another value that is there when it runs, or none."""
    if not graph.nodes:
        return False
    position = rng.randrange(len(graph.nodes))
    node = graph.nodes[position]
    there = [i for i, value in enumerate(graph.values) if value.constant is not None] + list(graph.inputs)
    there += [i for earlier in graph.nodes[:position] for i in earlier.outputs if i >= 0]
    inputs = list(node.inputs)
    match rng.randrange(4):
        case 0 if inputs:
            inputs.pop()
        case 1 if there:
            inputs.append(rng.choice(there))
        case _ if inputs:
            inputs[rng.randrange(len(inputs))] = rng.choice([*there, -1])
    node.inputs = tuple(inputs)
    return True


def _swap_op(rng: random.Random, model: Model, graph: Graph) -> bool:
    """Puts another op in a node's place, with its attributes at their defaults or at random."""
    if not graph.nodes:
        return False
    node = rng.choice(graph.nodes)
    op_class = rng.choice(list(_OPS.values()))
    try:
        node.op = op_class(**{name: _given(rng, annotation) for name, (annotation, default) in op_class.fields.items() if default is ...})
    except (TypeError, ValueError):
        return False
    if rng.random() < 0.5:
        _alter_attribute_of(rng, node)
    return True


def _given(rng: random.Random, annotation: Any) -> Any:
    """Something of an attribute's type; ops with subgraphs refuse it."""
    if annotation is Subgraph:
        raise TypeError("a graph can't be made up")
    if annotation is int:
        return rng.choice((0, 1, 2, 3, 8))
    if annotation is float:
        return rng.choice(_FLOATS)
    if annotation is np.dtype:
        return rng.choice(_DTYPES)
    if annotation is np.ndarray:
        return np.ones(rng.choice(((), (1,), (2, 3))), rng.choice(_COMMON))
    return "" if annotation is str else tuple(rng.choice(((), (1,), (2, 1), (3, 3))))


def _alter_value(rng: random.Random, model: Model, graph: Graph) -> bool:
    """Changes what a value is said to be: its dtype, its rank, a dim."""
    values = [value for value in graph.values if value.constant is None]
    if not values:
        return False
    value: Value = rng.choice([graph.values[i] for i in graph.inputs] if graph.inputs and rng.random() < 0.6 else values)
    match rng.randrange(4):
        case 0:
            value.dtype = rng.choice(_COMMON)
        case 1:
            value.shape = rng.choice((None, (), (2,), (1, 2, 3), (0, 3), (2, 3, 4, 5)))
        case _ if value.shape:
            dims = list(value.shape)
            dims[rng.randrange(len(dims))] = rng.choice((0, 1, 2, 3, 5, 64, "n", None))
            value.shape = tuple(dims)
    return True


def _alter_outputs(rng: random.Random, model: Model, graph: Graph) -> bool:
    made = [*graph.inputs, *(i for node in graph.nodes for i in node.outputs if i >= 0)]
    if not made or not graph.outputs:
        return False
    outputs = list(graph.outputs)
    outputs[rng.randrange(len(outputs))] = rng.choice(made)
    graph.outputs = tuple(outputs)
    return True


_ALTERATIONS: dict[Callable[[random.Random, Model, Graph], bool], int] = {
    _alter_attribute: 30,
    _alter_constant: 25,
    _rewire: 15,
    _swap_op: 20,
    _alter_value: 10,
    _alter_outputs: 3,
}
