"""The FlatBuffers part of a file is byte by byte what FlatBuffers' own builder makes of it with the generated code."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import Any

import flatbuffers
import numpy as np
import pytest

from mnnx.schema import layout
from mnnx.schema.emit import emit
from mnnx.schema.generated import mnnx_generated
from mnnx.schema.layout import MODEL, Table, Vector
from mnnx.schema.writer import encode
from tests.schema.models import random_model, small

TEXTS = ("", "a", "ab", "abc", "abcd", "Äpfel", "longer than any of the others")


def built(row: Sequence[Any]) -> bytes:
    """The file that FlatBuffers' builder makes of the fields of a Model."""
    builder = flatbuffers.Builder(16)
    builder.Finish(table(builder, MODEL, row), file_identifier=layout.IDENTIFIER)
    return bytes(builder.Output())


def table(builder: flatbuffers.Builder, kind: Table, row: Sequence[Any]) -> int:
    fields = [(field, value) for field, value in zip(kind.fields, row, strict=True) if value != field.default]
    stored = [(field.name, value if is_scalar(field.form) else reference(builder, field.form, value)) for field, value in fields]
    getattr(mnnx_generated, f"{kind.name}Start")(builder)
    for name, value in stored:
        getattr(mnnx_generated, f"{kind.name}Add{''.join(part.capitalize() for part in name.split('_'))}")(builder, value)
    return getattr(mnnx_generated, f"{kind.name}End")(builder)


def is_scalar(form: Any) -> bool:
    return isinstance(form, str) and len(form) == 1


def reference(builder: flatbuffers.Builder, form: Any, value: Any) -> int:
    if form == "string":
        return builder.CreateSharedString(value)
    if isinstance(form, Table):
        return table(builder, form, value)
    if is_scalar(form.element):
        return builder.CreateNumpyVector(np.array(list(value), np.dtype(form.element).newbyteorder("<")))
    offsets = [reference(builder, form.element, element) for element in value]
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return builder.EndVector()


def text(data: bytes | None) -> str:
    return "" if data is None else data.decode()


def random_row(rng: random.Random, kind: Table, depth: int = 0) -> list[Any]:
    """Fields with values of all alignments, each left out now and then."""
    return [field.default if rng.random() < 0.3 else random_value(rng, field.form, depth) for field in kind.fields]


def random_value(rng: random.Random, form: Any, depth: int) -> Any:
    if isinstance(form, Vector):
        return [random_value(rng, form.element, depth) for _ in range(rng.choice((0, 1, 2, 3, 5)))]
    if isinstance(form, Table):
        return random_row(rng, form, depth + 1)
    if form == "string":
        return rng.choice(TEXTS)
    if form == "d":
        return rng.choice((0.0, -1.5, 1e300))
    bits = 8 * struct.calcsize(f"<{form}")
    return rng.randrange(2**bits) if form.isupper() else rng.randrange(-(2 ** (bits - 1)), 2 ** (bits - 1))


@pytest.mark.parametrize("seed", range(40))
def test_random_tables_are_written_as_flatbuffers_writes_them(seed):
    rng = random.Random(seed)
    row = random_row(rng, MODEL)
    row[1] = 1
    data = emit(row)
    row[1] = len(data)
    assert data == built(row)


def test_a_model_is_what_the_generated_code_reads():
    for model in (small(), random_model(1)):
        data = encode(model)
        root = mnnx_generated.Model.GetRootAs(data)
        assert mnnx_generated.Model.ModelBufferHasIdentifier(data, 0)
        graph, main = model.graphs[0], root.Graphs(0)
        nodes = [main.Nodes(i) for i in range(main.NodesLength())]
        assert [text(main.Values(i).Name()) for i in range(main.ValuesLength())] == [value.name for value in graph.values]
        assert [(text(node.Name()), text(node.Op())) for node in nodes] == [(node.name, node.op.name) for node in graph.nodes]
        assert [[node.Inputs(i) for i in range(node.InputsLength())] for node in nodes] == [list(node.inputs) for node in graph.nodes]


@pytest.mark.parametrize(
    ("field", "value"),
    [("opset", 2**31), ("opset", 1.5), ("producer", 5), ("producer", b"bytes"), ("symbols", [None]), ("weights_sha256", [256])],
)
def test_what_a_table_cannot_hold_is_refused(field, value):
    row = [field_.default for field_ in MODEL.fields]
    row[1] = 1
    row[[field_.name for field_ in MODEL.fields].index(field)] = value
    with pytest.raises((TypeError, ValueError, struct.error)):
        emit(row)
