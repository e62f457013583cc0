"""Reads an ONNX model into a converter Graph: names become Values, nodes go through their importers, subgraphs are closed.

A node whose op has no importer is expanded from its ONNX function body, where it has one. What remains unknown is collected over the
whole model and reported in one UnsupportedOperator.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.external_data_helper import load_external_data_for_tensor, uses_external_data

from mnnx.converter.fixed_shapes import FixedShapes
from mnnx.converter.frontends.onnx import functions, input_shapes, registry, soundness
from mnnx.converter.frontends.onnx.inferred_types import with_inferred_types
from mnnx.converter.frontends.onnx.node import OnnxNode
from mnnx.converter.frontends.onnx.order import in_order
from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.inference import infer_node
from mnnx.converter.subgraph_shapes import merged
from mnnx.errors import ConversionError, MnnxError, UnsupportedOperator
from mnnx.schema import dtypes
from mnnx.schema.model import Range
from mnnx.schema.ops.base import Op
from mnnx.schema.ops.shape import Identity

#: What a sparse tensor may become when it is made dense, which its few values don't tell.
MAX_SPARSE_BYTES = 1 << 30


@dataclass
class ImportedModel:
    """An ONNX model as a Graph, with what the file says of itself."""

    graph: Graph
    opset: int
    metadata: dict[str, str]
    external_bytes: int  # of weights that lie in other files
    external_files: set[Path]
    ranges: dict[str, Range]  # of dims' names


@dataclass
class Subimport:
    """An imported subgraph; `captured` maps each outer Value that it uses to the inner Value that stands for it."""

    graph: Graph
    captured: dict[Value, Value] = field(default_factory=dict)


def import_model(source: str | os.PathLike | onnx.ModelProto, fixed: FixedShapes | None = None) -> ImportedModel:
    """Imports a path or a ModelProto, with the shapes of inputs that are `fixed`.

    Raises ConversionError for a bad file, or shapes that don't fit it, UnsupportedOperator listing all unknown ops.
    """
    model, folder = _load(source)
    opsets = {_domain(o.domain): o.version for o in model.opset_import}
    newest = onnx.defs.onnx_opset_version()
    if opsets.get("", 1) > newest:
        raise ConversionError(
            f"the model uses opset {opsets['']}, but the installed onnx {onnx.__version__} knows up to {newest}; upgrade onnx"
        )
    if opsets.get("", 1) < 1:
        raise ConversionError(f"the model uses opset {opsets['']}, which there isn't: they begin with 1")
    if model.functions:
        model = functions.inlined(model)
    registry.load_all()
    session = _ModelImport(folder)
    try:
        soundness.check(model)
        if source is model:
            model = onnx.ModelProto()
            model.CopyFrom(source)
        ranges = input_shapes.fix(model, fixed) if fixed else {}
        graph = _GraphImport(session, with_inferred_types(model).graph, opsets, None).run()
    except (MnnxError, MemoryError):
        raise
    except RecursionError as error:
        raise ConversionError("the model is broken: its subgraphs are nested too deep") from error
    except Exception as error:  # a damaged model makes importers fail in any way that Python, NumPy and onnx know
        raise ConversionError(f"the model is broken: {type(error).__name__}: {error}") from error
    if session.unsupported:
        raise UnsupportedOperator(_unsupported_message(session.unsupported))
    metadata = {p.key: p.value for p in model.metadata_props}
    return ImportedModel(graph, opsets.get("", 0), metadata, session.external_bytes, session.external_files, ranges)


def _load(source: Any) -> tuple[onnx.ModelProto, str]:
    if isinstance(source, onnx.ModelProto):
        model, folder, where = source, "", "the ModelProto"
    else:
        if not isinstance(source, str | os.PathLike):
            raise ConversionError(f"the source must be the path of an .onnx file or an onnx.ModelProto, not {type(source).__name__}")
        path = Path(source)
        where = f"{path}"
        try:
            model, folder = onnx.load(path, load_external_data=False), str(path.parent)
        except OSError as error:
            raise ConversionError(f"{path} can't be read: {error.strerror or error}") from error
        except Exception as error:  # protobuf has a zoo of parse errors without a common base
            raise ConversionError(f"{path} is not an ONNX model: {error}") from error
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise ConversionError(f"{where} is not an ONNX model: it holds no graph")
    return model, folder


def _unsupported_message(unsupported: dict[tuple[str, str, int], list[str]]) -> str:
    rows = []
    for (domain, op_type, opset), nodes in sorted(unsupported.items()):
        op = f"{domain}::{op_type}" if domain else op_type
        more = f" and {len(nodes) - 5} more" if len(nodes) > 5 else ""
        rows.append(f"  {op} (opset {opset}): {', '.join(map(repr, nodes[:5]))}{more}")
    return "\n".join(
        [
            f"{len(rows)} operator(s) of this model are not supported:",
            *rows,
            "Export the model without them (another opset, or decomposed into standard ops), or write them in Python (mnnx.op and",
            "mnnx.importer; the command line finds them by entry points). `mnnx ops` lists what is supported.",
        ]
    )


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


class _Names:
    """The names that are taken."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def reserve(self, name: str) -> None:
        self._taken.add(name)

    def fresh(self, name: str) -> str:
        """`name`, or `name_2`, `name_3`, … where it is taken."""
        candidate = name
        while candidate in self._taken:
            self._next[name] = self._next.get(name, 1) + 1
            candidate = f"{name}_{self._next[name]}"
        self._taken.add(candidate)
        return candidate


