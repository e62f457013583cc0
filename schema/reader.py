"""Reads .mnnx files, and believes nothing in them before it is checked (see docs/file-format.md).

The structure of the file is copied out of it first, so that what was checked can't change afterwards; the weights stay where they are.
"""

from __future__ import annotations

import errno
import math
import mmap
import os
import stat
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from mnnx.errors import ModelFormatError
from mnnx.schema import attributes, dtypes, layout
from mnnx.schema.foreign import looks_like_onnx
from mnnx.schema.hashing import blake2b
from mnnx.schema.model import Dim, Graph, Model, Node, Range, RemovedValue, Value, range_text
from mnnx.schema.ops.base import OPS, find
from mnnx.schema.walk import Damage, Walk

#: NumPy counts bytes in 64 bits.
_MAX_BYTES = 2**62


def read_model(path: str | os.PathLike, verify_weights: bool = False) -> Model:
    """The model in a file, whose weights are views of the file, mapped into memory.

    Weights in a sidecar file are known to be this model's by their size and checksum as the sidecar states them; `verify_weights`
    computes the checksum of the weights, wherever they lie, which reads all of them. Raises ModelFormatError for a file that is not a legal
    model, OSError where there is no such file or it can't be read.
    """
    return read_file(Path(path), os.fspath(path), verify_weights=verify_weights)


def read_model_bytes(buffer: Any) -> Model:
    """The model in a buffer (bytes, bytearray, memoryview, mmap, a uint8 array) of a whole file that has no sidecar.

    A buffer that doesn't start at a multiple of 64 in memory is copied. Raises ModelFormatError.
    """
    try:
        data = np.frombuffer(buffer, np.uint8)
    except (TypeError, ValueError, BufferError) as error:
        raise ModelFormatError(f"a model is read from the bytes of a file, not from {type(buffer).__name__}: {error}") from error
    if data.ctypes.data % layout.ALIGNMENT:
        copy = _aligned_empty(data.size)
        copy[:] = data
        data = copy
    return _Reader("the model", memoryview(data).toreadonly(), None, False).model()


def read_file(path: Path, name: str, sidecar: Path | None = None, verify_weights: bool = False) -> Model:
    """As `read_model`, with the name to use in messages, and the sidecar where it doesn't have its final name yet."""

    def find(file_name: str) -> Path:
        return sidecar or path.with_name(file_name)

    return _Reader(name, _map(path), find, verify_weights).model()


def structure_size(buffer: Any) -> int:
    """The number of bytes of the FlatBuffers part at the start of a file. Raises ModelFormatError."""
    return _Reader("the model", memoryview(buffer), None, False).header()[0]


def _aligned_empty(size: int) -> np.ndarray:
    data = np.empty(size + layout.ALIGNMENT, np.uint8)
    start = -data.ctypes.data % layout.ALIGNMENT
    return data[start : start + size]


