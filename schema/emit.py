"""Writes FlatBuffers tables through the generated code, from rows like those that schema/walk.py reads."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from typing import Any

import flatbuffers
import numpy as np

from mnnx.schema.generated import mnnx_generated
from mnnx.schema.layout import IDENTIFIER, MODEL, Table, Vector


def emit(row: Sequence[Any]) -> bytearray:
    """The FlatBuffers part of a file, from the fields of its Model; its structure_size is filled in.

    Raises TypeError, ValueError, OverflowError or flatbuffers' BuilderSizeError for what the tables can't hold.
    """
    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(_table(builder, MODEL, row), file_identifier=IDENTIFIER)
    data = builder.Output()
    table = mnnx_generated.Model.GetRootAs(data)._tab
    slot = [field.name for field in MODEL.fields].index("structure_size")
    struct.pack_into("<Q", data, table.Pos + table.Offset(4 + 2 * slot), len(data))
    return data


def _table(builder: flatbuffers.Builder, table: Table, row: Sequence[Any]) -> int:
    start, setters, end = _generated(table)
    values = [
        (setter, value if isinstance(form, str) and len(form) == 1 else _reference(builder, form, value))
        for setter, (_, form, default), value in zip(setters, table.fields, row, strict=True)
        if value != default
    ]
    start(builder)
    for setter, value in values:
        setter(builder, value)
    return end(builder)


@cache
def _generated(table: Table) -> tuple[Any, list[Any], Any]:
    """The generated functions that start a table, set each field, and end it."""

    def function(action: str) -> Any:
        return getattr(mnnx_generated, table.name + action)

    camel = ["".join(part.capitalize() for part in field.name.split("_")) for field in table.fields]
    return function("Start"), [function(f"Add{name}") for name in camel], function("End")


def _reference(builder: flatbuffers.Builder, form: str | Vector | Table, value: Any) -> int:
    if form == "string":
        return builder.CreateSharedString(value)
    if isinstance(form, Table):
        return _table(builder, form, value)
    if form.element == "string":
        return _offsets(builder, [builder.CreateSharedString(text) for text in value])
    if isinstance(form.element, Table):
        return _offsets(builder, [_table(builder, form.element, row) for row in value])
    return builder.CreateNumpyVector(np.array(list(value), np.dtype(form.element).newbyteorder("<")))


def _offsets(builder: flatbuffers.Builder, offsets: list[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return builder.EndVector()
