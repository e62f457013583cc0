"""Shapes in the bodies of If, Loop and Scan, and of what these give.

What a loop's states are like in all iterations is found as a fixed point: they are supposed to keep the shapes of their initial values,
and the body's results are inferred. A dim that comes out as another one is open from then on, a rank that comes out as another one
unknown, until nothing changes. A name stands for one size in all iterations only where it comes from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.sizes import open_dim, refine
from mnnx.schema.model import Dim
from mnnx.schema.ops.control_flow import If, Loop, Scan
from mnnx.schema.ops.shape import Identity

Shape = tuple[Dim, ...]
Infer = Callable[[Node], object]


def infer_subgraphs(node: Node, infer: Infer) -> None:
    """Gives the bodies of an If, Loop or Scan what is known of their inputs, and their values and the node's outputs what follows.

    `infer` gives the outputs of any node what they don't know yet.
    """
    captures = node.inputs[node.op.own_inputs :]
    for body in bodies(node):
        for outer, inner in zip(captures, body.inputs[len(body.inputs) - len(captures) :], strict=True):
            if outer is not None and outer.kind == "tensor":
                inner.dtype = inner.dtype if outer.dtype is None else outer.dtype
                inner.shape = inner.shape if outer.shape is None else outer.shape
    match node.op:
        case If():
            _infer_if(node, infer)
        case Loop():
            _infer_loop(node, infer)
        case Scan() if not node.op.batched:
            _infer_scan(node, infer)


def bodies(node: Node) -> list[Graph]:
    """The graphs that are attributes of a node."""
    return [getattr(node.op, key) for key in node.op.subgraphs]


def trip_count(node: Node) -> int | None:
    """How many iterations a Loop has, where that is known."""
    trips, begins = ([None] if value is None else _only_element(value) for value in node.inputs[:2])
    if begins == [False] or (trips and trips[0] is not None and trips[0] <= 0):
        return 0
    body = node.op.body
    goes_on = body.outputs[0]
    while goes_on.producer is not None and isinstance(goes_on.producer.op, Identity):
        goes_on = goes_on.producer.inputs[0]
    to_the_end = begins in ([None], [True]) and (goes_on is body.inputs[1] or _only_element(goes_on) == [True])
    return int(trips[0]) if trips and trips[0] is not None and to_the_end else None


def _only_element(value: Value) -> list:
    """The element of a constant that has one, else none."""
    return [] if value.constant is None or value.constant.size != 1 else value.constant.reshape(-1).tolist()


def _infer_if(node: Node, infer: Infer) -> None:
    branches = bodies(node)
    for branch in branches:
        for inner in branch.nodes:
            infer_anew(inner, infer)
    for result, one, other in zip(node.outputs, *(branch.outputs for branch in branches), strict=False):
        if one.shape is not None and other.shape is not None and one.rank == other.rank and one.dtype == other.dtype:
            _learn(result, one.dtype, [a if a == b else None for a, b in zip(one.shape, other.shape, strict=True)])


def _infer_loop(node: Node, infer: Infer) -> None:
    body, states = node.op.body, node.op.states
    for given, dtype in zip(body.inputs, (np.dtype("int64"), np.dtype(bool)), strict=False):
        given.dtype, given.shape = dtype, ()
    outside = _names(node)
    _settle(node, 2, 1, infer)
    for result, given in zip(node.outputs, body.inputs[2 : 2 + states], strict=False):
        _learn(result, given.dtype, _outside(given, outside))
    count = trip_count(node)
    for result, made in zip(node.outputs[states:], body.outputs[1 + states :], strict=False):
        dims = _outside(made, outside if count else ())  # no iterations may leave the other dims open
        _learn(result, made.dtype, None if dims is None else [count, *dims])


def _infer_scan(node: Node, infer: Infer) -> None:
    op, body = node.op, node.op.body
    scans = slice(op.states, op.states + op.scans)
    lengths = []
    for scanned, given, axis in zip(node.inputs[scans], body.inputs[scans], op.input_axes or (0,) * op.scans, strict=True):
        if scanned is not None and scanned.shape is not None and -scanned.rank <= axis < scanned.rank:
            dims = list(scanned.shape)
            lengths.append(dims.pop(axis))
            given.dtype, given.shape = scanned.dtype, tuple(dims)
    outside = _names(node)
    _settle(node, 0, 0, infer)
    for result, given in zip(node.outputs, body.inputs[: op.states], strict=False):
        _learn(result, given.dtype, _outside(given, outside))
    length = next((dim for dim in lengths if isinstance(dim, int)), next((dim for dim in lengths if dim is not None), None))
    made = body.outputs[op.states :]
    for result, value, axis in zip(node.outputs[op.states :], made, op.output_axes or (0,) * len(made), strict=False):
        dims = _outside(value, outside if isinstance(length, int) and length else ())
        if dims is not None and -len(dims) - 1 <= axis <= len(dims):
            dims.insert(axis if axis >= 0 else axis + len(dims) + 1, length)
            _learn(result, value.dtype, dims)


def _settle(node: Node, first_input: int, first_output: int, infer: Infer) -> None:
    """Gives the states in a loop's body what holds of them in all iterations, and the body's values what follows.

    The states are inputs of the node and of its body from `first_input` on, and outputs of the body from `first_output` on.
    """
    body, count = node.op.body, node.op.states
    initial, given = (values[first_input : first_input + count] for values in (node.inputs, body.inputs))
    made = body.outputs[first_output : first_output + count]
    declared = [value.shape for value in given]
    for value, first in zip(given, initial, strict=True):
        if first is not None and first.kind == value.kind == "tensor":
            value.dtype = value.dtype if first.dtype is None else first.dtype
            value.shape = _supposed(value, first.shape)
    inputs = {id(value) for value in body.inputs}
    inner = {id(v): v for graph in (body, *body.subgraphs()) for v in graph.values() if v.constant is None and id(v) not in inputs}
    hints = [(value, value.dtype, value.shape) for value in inner.values()]
    while True:
        if any(_contradicts(value.shape, shape) for value, shape in zip(given, declared, strict=True)):
            hints = [(value, dtype, None) for value, dtype, _ in hints]  # they were inferred from what was declared
        for value, dtype, shape in hints:
            value.dtype, value.shape = dtype, shape
        for inner_node in body.nodes:
            infer_anew(inner_node, infer)
        shapes = [_joined(*state) for state in zip(given, made, declared, strict=True)]
        if shapes == [value.shape for value in given]:
            return
        for value, shape in zip(given, shapes, strict=True):
            value.shape = shape


def _supposed(given: Value, initial: Shape | None) -> Shape | None:
    """The shape that a state may keep, by its initial value's and the one that is declared."""
    declared = given.shape
    if initial is None or declared is None:
        return declared if initial is None else tuple(open_dim(given.name, i) if dim is None else dim for i, dim in enumerate(initial))
    if len(initial) != len(declared):
        return None
    dims = []
    for place, (first, dim) in enumerate(zip(initial, declared, strict=True)):
        if isinstance(dim, int):
            dims.append(open_dim(given.name, place) if isinstance(first, int) and first != dim else dim)
        else:
            dims.append(open_dim(given.name, place) if first is None else first)
    return tuple(dims)