def _map(path: Path) -> memoryview:
    if not stat.S_ISREG(mode := os.stat(path).st_mode) and not stat.S_ISDIR(mode):  # opening a pipe would wait for its writer
        raise OSError(errno.EINVAL, "It is a device or a pipe, not a file", str(path))
    with open(path, "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


@cache
def _element_type(code: int) -> np.dtype | None:
    return dtypes.from_code(code)


def _check_sum(what: str, data: memoryview, checksum: bytes) -> None:
    import hashlib  # not at every start

    if hashlib.sha256(data).digest() != checksum:
        raise Damage(f"{what} are damaged: they don't have their checksum")


class _Reader:
    """Reads one file. Its private methods raise Damage, with the path to what is wrong."""

    def __init__(self, name: str, view: memoryview, sidecar: Callable[[str], Path] | None, verify_weights: bool):
        self._name = name
        self._view = view
        self._find_sidecar = sidecar
        self._verify_weights = verify_weights
        self._regions: dict[int, memoryview] = {}  # by Storage: the weights that lie there
        self._constants: list[np.ndarray] = []
        self._symbols: Sequence[str] = ()
        self._graphs: list[Graph | None] = []
        self._depths: list[int] = []
        self._users: list[str | None] = []

    def header(self) -> tuple[int, int]:
        """The sizes of the FlatBuffers part and of the weights in this file. Raises ModelFormatError."""
        view, name = self._view, self._name
        if len(view) == 0:
            raise ModelFormatError(f"{name}: the file is empty")
        if view[4:8] != layout.IDENTIFIER:
            if looks_like_onnx(view):
                raise ModelFormatError(f"{name}: this is an ONNX model: convert it first (mnnx convert model.onnx model.mnnx)")
            raise ModelFormatError(f"{name}: this is not an .mnnx model; other models must be converted first (see mnnx convert)")
        try:
            version, structure, weights = Walk(view).root_scalars(layout.MODEL)[:3]
        except Damage as damage:
            raise ModelFormatError(f"{name}: the file is damaged or cut short: {damage}") from None
        if version > layout.FORMAT_VERSION:
            raise ModelFormatError(
                f"{name}: the file has format version {version}, and this mnnx reads up to {layout.FORMAT_VERSION}: "
                "use a newer mnnx, or convert the model again with this one"
            )
        if version < 1:
            raise ModelFormatError(f"{name}: the file is damaged: its format version is {version}")
        size = layout.aligned(structure) + weights if weights else structure
        if size > len(view):
            raise ModelFormatError(f"{name}: the file is cut short: it has {len(view)} of {size} bytes")
        if size < len(view):
            raise ModelFormatError(f"{name}: the file is damaged: it has {len(view)} bytes where {size} are expected")
        return structure, weights

    def model(self) -> Model:
        """The model. Raises ModelFormatError."""
        structure, weights = self.header()
        data = bytes(self._view[:structure])
        try:
            row = Walk(data).root(layout.MODEL)
        except Damage as damage:
            raise ModelFormatError(f"{self._name}: the file is damaged: {damage}") from None
        try:
            model = self._model(layout.aligned(structure), weights, *row[3:])
        except Damage as damage:
            raise ModelFormatError(f"{self._name}: {damage}") from damage.__cause__
        *_, sidecar, checksum, _ranges = row
        if sidecar or checksum or not weights:
            model.fingerprint = blake2b(data).hexdigest()
        return model

    def _model(
        self,
        start: int,
        weights: int,
        producer: str,
        opset: int,
        metadata: list,
        symbols: tuple[str, ...],
        graphs: list,
        constants: list,
        removed: list,
        sidecar: list | None,
        weights_sha256: tuple[int, ...],
        ranges: list,
    ) -> Model:
        self._regions[layout.WEIGHTS] = own = self._view[start : start + weights]
        if self._verify_weights and weights_sha256:
            _check_sum("its weights", own, bytes(weights_sha256))
        if sidecar:
            self._regions[layout.SIDECAR] = self._sidecar(*sidecar)
        self._constants = [self._constant(index, *constant) for index, constant in enumerate(constants)]
        self._symbols = symbols
        return Model(
            self._all_graphs(graphs),
            producer,
            opset,
            dict(metadata),
            [RemovedValue(*row) for row in removed],
            list(self._regions.values()),
            self._ranges(ranges),
        )

    def _ranges(self, rows: list) -> dict[str, Range]:
        ranges: dict[str, Range] = {}
        for symbol, smallest, largest in rows:
            if not 0 <= symbol < len(self._symbols):
                raise Damage(f"there is a range for symbol {symbol} of {len(self._symbols)}")
            name = self._symbols[symbol]
            if name in ranges or not 0 <= smallest <= largest:
                raise Damage(f"the dim {name!r} can't have the range {range_text(smallest, largest)}")
            ranges[name] = (smallest, None if largest == layout.LARGEST_DIM else largest)
        return ranges

    def _sidecar(self, file_name: str, size: int, checksum: tuple[int, ...]) -> memoryview:
        if not file_name or "\0" in file_name or file_name in (".", "..") or "/" in file_name or "\\" in file_name:
            raise Damage(f"{file_name!r} is not the name of a file with weights")
        if self._find_sidecar is None:
            raise Damage(f"its weights lie in the file {file_name!r}: read it by its path, with that file beside it")
        path = self._find_sidecar(file_name)
        if not path.is_file():
            raise Damage(f"its weights should be in the file {path}, which isn't there")
        try:
            view = _map(path)
        except OSError as error:
            raise Damage(f"its weights, the file {path}, can't be read: {error.strerror or error}") from error
        if len(view) != layout.ALIGNMENT + size:
            raise Damage(f"its weights, the file {path}, have {len(view)} bytes where {layout.ALIGNMENT + size} are expected")
        header = struct.unpack_from(layout.SIDECAR_HEADER, view)
        if header != (layout.SIDECAR_MAGIC, size, bytes(checksum)):
            raise Damage(f"the file {path} has the weights of another model")
        if self._verify_weights:
            _check_sum(f"its weights, the file {path},", view[layout.ALIGNMENT :], header[2])
        return view[layout.ALIGNMENT :]

    def _constant(self, index: int, code: int, storage: int, dims: tuple[int, ...], offset: int, size: int, texts: tuple[str, ...]):
        """The array of a constant; read-only."""
        try:
            dtype = _element_type(code)
        except KeyError:
            dtype = None
        if dtype is None:
            raise Damage(f"constant {index} has the unknown element type {code}")
        if len(dims) > layout.MAX_RANK or min(dims, default=0) < 0:
            raise Damage(f"constant {index} can't have the shape {_brief(dims)}")
        if (dtype == dtypes.STRING) != (storage == layout.TEXTS):
            raise Damage(f"constant {index} is not where a constant of its element type is")
        count = math.prod(dims)
        if storage == layout.TEXTS:
            if count != len(texts):
                raise Damage(f"constant {index} of shape {_brief(dims)} has {len(texts)} strings")
            array = np.empty(count, object)
            array[:] = texts
        else:
            if storage not in self._regions:
                raise Damage(f"constant {index} lies in a file that isn't named")
            if size != count * dtype.itemsize or math.prod(dim for dim in dims if dim) * dtype.itemsize > _MAX_BYTES:
                raise Damage(f"constant {index}, {dtypes.name(dtype)} of shape {_brief(dims)}, can't have {size} bytes")
            weights = self._regions[storage]
            if offset % layout.ALIGNMENT or offset + size > len(weights):
                raise Damage(f"constant {index} can't lie at byte {offset} with {size} bytes: there are {len(weights)}")
            array = np.ndarray(dims, dtype, weights, offset) if size else np.empty(dims, dtype)
            if layout.illegal_bytes(array):
                raise Damage(f"constant {index} holds bytes that are no {dtypes.name(dtype)}")
        array = array.reshape(dims)
        array.flags.writeable = False
        return array

    def _all_graphs(self, rows: list) -> list[Graph]:
        """The graphs. A subgraph stands behind the graph that uses it, so that none can contain itself."""
        if not rows:
            raise Damage("the model has no graph")
        count = len(rows)
        self._graphs = [None] * count
        self._depths = [0] * count
        self._users = [None] * count
        for index in reversed(range(count)):
            self._graphs[index] = self._graph(index, *rows[index])
        for graph, user in zip(self._graphs[1:], self._users[1:], strict=True):
            if user is None:
                raise Damage(f"graph {graph.name!r} is used by no op")
        main = self._graphs[0]
        for what, places in (("inputs", main.inputs), ("outputs", main.outputs)):
            names = Counter(main.values[place].name for place in places)
            for name, count in names.items():
                if count > 1 or not name:
                    raise Damage(f"the {what} of the model must have names, each its own; {count} have the name {name!r}")
        return self._graphs

    def _graph(self, index: int, name: str, value_rows: list, inputs: tuple, outputs: tuple, node_rows: list) -> Graph:
        where = f"graph {name!r}"
        try:
            values = [self._value(*row) for row in value_rows]
            count = len(values)
            made = bytearray(value.constant is not None for value in values)
            for place in inputs:
                if not 0 <= place < count:
                    raise Damage(f"its input is value {place} of {count}")
                if made[place]:
                    raise Damage(f"its input {values[place].name!r} is a constant, or an input already")
                made[place] = 1
            nodes = [self._node(index, values, made, *row) for row in node_rows]
            for place in outputs:
                if not 0 <= place < count:
                    raise Damage(f"its output is value {place} of {count}")
                if not made[place]:
                    raise Damage(f"its output {values[place].name!r} is made by no node")
        except Damage as damage:
            damage.where.append(where)
            raise
        return Graph(name, values, inputs, outputs, nodes)

    def _value(self, name: str, code: int, kind: int, dims: tuple[int, ...] | None, constant: int, quantization: list | None) -> Value:
        constants = self._constants
        if quantization and not all(-1 <= place < len(constants) for place in quantization[:2]):
            raise Damage(f"value {name!r} is quantized with a constant that isn't there")
        if constant >= 0:
            if constant >= len(constants) or kind:
                raise Damage(f"value {name!r} is constant {constant} of {len(constants)}, or not a tensor")
            array = constants[constant]
            return Value(name, array.dtype, array.shape, "tensor", array)
        try:
            dtype = _element_type(code)
        except KeyError:
            raise Damage(f"value {name!r} has the unknown element type {code}") from None
        if constant < -1 or kind >= len(layout.VALUE_KINDS):
            raise Damage(f"value {name!r} is of an unknown kind")
        if dims:
            if len(dims) > layout.MAX_RANK:
                raise Damage(f"value {name!r} has {len(dims)} dims")
            if min(dims) < 0:
                dims = tuple(dim if dim >= 0 else self._symbol(name, dim) for dim in dims)
        return Value(name, dtype, dims, layout.VALUE_KINDS[kind])

    def _symbol(self, name: str, dim: int) -> Dim:
        if dim == -1:
            return None
        if -2 - dim >= len(self._symbols):
            raise Damage(f"value {name!r} has a dim named by symbol {-2 - dim} of {len(self._symbols)}")
        return self._symbols[-2 - dim]

    def _node(
        self, graph: int, values: list[Value], made: bytearray, name: str, op_name: str, inputs: tuple, outputs: tuple, attribute_rows: list
    ) -> Node:
        op = find(op_name)
        where = f"node {name!r} ({op_name})"
        if op is None:
            raise Damage(f"{where}: {_unknown(op_name)}")
        count = len(values)
        for place in inputs:
            if place != -1 and (not 0 <= place < count or not made[place]):
                if not 0 <= place < count:
                    raise Damage(f"{where}: an input is value {place} of {count}")
                raise Damage(f"{where}: its input {values[place].name!r} is not made before it")
        for place in outputs:
            if place == -1:
                continue
            if not 0 <= place < count:
                raise Damage(f"{where}: an output is value {place} of {count}")
            if made[place]:
                raise Damage(f"{where}: its output {values[place].name!r} is made already")
            made[place] = 1
        try:
            return Node(
                name,
                attributes.decode(op, attribute_rows, self._constants, lambda child: self._subgraph(graph, child, where)),
                inputs,
                outputs,
            )
        except Damage as damage:
            damage.where.append(where)
            raise
        except Exception as error:  # whatever an op's check says, or trips over
            raise Damage(f"{where}: illegal attributes: {error}") from error

    def _subgraph(self, parent: int, child: int, where: str) -> Graph:
        """Graph `child`, used by a node of graph `parent`."""
        if not 0 <= child < len(self._graphs):
            raise Damage(f"its subgraph is graph {child} of {len(self._graphs)}")
        graph = self._graphs[child]
        if child <= parent or graph is None:
            raise Damage(f"its subgraph is graph {child}, which must stand behind graph {parent}")
        if self._users[child] is not None:
            raise Damage(f"its subgraph {graph.name!r} is used by {self._users[child]} already")
        self._users[child] = where
        self._depths[parent] = max(self._depths[parent], 1 + self._depths[child])
        if self._depths[parent] > layout.MAX_DEPTH:
            raise Damage(f"subgraphs are nested more than {layout.MAX_DEPTH} deep")
        return graph


def _unknown(op_name: str) -> str:
    """What to do about an op that isn't registered."""
    domain = op_name.rpartition("::")[0]
    if not domain or domain in {name.rpartition("::")[0] for name in OPS}:
        return "this mnnx doesn't know the operator; a newer one may"
    return (
        f"nobody has registered this operator of {domain}: import the module that defines it before the model is opened, or install its "
        "package, which has an entry point mnnx.ops"
    )


def _brief(dims: Sequence[int]) -> str:
    return f"{list(dims[:8])}{'' if len(dims) <= 8 else '…'}"