class _ModelImport:
    """What is shared by all graphs of one import: names of values and nodes, and of dims, the folder of external data, unknown ops."""

    def __init__(self, folder: str):
        self.folder = folder
        self.unsupported: dict[tuple[str, str, int], list[str]] = {}
        self.external_bytes = 0
        self.external_files: set[Path] = set()
        self.names = _Names()
        self.dims = _Names()

    def array(self, tensor: onnx.TensorProto) -> np.ndarray:
        """The values of a TensorProto, from its external file where it has one; text as an object array of str."""
        if uses_external_data(tensor):
            file = Path(self.folder, next((e.value for e in tensor.external_data if e.key == "location"), ""))
            try:
                load_external_data_for_tensor(tensor, self.folder)
            except Exception as error:  # ValueError, OSError and onnx's own checker error
                raise ConversionError(f"the tensor {tensor.name!r} can't be read from its external file: {error}") from error
            self.external_bytes += len(tensor.raw_data)
            self.external_files.add(file)
        try:
            array = numpy_helper.to_array(tensor)
        except Exception as error:  # whatever a damaged tensor makes of protobuf and NumPy
            raise ConversionError(f"the tensor {tensor.name!r} is damaged: {error}") from error
        if array.dtype.kind in "SUO":
            decode = np.vectorize(lambda s: s.decode("utf-8", "surrogateescape") if isinstance(s, bytes) else str(s), otypes=[object])
            return decode(array) if array.size else array.astype(object)
        return array

    def sparse_array(self, sparse: onnx.SparseTensorProto) -> np.ndarray:
        values, indices = self.array(sparse.values), self.array(sparse.indices)
        where = f"the sparse tensor {sparse.values.name!r} of shape {list(sparse.dims)}"
        if min(sparse.dims, default=0) < 0 or math.prod(sparse.dims) * values.itemsize > MAX_SPARSE_BYTES:
            raise ConversionError(f"{where} can't be made dense: the limit is {MAX_SPARSE_BYTES >> 20} MiB")
        dense = np.zeros(tuple(sparse.dims), values.dtype)
        try:
            flat = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), dense.shape)
            dense.reshape(-1)[flat] = values
        except (IndexError, TypeError, ValueError) as error:
            raise ConversionError(f"{where} is damaged: {error}") from error
        return dense


