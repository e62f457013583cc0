"""Writes models to .mnnx files: the FlatBuffers part, then the weights, aligned (see docs/file-format.md)."""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np

from mnnx.errors import ConversionError, ModelFormatError
from mnnx.schema import attributes, dtypes, layout, reader
from mnnx.schema.emit import emit
from mnnx.schema.files import sidecar_name, temporary_name
from mnnx.schema.model import Dim, Graph, Model, Node, Value

#: Weights of more bytes than this go to a sidecar file.
SIDECAR_LIMIT = 2 * 1024**3

#: Bytes of an array that are looked at before all are. (An odd step meets all bytes of its elements.)
_SAMPLE = 64

_T = TypeVar("_T")


def write_model(model: Model, path: str | os.PathLike, sidecar_limit: int = SIDECAR_LIMIT) -> int:
    """Writes `model` to `path`; weights of more than `sidecar_limit` bytes go to `path` + ".weights". Returns the bytes written.

    An existing file is replaced in one step, and only by one that the reader has read. Raises ConversionError, and leaves nothing
    behind, where the model is not legal or the file can't be written.
    """
    path = Path(path)
    if not path.name:
        raise ConversionError(f"{str(path)!r} is not the name of a file")
    temporary = temporary_name(path)
    temporary_sidecar = temporary.with_suffix(".weights")
    sidecar = sidecar_name(path)
    leftovers = [temporary, temporary_sidecar]
    try:
        contents = _Contents(model, str(path))
        if contents.size > sidecar_limit:
            checksum = _write(temporary_sidecar, contents.write_sidecar)
            structure = contents.structure((sidecar.name, contents.size, checksum))
            _write(temporary, lambda file: file.write(structure))
            _check(lambda: reader.read_file(temporary, str(path), temporary_sidecar), str(path))
            written = temporary.stat().st_size + temporary_sidecar.stat().st_size
            os.replace(temporary_sidecar, sidecar)
            leftovers.append(sidecar)
        else:
            _write(temporary, contents.write)
            _check(lambda: reader.read_file(temporary, str(path)), str(path))
            written = temporary.stat().st_size
        os.replace(temporary, path)
        leftovers.clear()
        _sync_folder(path.parent)
        return written
    except OSError as error:
        raise ConversionError(f"{path} can't be written: {error.strerror or error}") from error
    finally:
        for leftover in leftovers:
            with suppress(OSError):
                leftover.unlink()


def serialize(model: Model) -> bytes:
    """The bytes of the file that `write_model` writes, without a sidecar. Raises ConversionError where the model is not legal."""
    data = encode(model)
    _check(lambda: reader.read_model_bytes(data), "the model")
    return data


def encode(model: Model) -> bytes:
    """As `serialize`, without asking whether the model is legal. Raises ConversionError where a file can't express it."""
    contents = _Contents(model, "the model")
    structure = contents.structure()
    return b"".join([structure, *contents.blocks(len(structure))])


def _check(read: Callable[[], Model], name: str) -> None:
    try:
        read()
    except ModelFormatError as error:
        raise ConversionError(f"{name} is not written, for it would not be a legal model: {error}") from error


def _write(path: Path, fill: Callable[[BinaryIO], _T]) -> _T:
    with open(path, "xb") as file:
        result = fill(file)
        file.flush()
        os.fsync(file.fileno())
    return result


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):  # not every file system can; the file itself is safe by now
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def _naming(what: str) -> Iterator[None]:
    """Turns the errors of values that a file can't hold into a ConversionError that names what holds them."""
    try:
        yield
    except (TypeError, ValueError, OverflowError, KeyError, struct.error) as error:
        raise ConversionError(f"{what} can't be written to a model file: {error}") from error


