"""A function of each element between DequantizeLinear and QuantizeLinear to bytes has 256 values: Q(f(D(x))) = table[x]."""

from __future__ import annotations

import numpy as np

from mnnx.backends import elementwise, host
from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.passes.base import Rule, is_pure, only_user, substitute
from mnnx.converter.passes.quantized_values import dequantized, quantized
from mnnx.schema.ops.fused_quantization import ByteTable
from mnnx.schema.ops.quantization import QuantizeLinear

_FLOAT32 = np.dtype("float32")


class TabulateQuantized(Rule):
    """Starts from the QuantizeLinear; the table holds what the ops between compute."""

    name = "table of bytes"
    ops = (QuantizeLinear,)

    def match(self, node: Node, graph: Graph) -> str | None:
        if quantized(node) is None:
            return "not a QuantizeLinear to bytes with one constant scale"
        source, chain = self._chain(node, graph)
        found = dequantized(source)
        if found is None or not found.per_tensor or found.integers.constant is not None:
            return "not elementwise ops with constant numbers after the DequantizeLinear of computed bytes"
        return None if self._table(node, source, chain) is not None else "the ops between change the dtype"

    def rewrite(self, node: Node, graph: Graph) -> None:
        source, chain = self._chain(node, graph)
        table = Value(f"{node.outputs[0].name}/table", constant=self._table(node, source, chain))
        substitute(graph, node, Node(ByteTable(), [dequantized(source).integers, table], node.outputs, node.name))
        for spent in reversed(chain):
            graph.remove(spent)

    def _chain(self, node: Node, graph: Graph) -> tuple[Value, list[Node]]:
        """The value that a chain of functions of single elements starts from, and the chain, in its order."""
        value, chain = node.inputs[0], []
        while (
            (made := value.producer) is not None and only_user(value, graph) is not None and (argument := self._argument(made)) is not None
        ):
            chain.insert(0, made)
            value = argument
        return value, chain

    def _argument(self, node: Node | None) -> Value | None:
        """The one computed input of a node that computes each element by itself; its other inputs are numbers."""
        if node is None or type(node.op) not in elementwise.TABLE or not is_pure(node.op) or len(node.outputs) > 1:
            return None
        computed = [value for value in node.inputs if value is not None and value.constant is None]
        numbers = [value.constant for value in node.inputs if value is not None and value.constant is not None]
        if len(computed) != 1 or any(n.size != 1 or n.ndim > (computed[0].rank or 0) for n in numbers):
            return None
        return computed[0]

    def _table(self, node: Node, source: Value, chain: list[Node]) -> np.ndarray | None:
        first = source.producer
        values = np.arange(256, dtype=np.uint8).view(first.inputs[0].dtype)
        with np.errstate(all="ignore"):
            for step in (first, *chain, node):
                inputs = [None if v is None else values if v.constant is None else v.constant.reshape(()) for v in step.inputs]
                values = host.run(step.op, inputs)[0]
                if step is not node and values.dtype != _FLOAT32:
                    return None
        return values