class _GraphImport:
    """Imports one graph; a subgraph's import has its outer one as `parent`."""

    def __init__(self, session: _ModelImport, proto: onnx.GraphProto, opsets: dict[str, int], parent: _GraphImport | None):
        self.session = session
        self.proto = proto
        self.opsets = opsets
        self.parent = parent
        self.graph = Graph(proto.name or "main")
        self.scopes: list[dict[str, Value]] = [{}]  # names of the graph, and of the functions being expanded in it
        self.captured: dict[Value, Value] = {}
        self.info = {v.name: v.type for v in [*proto.value_info, *proto.output]}
        self.names: dict[str, str] = {}  # what its values are called: in subgraphs not always as in ONNX, where names may be used again

    # ---- what OnnxNode asks of its context
    def fresh(self, name: str) -> str:
        return self.session.names.fresh(name)

    def fresh_dim(self, name: str) -> str:
        return self.session.dims.fresh(name)

    def array(self, tensor: onnx.TensorProto) -> np.ndarray:
        return self.session.array(tensor)

    def sparse_array(self, sparse: onnx.SparseTensorProto) -> np.ndarray:
        return self.session.sparse_array(sparse)

    def subgraph(self, proto: onnx.GraphProto) -> Subimport:
        inner = _GraphImport(self.session, proto, self.opsets, self)
        return Subimport(inner.run(), inner.captured)

    # ---- the import itself
    def run(self) -> Graph:
        self._take_names()
        scope = self.scopes[0]
        for tensor in self.proto.initializer:
            scope[tensor.name] = Value(tensor.name, constant=self.array(tensor))
        for sparse in self.proto.sparse_initializer:
            scope[sparse.values.name] = Value(sparse.values.name, constant=self.sparse_array(sparse))
        for info in self.proto.input:
            if info.name not in scope:
                scope[info.name] = _typed(Value(self.names[info.name]), info.type, is_input=True)
                self.graph.inputs.append(scope[info.name])
        for index, proto in enumerate(in_order(self.proto)):
            self.import_node(proto, self.opsets, proto.name or f"{proto.op_type}_{index}")
        self._set_outputs()
        return self.graph

    def _take_names(self) -> None:
        names = [*(o for n in self.proto.node for o in n.output), *(i.name for i in self.proto.input)]
        if self.parent is not None:
            self.names = {name: self.fresh(name) for name in names}
            return
        self.names = {name: name for name in names}
        for name in names:
            self.session.names.reserve(name)
        for proto in [*self.info.values(), *(i.type for i in self.proto.input)]:
            for dim in proto.tensor_type.shape.dim:
                self.session.dims.reserve(dim.dim_param)

    def _set_outputs(self) -> None:
        made: set[int] = set()
        for info in self.proto.output:
            value = self.lookup(info.name, "the graph's outputs")
            # A caller finds an output under its ONNX name, so a value of another name gets a copy.
            if value.name != self.names.get(info.name, info.name) or id(value) in made:
                copy = Value(info.name if self.parent is None else self.fresh(info.name), value.dtype, value.shape, kind=value.kind)
                self.graph.nodes.append(Node(Identity(), [value], [copy], self.fresh(f"output/{info.name}")))
                value = copy
            made.add(id(value))
            _check_output(value, info)
            self.graph.outputs.append(_typed(value, info.type))

    def lookup(self, name: str, user: str) -> Value:
        """The Value of a name; one of an outer graph becomes an input of this one (constants are simply shared)."""
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        if self.parent is None:
            made = any(name in node.output for node in self.proto.node)
            why = "which is made from its own result" if made else "which nothing makes"
            raise ConversionError(f"{user} uses the value {name!r}, {why}; the model is broken")
        outer = self.parent.lookup(name, user)
        if outer.constant is not None:
            inner = Value(outer.name, constant=outer.constant)
        elif outer in self.captured:
            inner = self.captured[outer]
        else:
            inner = self.captured[outer] = Value(self.fresh(outer.name), outer.dtype, outer.shape, kind=outer.kind)
        return self.scopes[0].setdefault(name, inner)

    def import_node(self, proto: onnx.NodeProto, opsets: dict[str, int], name: str) -> None:
        domain = _domain(proto.domain)
        opset = opsets.get(domain, 1)
        soundness.check_node(proto, opset, name)
        inputs = [self.lookup(i, f"node {name!r} ({proto.op_type})") if i else None for i in proto.input]
        while inputs and inputs[-1] is None:
            inputs.pop()
        node = OnnxNode(proto, opset, self.graph, inputs, name, self)
        function = registry.IMPORTERS.get((domain, proto.op_type))
        if function is not None:
            self._bind(node, self._call(function, node))
        elif (body := functions.body(node)) is not None:
            self._expand(node, body)
        else:
            self.session.unsupported.setdefault((domain, proto.op_type, opset), []).append(name)
            for output in proto.output:
                self.scopes[-1][output] = Value(output)

    def _call(self, function: Any, node: OnnxNode) -> Any:
        try:
            return function(node, *node.inputs)
        except (MnnxError, RecursionError):
            raise
        except MemoryError as error:
            node.fail(f"needs more memory than there is: {error}")
        except Exception as error:
            if isinstance(error, TypeError) and f"{function.__name__}()" in str(error) and "argument" in str(error):
                node.fail(f"has {len(node.inputs)} inputs, which doesn't fit the op: {error}")
            node.fail(f"is broken: {type(error).__name__}: {error}")

    def _bind(self, node: OnnxNode, result: Any) -> None:
        """Gives the node's output names to what its importer returned."""
        scope = self.scopes[-1]
        if not any(node.output_names):
            node.fail("has no outputs; the model is broken")
        if isinstance(result, Op):
            outputs = [Value(name) if name else None for name in node.output_names]
            made = Node(result, node.inputs, outputs, self.fresh(node.name))
            self.graph.nodes.append(made)
            infer_node(made)
        else:
            outputs = list(result) if isinstance(result, Sequence) else [result]
            if not all(isinstance(value, Value | None) for value in outputs):
                node.fail(f"its importer must give an Op or values, not {result!r}")
        if len(outputs) < len(node.output_names) and any(node.output_names[len(outputs) :]):
            node.fail(f"asks for {len(node.output_names)} outputs, the op has {len(outputs)}")
        for name, value in zip(node.output_names, outputs, strict=False):
            if not name:
                continue
            if value is None:
                node.fail(f"its output {name!r} isn't supported")
            if name in scope:
                node.fail(f"its output {name!r} is made by another node already; the model is broken")
            scope[name] = value
            if len(self.scopes) == 1:
                if name in self.info:
                    _typed(value, self.info[name])
                if value not in node.inputs and (value.name == name or value.name not in scope):
                    value.name = self.names[name]

    def _expand(self, node: OnnxNode, body: onnx.FunctionProto) -> None:
        """Imports a function's nodes in a scope of their own, with the node's inputs and attributes put in."""
        given = [*node.inputs, *[None] * (len(body.input) - len(node.inputs))]
        scope = {name: value for name, value in zip(body.input, given, strict=True) if value is not None}
        absent = set(body.input) - set(scope)
        opsets = self.opsets | {_domain(o.domain): o.version for o in body.opset_import}
        self.scopes.append(scope)
        for index, proto in enumerate(body.node):
            bound = functions.bind_attributes(proto, node.proto, body)
            for position, name in enumerate(bound.input):
                if name in absent:
                    bound.input[position] = ""
            self.import_node(bound, opsets, f"{node.name}/{bound.op_type}_{index}")
        self.scopes.pop()
        self._bind(node, [scope.get(name) for name in body.output[: len(node.output_names)]])


