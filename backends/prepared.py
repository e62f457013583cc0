"""Packed weights on disk: sessions map them into memory instead of packing the model's.

`MODEL.mnnx.packed-TARGET` lies beside the model. It has a header (magic, size and hash of the index), the index (text), and the arrays,
each at a multiple of 64 bytes. The index says of which model it is, and what it has: for a way of packing and a place among the model's
weights the arrays that the packing gave. What isn't there, a session packs by itself.

Index: a line for the model, one for the way it was made, one for each result of a packing, whose fields have tabs between them: its name,
"array" or "tuple", and for each array its dtype, shape and offset, or "None". Not JSON, whose parser takes longer to load than all of it.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mnnx import __version__
from mnnx.schema import dtypes
from mnnx.schema.files import whole_file
from mnnx.schema.hashing import blake2b
from mnnx.schema.log import log
from mnnx.schema.model import Model

#: Raised whenever some weights are packed in another way under the same key.
PACKINGS = 1
_HEADER = struct.Struct("<8sQQ32s")  # magic, size of the file, size of the index, hash of the index
_MAGIC = b"MNNXPACK"
_ALIGNMENT = 64
#: Smaller weights are packed sooner than found.
_LEAST_BYTES = 4096


def beside_model(model: Path, target: str) -> Path:
    """Where the packed weights of a model for a target lie."""
    return model.with_name(f"{model.name}.packed-{target}")


class PreparedWeights:
    """What files beside a model have."""

    def __init__(self, path: Path, model: Model):
        self._path, self._model = path, model
        self._regions = _regions(model)
        self._found: dict[str, tuple[mmap.mmap, list[str]]] = {}
        for file in _files(path) if model.fingerprint else ():
            self._open(file)

    def find(self, key: Any, array: np.ndarray) -> Any:
        """What packing `array` under `key` gave: an array, or a tuple of arrays and Nones; None where it isn't there."""
        name = _name(key, array, self._regions) if self._found else None
        if name not in self._found:
            return None
        memory, (kind, *fields) = self._found[name]
        values = tuple(None if field == "None" else _array(memory, *field.split(" ")) for field in fields)
        return values[0] if kind == "array" else values

    def _open(self, path: Path) -> None:
        try:
            if not path.is_file():  # opening a pipe would wait for its writer
                raise ValueError("it is no file")
            with open(path, "rb") as file:
                memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            index = _read_index(memory)
        except (OSError, ValueError) as error:
            log().warning("the packed weights %s are left out: %s", path, error)
            return
        if index[:2] != (self._model.fingerprint, _made_with()):
            log().warning(
                "the packed weights %s are left out: they were made for another file (mnnx kernels build %s makes new ones)",
                path,
                self._path,
            )
            return
        self._found.update({name: (memory, fields) for name, fields in index[2].items()})


def write(path: Path, model: Model, packed: Mapping[tuple, tuple[np.ndarray, Any]]) -> int:
    """Writes what sessions have packed (SharedWeights.packed) of the weights that lie in the model's file; returns the size in bytes.

    Raises OSError, and leaves no part of a file.
    """
    regions, lines, blocks, end = _regions(model), [model.fingerprint, _made_with()], [], 0
    for (key, *_), (source, value) in packed.items():
        name = _name(key, source, regions)
        values = value if isinstance(value, tuple) else (value,)
        if name is None or not all(part is None or isinstance(part, np.ndarray) for part in values):
            continue
        if sum(part.nbytes for part in values if part is not None) < _LEAST_BYTES:
            continue
        fields = [name, "tuple" if isinstance(value, tuple) else "array"]
        for part in values:
            fields.append("None" if part is None else f"{dtypes.name(part.dtype)} {'x'.join(map(str, part.shape))} {end}")
            if part is not None:
                blocks.append((end, part))
                end += -(-part.nbytes // _ALIGNMENT) * _ALIGNMENT
        lines.append("\t".join(fields))
    index = "\n".join(lines).encode()
    start = -(-(_HEADER.size + len(index)) // _ALIGNMENT) * _ALIGNMENT
    with whole_file(path) as file:
        file.write(_HEADER.pack(_MAGIC, start + end, len(index), blake2b(index, digest_size=32).digest()) + index)
        for offset, part in blocks:
            file.seek(start + offset)
            file.write(np.ascontiguousarray(part).reshape(-1).view(np.uint8))
        file.truncate(start + end)
    return start + end


def _files(model: Path) -> list[Path]:
    """Those beside a model; none where its folder can't be listed."""
    try:
        names = os.listdir(model.parent)
    except OSError:
        return []
    return [model.with_name(name) for name in sorted(names) if name.startswith(f"{model.name}.packed-")]


def _made_with() -> str:
    return f"mnnx {__version__}, packings {PACKINGS}"


def _read_index(memory: mmap.mmap) -> tuple[str, str, dict[str, list[str]]]:
    """The model, how the weights were made, and the fields of each result by its name. Raises ValueError where the file is damaged or none
    of ours."""
    if memory[: len(_MAGIC)] != _MAGIC:
        raise ValueError("they are none")
    if len(memory) < _HEADER.size:
        raise ValueError("they are cut short")
    _, size, length, digest = _HEADER.unpack_from(memory)
    text = memory[_HEADER.size : _HEADER.size + length]
    if size != len(memory) or blake2b(text, digest_size=32).digest() != digest:
        raise ValueError("they are damaged or cut short")
    model, made, *lines = text.decode().split("\n")
    return model, made, {name: fields for name, *fields in (line.split("\t") for line in lines)}


def _array(memory: mmap.mmap, dtype: str, dims: str, offset: str) -> np.ndarray:
    length = _HEADER.unpack_from(memory)[2]
    start = -(-(_HEADER.size + length) // _ALIGNMENT) * _ALIGNMENT
    shape = tuple(map(int, dims.split("x")))
    return np.frombuffer(memory, dtypes.from_name(dtype), math.prod(shape), start + int(offset)).reshape(shape)


def _regions(model: Model) -> list[tuple[int, int]]:
    """Where the model's files lie in memory: address and size."""
    arrays = [np.frombuffer(region, np.uint8) for region in model.buffer]
    return [(array.__array_interface__["data"][0], array.nbytes) for array in arrays]


def _name(key: Any, array: np.ndarray, regions: list[tuple[int, int]]) -> str | None:
    """Names a way of packing and a piece of the model's files; None for an array that lies in none."""
    address = array.__array_interface__["data"][0]
    for number, (start, size) in enumerate(regions):
        if start <= address < start + size:
            return repr((key, number, address - start, array.shape, array.strides, array.dtype.str))
    return None
