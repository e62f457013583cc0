"""The tables of mnnx.fbs as the reader walks them, and the numbers of the file around them (see docs/file-format.md)."""

from __future__ import annotations

from typing import Any

import numpy as np

from mnnx.schema import dtypes
from mnnx.schema.records import Record, Row

IDENTIFIER = b"MNNX"
FORMAT_VERSION = 1

#: Weights start at multiples of this many bytes, in the file and so in memory.
ALIGNMENT = 64

#: The sidecar's header: magic, size of what follows it, SHA-256 of what follows it, zeros up to ALIGNMENT bytes.
SIDECAR_MAGIC = b"MNNXWGHT"
SIDECAR_HEADER = "<8sQ32s16x"

VALUE_KINDS = ("tensor", "sequence", "optional", "map")

#: Values of Constant.storage.
WEIGHTS, SIDECAR, TEXTS = range(3)

#: NumPy's own limit in the versions that mnnx supports.
MAX_RANK = 32

#: How deep subgraphs nest.
MAX_DEPTH = 32

#: Element types that fill less than the byte that NumPy gives an element: the largest byte that is a legal element.
LARGEST_BYTE = {"bool": 1, "int2": 3, "uint2": 3, "int4": 15, "uint4": 15, "float4_e2m1fn": 15, "float6_e2m3fn": 63, "float6_e3m2fn": 63}


class Vector(Row):
    """A vector of scalars (a struct format character), of strings ("string") or of tables."""

    element: str | Table


class Field(Row):
    """A field: a scalar (a struct format character), a "string", a Vector or a Table; and what an absent one reads as."""

    name: str
    form: str | Vector | Table
    default: Any


class Table(Record):
    """Fields in the order of their slots."""

    name: str
    fields: tuple[Field, ...]


def _table(table_name: str, /, **fields: tuple[Any, Any]) -> Table:
    return Table(table_name, tuple(Field(key, form, default) for key, (form, default) in fields.items()))


_STRING = ("string", "")
_STRINGS = (Vector("string"), ())

QUANTIZATION = _table("Quantization", scale=("i", -1), zero_point=("i", -1), axis=("i", -1), block_size=("i", 0))

VALUE = _table(
    "Value",
    name=_STRING,
    dtype=("B", 0),
    kind=("B", 0),
    dims=(Vector("q"), None),
    constant=("i", -1),
    quantization=(QUANTIZATION, None),
)

ATTRIBUTE = _table(
    "Attribute",
    name=_STRING,
    kind=("B", 0),
    integer=("q", 0),
    real=("d", None),
    text=_STRING,
    integers=(Vector("q"), ()),
    reals=(Vector("d"), ()),
    texts=_STRINGS,
)

NODE = _table(
    "Node",
    name=_STRING,
    op=_STRING,
    inputs=(Vector("i"), ()),
    outputs=(Vector("i"), ()),
    attributes=(Vector(ATTRIBUTE), ()),
)

GRAPH = _table(
    "Graph",
    name=_STRING,
    values=(Vector(VALUE), ()),
    inputs=(Vector("i"), ()),
    outputs=(Vector("i"), ()),
    nodes=(Vector(NODE), ()),
)

CONSTANT = _table(
    "Constant",
    dtype=("B", 0),
    storage=("B", 0),
    dims=(Vector("q"), ()),
    offset=("Q", 0),
    size=("Q", 0),
    texts=_STRINGS,
)

REMOVED_VALUE = _table("RemovedValue", name=_STRING, by_pass=_STRING, keep_level=("i", 0))

METADATA = _table("Metadata", key=_STRING, text=_STRING)

#: The largest size of a dim.
LARGEST_DIM = 2**63 - 1

DIM_RANGE = _table("DimRange", symbol=("i", 0), smallest=("q", 0), largest=("q", LARGEST_DIM))

SIDECAR_FILE = _table("Sidecar", file_name=_STRING, size=("Q", 0), sha256=(Vector("B"), ()))

MODEL = _table(
    "Model",
    format_version=("I", 0),
    structure_size=("Q", 0),
    weights_size=("Q", 0),
    producer=_STRING,
    opset=("i", 0),
    metadata=(Vector(METADATA), ()),
    symbols=_STRINGS,
    graphs=(Vector(GRAPH), ()),
    constants=(Vector(CONSTANT), ()),
    removed=(Vector(REMOVED_VALUE), ()),
    sidecar=(SIDECAR_FILE, None),
    weights_sha256=(Vector("B"), ()),
    ranges=(Vector(DIM_RANGE), ()),
)


def aligned(size: int) -> int:
    """`size` rounded up to a multiple of ALIGNMENT."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def illegal_bytes(array: np.ndarray) -> bool:
    """Whether a constant of a type narrower than a byte holds bytes that are no element of it."""
    largest = LARGEST_BYTE.get(dtypes.name(array.dtype))
    return largest is not None and array.size > 0 and int(array.view(np.uint8).max()) > largest
