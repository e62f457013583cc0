"""Computes nodes whose inputs are all constants, with the executions that would run them, and puts their results in their place.

Also folded are nodes whose result is known from shapes alone (Shape, Size of a tensor with fixed dims).
"""

from __future__ import annotations

import numpy as np

from mnnx.backends import host
from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.inference import infer_node, spec_of
from mnnx.converter.passes.base import Context, Pass
from mnnx.errors import ConversionError
from mnnx.schema.ops.base import DataDependent, RuleError, Spec, Subgraph
from mnnx.schema.ops.quantization import DequantizeLinear

#: A result larger than this many bytes is folded only where it isn't larger than the constants it is made of.
FREE_BYTES = 4096


class ConstantFolding(Pass):
    name = "constant-folding"

    def run(self, graph: Graph, context: Context) -> None:
        kept = []
        for node in graph.nodes:
            infer_node(node)
            values = self._fold(node, graph)
            if values is None:
                kept.append(node)
                continue
            node.detach()
            for output, array in zip(node.outputs, values, strict=False):
                if output is not None:
                    graph.replace_value(output, Value(output.name, constant=array))
            context.count(node.op.name)
        graph.nodes = kept

    def _fold(self, node: Node, graph: Graph) -> list[np.ndarray] | None:
        """The node's results, or None where it stays."""
        if not node.op.deterministic or any(annotation is Subgraph for annotation, _ in node.op.fields.values()):
            return None
        if any(output is not None and graph.is_output(output) for output in node.outputs):
            return None  # an output of the graph is always made by a node
        specs = [None if v is None else spec_of(v) for v in node.inputs]
        if any(spec is None and v is not None for spec, v in zip(specs, node.inputs, strict=True)):
            return None
        results = self._infer(node, specs)
        if results and all(r is not None and r.value is not None for r in results[: len(node.outputs)]):
            return [r.value for r in results]
        inputs = [None if v is None else v.constant for v in node.inputs]
        if any(array is None and v is not None for array, v in zip(inputs, node.inputs, strict=True)):
            return None
        if isinstance(node.op, DequantizeLinear) or (results and not self._worth(inputs, results)) or not host.supports(node.op):
            return None
        try:
            with np.errstate(all="ignore"):
                values = list(host.run(node.op, inputs))
        except (RuleError, ArithmeticError, IndexError) as error:
            raise ConversionError(f"node {node.name!r} ({node.op.name}) fails on its constant inputs: {error}") from error
        return values if all(isinstance(v, np.ndarray) or v is None for v in values) else None

    def _infer(self, node: Node, specs: list[Spec | None]) -> tuple[Spec | None, ...]:
        try:
            results = node.op.infer(*specs)
        except (DataDependent, RuleError):
            return ()
        return results if isinstance(results, tuple) else (results,)

    def _worth(self, inputs: list[np.ndarray | None], results: tuple[Spec | None, ...]) -> bool:
        """Whether folding doesn't blow up the file (an Expand or Tile of a small constant)."""
        made = sum(r.nbytes for r in results if r is not None)
        return made <= max(FREE_BYTES, sum(a.nbytes for a in inputs if a is not None))
