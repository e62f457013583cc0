"""Computes nodes whose inputs are all constants, with the executions that would run them, and puts their results in their place.

Also folded are nodes whose result is known from shapes alone (Shape, Size of a tensor with fixed dims). Constants that a subgraph captures
become its own, to be folded there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from mnnx.backends import host
from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.inference import infer_node
from mnnx.converter.passes.base import Pass, is_pure
from mnnx.converter.subgraph_shapes import bodies
from mnnx.errors import ConversionError
from mnnx.interpreter.faults import text_length
from mnnx.schema import dtypes
from mnnx.schema.ops.base import Spec
from mnnx.schema.ops.quantization import DequantizeLinear

#: A result larger than this many bytes is folded only where it isn't larger than the constants it is made of.
FREE_BYTES = 4096


class ConstantFolding(Pass):
    """Computes nodes on constants, and what follows from fixed shapes, with the executions that would run them."""

    name = "constant-folding"

    def run(self, graph: Graph, counts: Counter[str]) -> None:
        kept = []
        for node in graph.nodes:
            if node.op.subgraphs:
                kept.append(node)
                _hand_down(node)
                continue
            values = self._fold(node, infer_node(node), graph)
            if isinstance(values, str):
                kept.append(node)
                continue
            node.detach()
            for output, array in zip(node.outputs, values, strict=False):
                if output is not None:
                    graph.replace_value(output, Value(output.name, constant=array))
            counts[node.op.name] += 1
        graph.nodes = kept

    def reasons(self, node: Node, graph: Graph) -> Iterator[tuple[str, str]]:
        found = self._fold(node, infer_node(node), graph)
        if isinstance(found, str):
            yield "folding", found

    def _fold(self, node: Node, results: tuple[Spec | None, ...], graph: Graph) -> list[np.ndarray | None] | str:
        """The arrays of a node's outputs, of which `results` are the Specs, as far as they are known; or why the node stays."""
        if not is_pure(node.op):
            return "it is random, or control flow"
        if any(output is not None and graph.is_output(output) for output in node.outputs):
            return "its result is an output of the graph, which a node has to make"
        if results and all(r is not None and r.value is not None for r in results[: len(node.outputs)]):
            return [r.value for r in results]
        inputs = [None if v is None else v.constant for v in node.inputs]
        if computed := [repr(v.name) for v in node.inputs if v is not None and v.constant is None]:
            return f"{', '.join(computed)} {'is' if len(computed) == 1 else 'are'} computed"
        if isinstance(node.op, DequantizeLinear) and inputs[0] is not None and inputs[0].ndim:
            return "integers take less memory than what they stand for"
        if results and not self._worth(inputs, results):
            return "the result would be larger than the constants that it is made of"
        if not host.supports(node.op):
            return "the host has no execution for it"
        try:
            with np.errstate(all="ignore"):
                values = list(host.run(node.op, inputs))
        except Exception as error:  # whatever Python and NumPy know
            raise ConversionError(f"node {node.name!r} ({node.op.name}) fails on its constant inputs: {error}") from error
        if not all(isinstance(v, np.ndarray) or v is None for v in values):
            return "its result is no tensor"
        grows = any(v is not None and v.dtype == dtypes.STRING and self._grows(v, inputs) for v in values)
        return "the strings would be longer than those that they are made of" if grows else values

    def _grows(self, text: np.ndarray, inputs: list[np.ndarray | None]) -> bool:
        """`_worth` for strings, whose size no Spec says."""
        given = {id(a): text_length(a) for a in inputs if a is not None and a.dtype == dtypes.STRING}
        return text_length(text) > max(FREE_BYTES, sum(given.values()))

    def _worth(self, inputs: list[np.ndarray | None], results: tuple[Spec | None, ...]) -> bool:
        """Whether folding doesn't blow up the file (an Expand or Tile of a small constant)."""
        made = sum(r.nbytes for r in results if r is not None)
        given = {id(a): a.nbytes for a in inputs if a is not None}  # an input that is used twice is there once
        return made <= max(FREE_BYTES, sum(given.values()))


def _hand_down(node: Node) -> None:
    """Makes constants that the subgraphs of a node capture their own; dead code drops the captures."""
    captures = node.inputs[node.op.own_inputs :]
    for body in bodies(node):
        for value, given in zip(captures, body.inputs[len(body.inputs) - len(captures) :], strict=True):
            if value is not None and value.constant is not None and not body.is_output(given):
                body.replace_value(given, Value(given.name, constant=value.constant))
