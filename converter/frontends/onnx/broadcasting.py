"""What importers of element-wise ops share: the broadcasting of opset 1 … 6, and ops of more inputs than one kernel takes."""

from __future__ import annotations

from mnnx.converter.frontends.onnx.node import OnnxNode
from mnnx.converter.frontends.onnx.registry import importer
from mnnx.converter.graph import Value
from mnnx.schema.ops.arithmetic import MAX_VARIADIC
from mnnx.schema.ops.base import Op
from mnnx.schema.ops.shape import Unsqueeze


def aligned(node: OnnxNode, a: Value, b: Value) -> Value:
    """`b` with trailing dims of 1 where the attribute `axis` of opset 1 … 6 says at which axis of `a` it begins."""
    axis = node.attribute("axis", int, None) if node.opset < 7 and node.attribute("broadcast", int, 0) else None
    if axis is None:
        return b
    if a.rank is None or b.rank is None:
        node.fail("`axis` needs inputs of known rank; convert the model to opset 7 or newer with onnx.version_converter first")
    return trailing(node, b, a.rank - axis % max(a.rank, 1) - b.rank)


def trailing(node: OnnxNode, value: Value, count: int) -> Value:
    """`value`, of known rank, with `count` dims of 1 behind its own."""
    if count <= 0:
        return value
    axes = range(value.rank, value.rank + count)
    return node.add(Unsqueeze(), value, node.constant(list(axes), "int64"))


def binary(*op_classes: type[Op]) -> None:
    """Registers ops of two inputs that broadcast as NumPy does from opset 7 on, and by `broadcast` and `axis` before."""
    for op_class in op_classes:
        importer(op_class.name)(_binary(op_class))


def _binary(op_class: type[Op]):
    def import_binary(node: OnnxNode, a: Value, b: Value):
        return node.add(node.op(op_class), a, aligned(node, a, b))

    return import_binary


def chained(node: OnnxNode, op: Op, values: tuple[Value, ...]) -> Value:
    """An associative op over any number of values, MAX_VARIADIC at a time."""
    if not values:
        node.fail("needs at least one input")
    while len(values) > MAX_VARIADIC:
        values = (node.add(op, *values[:MAX_VARIADIC]), *values[MAX_VARIADIC:])
    return node.add(op, *values)
