"""Matrix products of rows that were put into one matrix for them."""

from __future__ import annotations

from mnnx.converter.graph import Graph, Node
from mnnx.converter.passes.base import SearchRule, made_by, only_user, substitute
from mnnx.converter.passes.transposed_dims import constant_shape, reshaped
from mnnx.schema.model import Dim
from mnnx.schema.ops.fused import FusedMatMul
from mnnx.schema.ops.matmul import MatMul
from mnnx.schema.ops.shape import Flatten, Reshape


class FlattenedProduct(SearchRule):
    """Reshape to a matrix, product with another, Reshape: the rows can stay where they are."""

    name = "product of rows"
    ops = (Reshape,)

    def find(self, node: Node, graph: Graph) -> tuple[Node, tuple[Dim, ...]] | str:
        """The product, and the dims that its first operand gets."""
        reason = "not of the rows of a matrix product, used once"
        product = made_by(node.inputs[0], MatMul, FusedMatMul)
        flat = made_by(product.inputs[0], Reshape, Flatten) if product is not None else None
        if flat is None or only_user(node.inputs[0], graph) is None or len(product.inputs) > 3 or getattr(product.op, "transpose_a", False):
            return reason
        x, matrix, weights, rows, result = (
            flat.inputs[0],
            flat.outputs[0].shape,
            product.inputs[1].shape,
            *(value.shape for value in (node.inputs[0], node.outputs[0])),
        )
        if any(shape is None or None in shape for shape in (x.shape, matrix, weights, rows, result)):
            return reason
        if len(matrix) != 2 or len(weights) != 2 or len(result) < 2 or result[-1] != rows[-1] or not isinstance(matrix[-1], int):
            return reason
        dims = (*result[:-1], matrix[-1])
        return (product, dims) if dims == x.shape or constant_shape(x, dims) is not None else reason

    def rewrite_found(self, node: Node, graph: Graph, found: tuple[Node, tuple[Dim, ...]]) -> None:
        product, dims = found
        x = product.inputs[0].producer.inputs[0]
        if dims != x.shape:
            x = reshaped(x, dims, product, graph)
        substitute(graph, node, Node(product.op, [x, *product.inputs[1:]], node.outputs, product.name))
        graph.remove(product)
