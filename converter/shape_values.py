"""What the elements of small integer tensors are, where they are dims of other tensors: Shape and what is picked from it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mnnx.converter.graph import Node, Value
from mnnx.schema.model import Dim
from mnnx.schema.ops.arithmetic import Add, Div, Mul, Sub
from mnnx.schema.ops.cast import Cast
from mnnx.schema.ops.comparison import Equal, Where
from mnnx.schema.ops.indexing import Gather
from mnnx.schema.ops.shape import Concat, Reshape, Shape, Squeeze, Unsqueeze
from mnnx.schema.ops.slicing import Slice

_INTEGERS = (np.dtype("int64"), np.dtype("int32"))  # dims fit both
_MOST = 64
_DEEPEST = 32
_LARGEST = 2**31 - 1  # what integers of both kinds hold


class DimOf(NamedTuple):
    """A dim of a tensor whose size isn't known before the model runs."""

    tensor: Value
    place: int

    @property
    def name(self) -> Dim:
        return self.tensor.shape[self.place]

    def is_dim_of(self, value: Value, place: int) -> bool:
        """Whether it is that dim of `value`: the same, or one of the same name."""
        if value.shape is None or not 0 <= place < len(value.shape):
            return False
        return (self.tensor is value and self.place == place) or (self.name is not None and self.name == value.shape[place])


#: A number, a dim, or None where neither is known.
Element = int | DimOf | None


class Elements(NamedTuple):
    """The elements of a vector, or of a scalar."""

    items: tuple[Element, ...]
    is_scalar: bool = False


def elements(value: Value | None) -> Elements | None:
    """The elements of a vector or scalar of int32 or int64; None where not even their number is known."""
    return None if value is None else _Reader().read(value, 0)


