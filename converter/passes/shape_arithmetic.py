"""Simplifies what exporters compute of shapes, so that fewer of them are left to be computed, and constant ones to be folded.

Elements that are dims of fixed size become constants, also where other dims of the tensor are open. A Reshape whose shape holds dims of
its own operand copies them (0, as ONNX writes it). What is picked from a Shape is a Shape with a start and an end. A number that is filled
into the dims of another operand is that number.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.inference import infer_node
from mnnx.converter.passes.base import Rule, RulePass, SearchRule, made_by, only_user, substitute, substitute_by
from mnnx.converter.shape_values import DimOf, Elements, elements
from mnnx.schema.ops.activation import LogSoftmax, Softmax
from mnnx.schema.ops.arithmetic import Add, Div, Mul, Pow, Sub
from mnnx.schema.ops.cast import Cast
from mnnx.schema.ops.comparison import And, Equal, Greater, GreaterOrEqual, Less, LessOrEqual, Or, Where
from mnnx.schema.ops.generation import ConstantOfShape
from mnnx.schema.ops.indexing import Gather
from mnnx.schema.ops.shape import Concat, Expand, Flatten, Reshape, Shape, Squeeze, Unsqueeze
from mnnx.schema.ops.slicing import Slice

_INT64 = np.dtype("int64")


class KnownDims(SearchRule):
    """Dims of fixed size, picked from a shape of which others are open."""

    name = "dims of fixed size"
    ops = (Add, Cast, Concat, Div, Gather, Mul, Reshape, Shape, Slice, Squeeze, Sub, Unsqueeze, Where)

    def find(self, node: Node, graph: Graph) -> Elements | str:
        found = elements(node.outputs[0])
        if found is None or not all(isinstance(item, int) for item in found.items):
            return "not all its elements are dims of fixed size or constants"
        if node.outputs[0].dtype is None:
            return "the dtype of its result isn't known"
        return "its result is an output of the graph, which a node has to make" if graph.is_output(node.outputs[0]) else found

    def rewrite_found(self, node: Node, graph: Graph, found: Elements) -> None:
        result = node.outputs[0]
        array = np.array(found.items, result.dtype)
        graph.replace_value(result, Value(result.name, constant=array.reshape(()) if found.is_scalar else array))
        graph.remove(node)


class PartOfShape(SearchRule):
    """Neighbouring dims of one tensor, however they were picked: Shape with a start and an end."""

    name = "part of a Shape"
    ops = (Cast, Concat, Gather, Reshape, Slice, Unsqueeze, Where)

    def find(self, node: Node, graph: Graph) -> tuple[Value, int, int] | str:
        """The tensor, and where its dims start and end."""
        if node.outputs[0].dtype != _INT64:
            return "its result isn't known to be int64"
        reason = "its elements are not neighbouring dims of one tensor"
        found = elements(node.outputs[0])
        if found is None or found.is_scalar or not found.items or not all(isinstance(item, DimOf) for item in found.items):
            return reason
        tensor, start = found.items[0]
        if any(item.tensor is not tensor or item.place != start + i for i, item in enumerate(found.items)):
            return reason
        return tensor, start, start + len(found.items)

    def rewrite_found(self, node: Node, graph: Graph, found: tuple[Value, int, int]) -> None:
        tensor, start, end = found
        substitute(graph, node, Node(Shape(start=start, end=end), [tensor], node.outputs, node.name))


class ShapeOfInput(SearchRule):
    """Dims with the names of neighbouring dims of an input of the graph: a Shape of that. Many become one, and keep no tensor."""

    name = "Shape of an input"
    ops = (Shape,)

    def find(self, node: Node, graph: Graph) -> tuple[Value, int, int] | str:
        found = elements(node.outputs[0])
        if found is None or not found.items or not all(isinstance(item, DimOf) and isinstance(item.name, str) for item in found.items):
            return "its dims have no names"
        if any(node.inputs[0] is value for value in graph.inputs):
            return "of an input of the graph"
        names = [item.name for item in found.items]
        for value in graph.inputs:
            for start in range((value.rank or 0) - len(names) + 1):
                if list(value.shape[start : start + len(names)]) == names:
                    return value, start, start + len(names)
        return "no input of the graph has dims of these names side by side"

    def rewrite_found(self, node: Node, graph: Graph, found: tuple[Value, int, int]) -> None:
        x, start, end = found
        substitute(graph, node, Node(Shape(start=start, end=end), [x], node.outputs, node.name))


class SoftmaxOfRows(Rule):
    """What old opsets need for a Softmax over the last axis of a tensor of unknown rank: Flatten, Softmax, Reshape."""

    name = "Softmax of rows"
    ops = (Reshape,)

    def match(self, node: Node, graph: Graph) -> str | None:
        softmax = made_by(node.inputs[0], Softmax, LogSoftmax)
        flat = made_by(softmax.inputs[0], Flatten) if softmax is not None and softmax.op.axis == -1 else None
        if flat is None or only_user(node.inputs[0], graph) is not node:
            return "not of a Softmax of rows that is used once"
        x = flat.inputs[0]
        if x.rank is None or flat.op.axis not in (x.rank - 1, -1):
            return "the rows aren't known to lie along the last axis"
        shape = elements(node.inputs[1])
        own = shape is not None and len(shape.items) == x.rank and all(_is_dim(item, x, i) for i, item in enumerate(shape.items))
        return None if own else "not back to the shape before the Flatten"

    def rewrite(self, node: Node, graph: Graph) -> None:
        softmax = node.inputs[0].producer
        x = softmax.inputs[0].producer.inputs[0]
        substitute(graph, node, Node(softmax.op, [x], node.outputs, softmax.name))


class ReshapeByOwnDims(SearchRule):
    """A Reshape to a shape that is computed from dims of its operand."""

    name = "Reshape by own dims"
    ops = (Reshape,)

    def find(self, node: Node, graph: Graph) -> list[int] | str:
        if node.inputs[1].constant is not None:
            return "its shape is constant"
        shape = self._shape(node)
        return "its shape isn't made of constants and dims that its operand has at their places" if shape is None else shape

    def rewrite_found(self, node: Node, graph: Graph, found: list[int]) -> None:
        shape = Value(f"{node.outputs[0].name}/shape", constant=np.array(found, np.int64))
        substitute(graph, node, Node(Reshape(), [node.inputs[0], shape], node.outputs, node.name))

    def _shape(self, node: Node) -> list[int] | None:
        """The constant shape, with 0 for what is copied and -1 for what remains."""
        x, found = node.inputs[0], elements(node.inputs[1])
        if found is None or found.is_scalar:
            return None
        shape = [0 if isinstance(item, DimOf) and item.is_dim_of(x, i) else item for i, item in enumerate(found.items)]
        unknown = [i for i, item in enumerate(shape) if not isinstance(item, int)]
        numbers = [item for item in found.items if isinstance(item, int)]
        if node.op.allowzero and 0 in numbers:
            return None
        if (
            len(unknown) == 1
            and isinstance(shape[unknown[0]], DimOf)
            and all(number > 0 for number in numbers)
            and len(numbers) == len(shape) - 1
        ):
            shape[unknown[0]] = -1  # what remains is exact where no other dim can be 0
        elif unknown:
            return None
        return shape


class ExpandToOwnDims(Rule):
    """An Expand to the dims that its operand has."""

    name = "Expand to own dims"
    ops = (Expand,)

    def match(self, node: Node, graph: Graph) -> str | None:
        x = node.inputs[0]
        return None if x.rank is not None and _keeps_dims(elements(node.inputs[1]), x) else "it isn't known to keep its operand's shape"

    def rewrite(self, node: Node, graph: Graph) -> None:
        substitute_by(graph, node, node.inputs[0])


class FillOfOwnDims(SearchRule):
    """An operand that is one number everywhere, filled into the other one's dims, as exporters write ones_like and zeros_like."""

    name = "fill of own dims"
    ops = (Add, Sub, Mul, Div, Pow, And, Or, Equal, Greater, GreaterOrEqual, Less, LessOrEqual)

    def find(self, node: Node, graph: Graph) -> tuple[int, np.ndarray] | str:
        """Which operand it is, and its number, a scalar."""
        for place, x in enumerate(node.inputs[::-1]):
            fill = made_by(node.inputs[place], ConstantOfShape, Expand)
            if fill is None or x.rank is None:
                continue
            if isinstance(fill.op, ConstantOfShape):
                number, shape = np.zeros(1, np.float32) if fill.op.value is None else fill.op.value, fill.inputs[0]
            else:
                number, shape = fill.inputs[0].constant, fill.inputs[1]
            if number is not None and number.size == 1 and number.ndim <= x.rank and _keeps_dims(elements(shape), x):
                return place, number.reshape(())
        return "no operand is a number that is filled into dims of the other one"

    def rewrite_found(self, node: Node, graph: Graph, found: tuple[int, np.ndarray]) -> None:
        place, number = found
        node.set_input(place, Value(f"{node.inputs[place].name}/number", constant=number))


