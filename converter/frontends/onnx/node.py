"""An ONNX node as its importer sees it: typed attributes, its inputs as Values, and what it builds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
import onnx

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.inference import infer_node
from mnnx.errors import ConversionError
from mnnx.schema import dtypes
from mnnx.schema.ops.base import Op, Subgraph

REQUIRED: Any = object()


class OnnxNode:
    """One node of an ONNX graph, being imported into `graph`.

    `opset` is the version of the node's own domain; `inputs` has None for inputs left out; `output_names` has "" for outputs that
    nobody asks for.
    """

    def __init__(self, proto: onnx.NodeProto, opset: int, graph: Graph, inputs: Sequence[Value | None], name: str, context: Any):
        self.proto = proto
        self.op_type = proto.op_type
        self.domain = proto.domain
        self.opset = opset
        self.graph = graph
        self.inputs = tuple(inputs)
        self.output_names = list(proto.output)
        self.name = name
        self._attributes = {a.name: a for a in proto.attribute}
        self._context = context  # the running import: imports subgraphs, hands out fresh names, loads external tensors

    def attribute(self, name: str, kind: Any, default: Any = REQUIRED) -> Any:
        """An attribute's value; `default` where it is absent.

        kind: int, float, str, bool, tuple[int, ...], tuple[float, ...], tuple[str, ...], np.ndarray (a tensor), np.dtype (a data type
        number). Raises ConversionError where it is absent without a default, or of another type.
        """
        proto = self._attributes.get(name)
        if proto is None:
            if default is REQUIRED:
                self.fail(f"needs the attribute {name!r}")
            return default
        read = _READERS.get((kind, proto.type))
        if read is not None:
            return read(self, proto)
        if proto.type in (_KINDS.INTS, _KINDS.FLOATS, _KINDS.STRINGS) and not (proto.ints or proto.floats or proto.strings):
            return ()
        self.fail(f"the attribute {name!r} is of type {_KINDS.AttributeType.Name(proto.type)}, wanted {getattr(kind, '__name__', kind)}")

    def tensor(self, proto: onnx.AttributeProto) -> np.ndarray:
        """The values of an attribute that is a tensor."""
        sparse = proto.type == _KINDS.SPARSE_TENSOR
        return self._context.sparse_array(proto.sparse_tensor) if sparse else self._context.array(proto.t)

    def has(self, name: str) -> bool:
        return name in self._attributes

    def subgraph(self, name: str) -> Any:
        """Imports a graph attribute; returns an importer.Subimport. Raises ConversionError where it is absent."""
        proto = self._attributes.get(name)
        if proto is None or proto.type != onnx.AttributeProto.GRAPH:
            self.fail(f"needs the graph attribute {name!r}")
        return self._context.subgraph(proto.g)

    def op(self, op_class: type[Op], **given: Any) -> Op:
        """An op whose attributes are read from the ONNX attributes of the same names; `given` ones are taken as they are."""
        attributes = dict(given)
        for key, (annotation, default) in op_class.fields.items():
            if key not in given and annotation is not Subgraph:
                kind = annotation
                if hasattr(annotation, "__args__") and type(None) in annotation.__args__:
                    kind = next(a for a in annotation.__args__ if a is not type(None))
                value = self.attribute(key, kind, REQUIRED if default is ... else default)
                attributes[key] = value
        try:
            return op_class(**attributes)
        except (TypeError, ValueError) as error:
            self.fail(str(error))

    def add(self, op: Op, *inputs: Value | None, outputs: int = 1) -> Any:
        """Adds an op to the graph; returns its output Value, or a tuple of `outputs` Values where that isn't 1."""
        values = tuple(Value(self._context.fresh(f"{self.name}/{op.name}")) for _ in range(outputs))
        node = Node(op, inputs, values, self._context.fresh(self.name))
        self.graph.nodes.append(node)
        infer_node(node)
        return values[0] if outputs == 1 else values

    def fresh_name(self) -> str:
        """A name for a further node that belongs to this one."""
        return self._context.fresh(self.name)

    def fresh_dim(self, name: str) -> str:
        """A name for a dim that no other dim of the model has."""
        return self._context.fresh_dim(name)

    def constant(self, array: Any, dtype: Any = None) -> Value:
        """A constant Value."""
        return Value(self._context.fresh(f"{self.name}/constant"), constant=np.asarray(array, dtype))

    def value_of(self, value: Value | None, what: str) -> np.ndarray:
        """The array of a constant input; raises ConversionError where `value` is computed at run time."""
        if value is None or value.constant is None:
            self.fail(f"{what} must be a constant; fold it first (e.g. with onnxsim), or give it as an initializer")
        return value.constant

    def dtype(self, code: int) -> np.dtype:
        """The NumPy dtype of an ONNX data type number."""
        try:
            return dtypes.from_code(code)
        except KeyError:
            self.fail(f"the data type number {code} is unknown")

    def fail(self, message: str) -> NoReturn:
        """Raises ConversionError naming this node."""
        op = f"{self.domain}::{self.op_type}" if self.domain else self.op_type
        raise ConversionError(f"node {self.name!r} ({op}, opset {self.opset}): {message}")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


_KINDS = onnx.AttributeProto
#: How an attribute is read, by the kind that is asked for and its own type.
_READERS: dict[tuple[Any, int], Callable[[OnnxNode, onnx.AttributeProto], Any]] = {
    (int, _KINDS.INT): lambda node, proto: proto.i,
    (bool, _KINDS.INT): lambda node, proto: bool(proto.i),
    (float, _KINDS.FLOAT): lambda node, proto: proto.f,
    (str, _KINDS.STRING): lambda node, proto: _text(proto.s),
    (np.dtype, _KINDS.INT): lambda node, proto: node.dtype(proto.i),
    (tuple[int, ...], _KINDS.INTS): lambda node, proto: tuple(proto.ints),
    (tuple[float, ...], _KINDS.FLOATS): lambda node, proto: tuple(proto.floats),
    (tuple[str, ...], _KINDS.STRINGS): lambda node, proto: tuple(map(_text, proto.strings)),
    (np.ndarray, _KINDS.TENSOR): OnnxNode.tensor,
    (np.ndarray, _KINDS.SPARSE_TENSOR): OnnxNode.tensor,
}


__all__ = ["REQUIRED", "OnnxNode"]