class _Contents:
    """What goes into a file: rows for its tables (as the reader's walk returns them), and the arrays of its weights.

    Constants of equal dtype, shape and bytes are stored once. Weights are held by reference and made into bytes one at a time.
    """

    def __init__(self, model: Model, name: str):
        self._model = model
        self._name = name
        self.size = 0  # of all weights with their alignment, in bytes
        self._weights: list[np.ndarray] = []
        self._alike: dict[tuple[int, bytes], list[tuple[int, np.ndarray]]] = {}  # weights by their size and some of their bytes
        self._constants: list[list[Any]] = []
        self._by_row: dict[tuple, int] = {}
        self._by_id: dict[int, int] = {}
        self._symbols: dict[str, int] = {}
        self._graphs = list(model.graphs[:1])
        self._rows = [self._graph(graph) for graph in self._graphs]  # subgraphs join the list while it runs

    def structure(self, sidecar: tuple[str, int, bytes] | None = None) -> bytearray:
        """The FlatBuffers part; `sidecar` has the file name, size and SHA-256 of the weights where they lie in a sidecar."""
        model = self._model
        if sidecar:
            for constant in self._constants:
                constant[1] = layout.SIDECAR if constant[1] == layout.WEIGHTS else constant[1]
        with _naming(self._name):
            ranges = [
                (self._symbol(name), smallest, layout.LARGEST_DIM if largest is None else largest)
                for name, (smallest, largest) in model.ranges.items()
            ]
            return emit(
                [
                    layout.FORMAT_VERSION,
                    1,  # structure_size, which `emit` fills in
                    0 if sidecar else self.size,
                    model.producer,
                    model.opset,
                    list(model.metadata.items()),
                    list(self._symbols),
                    self._rows,
                    self._constants,
                    [(removed.name, removed.by_pass, removed.keep_level) for removed in model.removed],
                    sidecar,
                    () if sidecar else self._checksum(),
                    ranges,
                ]
            )

    def _checksum(self) -> bytes:
        """The SHA-256 of the weights as they lie behind the structure."""
        checksum = hashlib.sha256()
        for block in self.blocks(0):
            checksum.update(block)
        return checksum.digest()

    def write(self, file: BinaryIO) -> None:
        """Writes a whole file."""
        structure = self.structure()
        file.write(structure)
        for block in self.blocks(len(structure)):
            file.write(block)

    def write_sidecar(self, file: BinaryIO) -> bytes:
        """Writes a sidecar file; returns the SHA-256 of what follows its header."""
        checksum = hashlib.sha256()
        file.write(bytes(layout.ALIGNMENT))
        for block in self.blocks(layout.ALIGNMENT):
            checksum.update(block)
            file.write(block)
        file.seek(0)
        file.write(struct.pack(layout.SIDECAR_HEADER, layout.SIDECAR_MAGIC, self.size, checksum.digest()))
        return checksum.digest()

    def blocks(self, position: int) -> Iterator[bytes | memoryview]:
        """The weights and the zeros between them, for a file of which `position` bytes are there."""
        for array in self._weights:
            data = memoryview(_bytes(array))
            yield bytes(-position % layout.ALIGNMENT)
            yield data
            position = layout.aligned(position) + len(data)

    def _graph(self, graph: Graph) -> list[Any]:
        where = f"graph {graph.name!r}"
        values = []
        for value in graph.values:
            with _naming(f"{where}: value {value.name!r}"):
                values.append(self._value(value))
        nodes = []
        for node in graph.nodes:
            with _naming(f"{where}: node {node.name!r} ({node.op.name})"):
                nodes.append(self._node(node))
        return [graph.name, values, graph.inputs, graph.outputs, nodes]

    def _value(self, value: Value) -> list[Any]:
        kind = layout.VALUE_KINDS.index(value.kind)
        if value.constant is not None:
            return [value.name, 0, kind, None, self._constant(value.constant), None]
        dims = None if value.shape is None else [self._dim(dim) for dim in value.shape]
        return [value.name, dtypes.to_code(value.dtype), kind, dims, -1, None]

    def _dim(self, dim: Dim) -> int:
        if dim is None:
            return -1
        if isinstance(dim, str):
            return -2 - self._symbol(dim)
        if dim < 0:
            raise ValueError(f"a dim is {dim}")
        return dim

    def _symbol(self, name: str) -> int:
        return self._symbols.setdefault(name, len(self._symbols))

    def _node(self, node: Node) -> list[Any]:
        return [node.name, node.op.name, node.inputs, node.outputs, attributes.encode(node.op, self._constant, self._subgraph)]

    def _subgraph(self, graph: Graph) -> int:
        if any(graph is known for known in self._graphs):
            raise ValueError(f"the subgraph {graph.name!r} belongs to more than one op, or to itself")
        self._graphs.append(graph)
        return len(self._graphs) - 1

    def _constant(self, array: np.ndarray) -> int:
        index = self._by_id.get(id(array))
        if index is None:
            row = self._row(array)
            index = self._by_row.setdefault(tuple(row), len(self._constants))
            if index == len(self._constants):
                self._constants.append(row)
            self._by_id[id(array)] = index
        return index

    def _row(self, array: np.ndarray) -> list[Any]:
        code = dtypes.to_code(array.dtype)
        if array.dtype == dtypes.STRING:
            return [code, layout.TEXTS, array.shape, 0, 0, _texts(array)]
        return [code, layout.WEIGHTS, array.shape, self._offset(array) if array.nbytes else 0, array.nbytes, ()]

    def _offset(self, array: np.ndarray) -> int:
        """Where the bytes of an array lie among the weights: with those that are there already, if they are equal."""
        data = _bytes(array)
        alike = self._alike.setdefault((data.size, data[:: data.size // _SAMPLE | 1].tobytes()), [])
        for offset, other in alike:
            if np.array_equal(data, _bytes(other)):
                return offset
        offset = layout.aligned(self.size)
        alike.append((offset, array))
        self._weights.append(array)
        self.size = offset + array.nbytes
        return offset


def _texts(array: np.ndarray) -> tuple[str, ...]:
    texts = tuple(array.reshape(-1).tolist())
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"a string tensor holds {text!r}")
    return texts


def _bytes(array: np.ndarray) -> np.ndarray:
    """A constant's bytes as the file has them: in C order, one byte for each element of the types that are narrower."""
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    largest = layout.LARGEST_BYTE.get(dtypes.name(array.dtype), 255)
    if array.dtype == np.bool_:
        return np.minimum(data, largest)
    return data & largest if largest < 255 else data