def _joined(given: Value, made: Value, declared: Shape | None) -> Shape | None:
    """The shape of a state that the body was given, and that it may give back: what is declared counts where that isn't known."""
    if given.shape is None or given.kind != "tensor" or made.kind != "tensor":
        return given.shape
    shape = declared if made.shape is None else made.shape
    if shape is None or len(shape) != given.rank:
        return None
    return tuple(a if a == b else open_dim(given.name, i) for i, (a, b) in enumerate(zip(given.shape, shape, strict=True)))


def _contradicts(shape: Shape | None, declared: Shape | None) -> bool:
    if shape is None or declared is None or len(shape) != len(declared):
        return declared is not None and shape != declared
    return any(isinstance(dim, int) and dim != found for dim, found in zip(declared, shape, strict=True))


def _names(node: Node) -> Collection[Dim]:
    """The names of dims outside, which keep their sizes while the node runs."""
    return {dim for v in node.inputs if v is not None and v.shape is not None for dim in v.shape if isinstance(dim, str)}


def _outside(value: Value, names: Collection[Dim]) -> list[Dim] | None:
    """The shape of a body's value as it is known outside, where these names are."""
    return None if value.shape is None else [dim if isinstance(dim, int) or dim in names else None for dim in value.shape]


def infer_anew(node: Node, infer: Infer) -> None:
    """Infers what follows from the shapes of a node's inputs. Hints count where that says less."""
    hints = [(v, v.shape) for v in node.outputs if v is not None and v.shape is not None and not _is_fixed(v.shape)]
    for value, _ in hints:
        value.shape = None
    infer(node)
    for value, hint in hints:
        value.shape = hint if value.shape is None else merged(value, hint)


def _is_fixed(shape: Shape) -> bool:
    return all(isinstance(dim, int) for dim in shape)


def merged(value: Value, hint: Shape) -> Shape:
    """What is inferred of a value, and by a hint where that says more."""
    if value.rank != len(hint):
        return value.shape
    dims = []
    for place, (dim, other) in enumerate(zip(value.shape, hint, strict=True)):
        is_open = dim in (None, open_dim(value.name, place))
        says_more = isinstance(other, int) if not is_open else other is not None
        dims.append(other if says_more and not isinstance(dim, int) else dim)
    return tuple(dims)


def _learn(result: Value | None, dtype: np.dtype | None, dims: Sequence[Dim] | None) -> None:
    """Gives a node's output what it doesn't know yet; None in `dims`: open."""
    if result is None or dims is None or result.kind != "tensor":
        return
    result.dtype = dtype if result.dtype is None else result.dtype
    refine(result, dims)