def _typed(value: Value, proto: onnx.TypeProto, is_input: bool = False) -> Value:
    """Adds what a TypeProto says to a Value that doesn't know it yet."""
    kind = proto.WhichOneof("value")
    if kind in ("sequence_type", "optional_type", "map_type"):
        value.kind = kind.removesuffix("_type")
        value.dtype = value.dtype or _element_dtype(proto)
        return value
    if kind != "tensor_type" or value.constant is not None:
        return value
    tensor = proto.tensor_type
    if value.dtype is None and tensor.elem_type:
        value.dtype = dtypes.from_code(tensor.elem_type)
    if tensor.HasField("shape"):
        shape = tuple(_dim(d, is_input) for d in tensor.shape.dim)
        value.shape = shape if value.shape is None else merged(value, shape)
    return value


def _check_output(value: Value, info: onnx.ValueInfoProto) -> None:
    """Raises ConversionError where a graph says another element type of an output than what makes it gives."""
    said = _element_dtype(info.type)
    if None not in (said, value.dtype) and said != value.dtype:
        given = f"is of {dtypes.name(value.dtype)}, and not of {dtypes.name(said)}, as the graph says"
        raise ConversionError(f"the model is broken: its output {info.name!r} {given}")


def _element_dtype(proto: onnx.TypeProto) -> np.dtype | None:
    """Of the tensors in a sequence or optional (None: in a map)."""
    while (kind := proto.WhichOneof("value")) in ("sequence_type", "optional_type"):
        proto = getattr(proto, kind).elem_type
    return dtypes.from_code(proto.tensor_type.elem_type) if kind == "tensor_type" else None


def _dim(dim: onnx.TensorShapeProto.Dimension, is_input: bool) -> int | str | None:
    if dim.HasField("dim_value") and (dim.dim_value > 0 or (dim.dim_value == 0 and not is_input)):
        return dim.dim_value
    return dim.dim_param or None
