"""Moves integers in place of the floats that they stand for: what only moves data, and has one scale, commutes with (de)quantization.

move(D(x)) = D(move(x))        Q(move(x)) = move(Q(x))        Q(D(x)) = x        Shape(D(x)) = Shape(x)
"""

from __future__ import annotations

import numpy as np

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.passes.base import Rule, made_by, only_user, scalar, substitute
from mnnx.converter.passes.quantized_values import Quantized, dequantized, quantized
from mnnx.schema.ops.arithmetic import Div, Mul
from mnnx.schema.ops.pooling import MaxPool
from mnnx.schema.ops.quantization import DequantizeLinear, QuantizeLinear
from mnnx.schema.ops.resize import Resize
from mnnx.schema.ops.shape import DepthToSpace, Expand, Flatten, Reshape, Shape, Size, SpaceToDepth, Squeeze, Tile, Transpose, Unsqueeze
from mnnx.schema.ops.slicing import Slice

_MOVES = (DepthToSpace, Flatten, Reshape, SpaceToDepth, Squeeze, Transpose, Unsqueeze)
#: What these repeat is quantized once.
_REPEATS = (Expand, Tile)


class ShapeOfIntegers(Rule):
    name = "Shape of integers"
    ops = (Shape, Size)

    def match(self, node: Node, graph: Graph) -> str | None:
        return None if made_by(node.inputs[0], DequantizeLinear) is not None else "not of dequantized integers"

    def rewrite(self, node: Node, graph: Graph) -> None:
        node.set_input(0, node.inputs[0].producer.inputs[0])


class ScaleBeforeMoving(Rule):
    """What is moved, times a number, and quantized: the factor comes first, so that the QuantizeLinear can. Starts from the product."""

    name = "scaled before it is moved"
    ops = (Mul, Div)

    def match(self, node: Node, graph: Graph) -> str | None:
        user = only_user(node.outputs[0], graph)
        if user is None or quantized(user) is None:
            return "not for a QuantizeLinear alone"
        if self._move(node) is None:
            return "not of what is moved, by a number"
        return None if only_user(self._move(node).outputs[0], graph) is node else "what is moved is used elsewhere"

    def rewrite(self, node: Node, graph: Graph) -> None:
        move = self._move(node)
        source = move.inputs[0]
        scaled = Value(f"{source.name}/{node.outputs[0].name}", source.dtype, source.shape)
        operands = [source if value is move.outputs[0] else Value(value.name, constant=value.constant.reshape(())) for value in node.inputs]
        graph.nodes[graph.nodes.index(move)] = Node(node.op, operands, [scaled], node.name)
        substitute(graph, node, Node(move.op, [scaled, *move.inputs[1:]], node.outputs, move.name))
        move.detach()

    def _move(self, node: Node) -> Node | None:
        for value, number in [node.inputs] if isinstance(node.op, Div) else (node.inputs, node.inputs[::-1]):
            move = made_by(value, *_MOVES)
            if move is not None and scalar(number, beside=value) is not None:
                return move if move.inputs[0].constant is None else None
        return None


class QuantizeBeforeMoving(Rule):
    """Starts from the QuantizeLinear."""

    name = "quantized before it is moved"
    ops = (QuantizeLinear,)

    def match(self, node: Node, graph: Graph) -> str | None:
        if quantized(node) is None:
            return "not a QuantizeLinear to bytes with one constant scale"
        move = made_by(node.inputs[0], *_MOVES, *_REPEATS, Resize)
        if move is None or move.inputs[0].constant is not None or (isinstance(move.op, Resize) and not _repeats_pixels(move)):
            return "not of what is moved"
        return None if only_user(node.inputs[0], graph) is node else "what is moved is used elsewhere"

    def rewrite(self, node: Node, graph: Graph) -> None:
        move, last = node.inputs[0].producer, quantized(node)
        source = move.inputs[0]
        small = Value(f"{source.name}/{node.outputs[0].name}", last.zero.dtype, source.shape)
        first = Node(node.op, [source, *node.inputs[1:]], [small], node.name)
        graph.nodes[graph.nodes.index(move)] = first
        substitute(graph, node, Node(move.op, [small, *move.inputs[1:]], node.outputs, move.name))
        move.detach()


def _repeats_pixels(resize: Node) -> bool:
    """Whether a Resize gives each pixel a whole number of times."""
    scales = (*resize.inputs, None, None)[2]
    if resize.op.mode != "nearest" or resize.op.coordinate_transformation_mode == "tf_crop_and_resize" or scales is None:
        return False
    return scales.constant is not None and scales.constant.size > 0 and bool((scales.constant % 1 == 0).all())


def _finds_largest_byte(pool: Node, source: Quantized) -> bool:
    """Whether a MaxPool may look for bytes in place of numbers: larger ones stand for larger ones, and no window sees padding alone."""
    plain = all(value is None for value in pool.outputs[1:]) and all(step == 1 for step in pool.op.dilations)
    return plain and bool(np.isfinite(source.scale).all()) and source.scale.item() > 0


class DequantizeAfterMoving(Rule):
    """Starts from the op that moves, or from a MaxPool."""

    name = "dequantized after it is moved"
    ops = (*_MOVES, MaxPool, Slice)

    def match(self, node: Node, graph: Graph) -> str | None:
        source = dequantized(node.inputs[0])
        if source is None or not source.per_tensor:
            return "not of bytes with one constant scale"
        if source.integers.constant is not None or graph.is_output(node.outputs[0]):
            return "its operand is constant, or its result is an output"
        if isinstance(node.op, MaxPool) and not _finds_largest_byte(node, source):
            return "it gives indices, its windows have holes, or the scale isn't positive"
        if graph.is_output(node.inputs[0]) or not all(user is node or isinstance(user.op, Slice) for user in node.inputs[0].users):
            return "what it moves is used elsewhere"
        return None

    def rewrite(self, node: Node, graph: Graph) -> None:
        last, result = node.inputs[0].producer, node.outputs[0]
        integers = last.inputs[0]
        small = Value(f"{result.name}/{integers.name}", integers.dtype, result.shape)
        index = graph.nodes.index(node)
        graph.nodes[index : index + 1] = [
            Node(node.op, [integers, *node.inputs[1:]], [small], node.name),
            Node(last.op, [small, *last.inputs[1:]], [result], last.name),
        ]
        node.detach()
        if not last.outputs[0].users:  # other Slices take it, too
            graph.remove(last)


class QuantizedAgain(Rule):
    """Starts from the QuantizeLinear of dequantized integers."""

    name = "quantized again"
    ops = (QuantizeLinear,)

    def match(self, node: Node, graph: Graph) -> str | None:
        last, first = quantized(node), dequantized(node.inputs[0])
        if last is None or first is None or not first.same_as(last):
            return "not dequantized bytes, quantized with the same constants"
        if not np.finfo(np.float32).tiny <= last.scale.item() < 1e30:
            return "255 times the scale is no float32, or none of full precision"
        return "its result is an output" if graph.is_output(node.outputs[0]) else None

    def rewrite(self, node: Node, graph: Graph) -> None:
        graph.replace_value(node.outputs[0], dequantized(node.inputs[0]).integers)
        graph.remove(node)