def _keeps_dims(shape: Elements | None, x: Value) -> bool:
    """Whether broadcasting to a shape leaves x, whose rank is known, as it is."""
    if shape is None or len(shape.items) > x.rank:
        return False
    first = x.rank - len(shape.items)
    return all(item == 1 or _is_dim(item, x, first + i) for i, item in enumerate(shape.items))


def _is_dim(item: int | DimOf | None, x: Value, place: int) -> bool:
    """Whether an element is the size of that dim of x."""
    return item.is_dim_of(x, place) if isinstance(item, DimOf) else item is not None and item == x.shape[place]


class ShapeArithmetic(RulePass):
    """Computes dims of fixed size, makes a Reshape copy dims of its operand, and picks dims with one Shape."""

    name = "shape-arithmetic"
    level = 1
    rules = (KnownDims(), PartOfShape(), ShapeOfInput(), SoftmaxOfRows(), ReshapeByOwnDims(), ExpandToOwnDims(), FillOfOwnDims())

    def run(self, graph: Graph, counts: Counter[str]) -> None:
        for node in list(graph.nodes):
            infer_node(node)
            results = list(node.outputs)
            for rule in self._rules(node):
                if node.inputs and self._apply(rule, node, graph):
                    counts[rule.name] += 1
            made = results[0].producer if results and results[0] is not None else None
            if made is not None and made is not node and made.inputs:
                infer_node(made)  # what follows knows more now