class _Reader:
    """Reads every value once, by whichever ways it is come to."""

    def __init__(self) -> None:
        self._found: dict[int, Elements | None] = {}

    def read(self, value: Value, depth: int) -> Elements | None:
        if id(value) not in self._found:
            self._found[id(value)] = self._read(value, depth)
        return self._found[id(value)]

    def _read(self, value: Value, depth: int) -> Elements | None:
        if value.constant is not None:
            array = value.constant
            if array.dtype not in _INTEGERS or array.ndim > 1 or array.size > _MOST:
                return None
            return Elements(tuple(array.reshape(-1).tolist()), array.ndim == 0)
        if value.dtype not in (None, *_INTEGERS) or depth > _DEEPEST:
            return None
        found = None if value.producer is None else self._made(value.producer, depth + 1)
        if found is None and value.rank == 1 and isinstance(value.shape[0], int) and value.shape[0] <= _MOST:
            return Elements((None,) * value.shape[0])
        return found if found is None or len(found.items) <= _MOST else None

    def _made(self, node: Node, depth: int) -> Elements | None:
        """The elements of a node's result."""
        op = node.op
        if isinstance(op, Shape):
            return _dims(node.inputs[0], op)
        if isinstance(op, (Add, Div, Mul, Sub, Where)):
            return self._elementwise(node, depth)
        if not isinstance(op, (Cast, Concat, Gather, Reshape, Slice, Squeeze, Unsqueeze)) or node.inputs[0] is None:
            return None
        if isinstance(op, Concat):
            parts = [None if value is None else self.read(value, depth) for value in node.inputs]
            if op.axis not in (0, -1) or any(part is None or part.is_scalar for part in parts):
                return None
            return Elements(tuple(item for part in parts for item in part.items))
        given = self.read(node.inputs[0], depth)
        if given is None:
            return None
        if isinstance(op, Cast):
            return _cast(given, op.to) if op.to in _INTEGERS else None
        if isinstance(op, Unsqueeze):
            return Elements(given.items) if given.is_scalar and ints_at(node, 1) in ([0], [-1]) else None
        if isinstance(op, Reshape):
            return Elements(given.items) if ints_at(node, 1) in ([-1], [len(given.items)]) and given.items else None
        if isinstance(op, Squeeze):
            return Elements(given.items, True) if not given.is_scalar and len(given.items) == 1 else None
        if given.is_scalar:
            return None
        return _sliced(given, node) if isinstance(op, Slice) else _gathered(given, node)

    def _elementwise(self, node: Node, depth: int) -> Elements | None:
        """Sums, products and choices of elements, one by one."""
        if isinstance(node.op, Where):
            condition = self._condition(node.inputs[0], depth)
            operands = [condition, *(self.read(value, depth) for value in node.inputs[1:])]
        else:
            operands = [self.read(value, depth) for value in node.inputs]
        if None in operands:
            return None
        length = max(len(operand.items) for operand in operands)
        if any(len(operand.items) not in (1, length) for operand in operands):
            return None
        rows = zip(*(operand.items * (length // len(operand.items)) for operand in operands), strict=True) if length else ()
        compute = _chosen if isinstance(node.op, Where) else _COMPUTED[type(node.op)]
        items = (compute(*row) for row in rows)
        small = (None if isinstance(item, int) and abs(item) > _LARGEST else item for item in items)
        return Elements(tuple(small), all(operand.is_scalar for operand in operands))

    def _condition(self, value: Value | None, depth: int) -> Elements | None:
        """The elements of a boolean, as 0 and 1."""
        if value is None:
            return None
        if value.constant is not None and value.constant.ndim <= 1 and value.constant.size <= _MOST:
            return Elements(tuple(value.constant.reshape(-1).astype(int).tolist()), value.constant.ndim == 0)
        if value.producer is None or not isinstance(value.producer.op, Equal):
            return None
        one, other = (self.read(operand, depth) for operand in value.producer.inputs)
        if one is None or other is None or len(one.items) != len(other.items):
            return None
        return Elements(tuple(map(_are_equal, one.items, other.items)), one.is_scalar and other.is_scalar)


def _are_equal(one: Element, other: Element) -> int | None:
    if one is None or other is None:
        return None
    if isinstance(one, int) and isinstance(other, int):
        return int(one == other)
    if isinstance(one, int) or isinstance(other, int):
        return 0 if min(item for item in (one, other) if isinstance(item, int)) < 0 else None  # no dim is negative
    return 1 if one.is_dim_of(*other) else None


def _chosen(condition: int | None, one: Element, other: Element) -> Element:
    return (one if one == other else None) if condition is None else one if condition else other


def _sum(a: Element, b: Element) -> Element:
    return a if b == 0 else b if a == 0 else a + b if isinstance(a, int) and isinstance(b, int) else None


def _difference(a: Element, b: Element) -> Element:
    return a if b == 0 else a - b if isinstance(a, int) and isinstance(b, int) else None


def _product(a: Element, b: Element) -> Element:
    return a if b == 1 else b if a == 1 else a * b if isinstance(a, int) and isinstance(b, int) else None


def _quotient(a: Element, b: Element) -> Element:
    return a if b == 1 else a // b if isinstance(a, int) and isinstance(b, int) and a >= 0 and b > 0 else None


_COMPUTED = {Add: _sum, Sub: _difference, Mul: _product, Div: _quotient}


def _cast(given: Elements, dtype: np.dtype) -> Elements:
    """Numbers wrap as in C; dims fit every integer type that shapes are computed in."""
    numbers = (item if not isinstance(item, int) else int(np.array(item, np.int64).astype(dtype)) for item in given.items)
    return Elements(tuple(numbers), given.is_scalar)


def _dims(x: Value | None, op: Shape) -> Elements | None:
    if x is None or x.shape is None:
        return None
    places = range(len(x.shape))[op.start : op.end]
    return Elements(tuple(x.shape[i] if isinstance(x.shape[i], int) else DimOf(x, i) for i in places))


def _sliced(given: Elements, node: Node) -> Elements | None:
    starts, ends, axes, steps = (ints_at(node, place) for place in (1, 2, 3, 4))
    if starts is None or ends is None or len(starts) != 1 or axes not in (None, [0], [-1]) or steps not in (None, [1]):
        return None
    if any(len(node.inputs) > place and node.inputs[place] is not None and found is None for place, found in ((3, axes), (4, steps))):
        return None
    return Elements(given.items[starts[0] : ends[0]])


def _gathered(given: Elements, node: Node) -> Elements | None:
    indices = node.inputs[1].constant
    if node.op.axis not in (0, -1) or indices is None or indices.ndim > 1 or indices.size > _MOST:
        return None
    places = indices.reshape(-1).tolist()
    if any(not -len(given.items) <= place < len(given.items) for place in places):
        return None
    return Elements(tuple(given.items[place] for place in places), indices.ndim == 0)


def constant_ints(value: Value | None) -> list[int] | None:
    """The elements of a constant of integers as a list; None where it is computed or left out."""
    return None if value is None or value.constant is None else value.constant.astype(np.int64, copy=False).reshape(-1).tolist()


def ints_at(node: Node, place: int) -> list[int] | None:
    """An input as `constant_ints` gives it."""
    return constant_ints(node.inputs[place]) if place < len(node.inputs) else None
