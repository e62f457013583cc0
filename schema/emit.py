"""Writes FlatBuffers tables, from rows like those that schema/walk.py reads, byte by byte as FlatBuffers' own builder does.

A file is built from its end to its start, so that an offset points to what is there already: places are counted from the end. Tables with
the same fields and alignment share a vtable, and one `struct` call writes all the fields of such a table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct, calcsize, pack, pack_into, unpack_from
from typing import Any

from mnnx.schema.layout import IDENTIFIER, MODEL, Field, Table
from mnnx.schema.records import Row

#: What offsets can express.
MOST_BYTES = 2**31 - 1


def emit(row: Sequence[Any]) -> bytearray:
    """The FlatBuffers part of a file, from the fields of its Model; its structure_size is filled in.

    Raises TypeError, ValueError or struct.error for what the tables can't hold.
    """
    data = _Emitter().finish(MODEL, row)
    (table,) = unpack_from("<I", data)
    (up_to_vtable,) = unpack_from("<i", data, table)
    slot = [field.name for field in MODEL.fields].index("structure_size")
    (place,) = unpack_from("<H", data, table - up_to_vtable + 4 + 2 * slot)
    pack_into("<Q", data, table + place, len(data))
    return data


class _Plan(Row):
    """How to write the tables that have the same fields and the same bytes behind them up to an aligned place."""

    size: int  # bytes of a table, with those that align it
    pack: Callable[..., bytes]  # takes the way to the vtable and the fields, last first
    references: tuple[tuple[int, int], ...]  # which of the fields are offsets, and where they stand, counted from the table's end
    vtable: bytes


class _Emitter:
    """The parts of one file, last first."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._alignment = 4
        self._strings: dict[str, int] = {}
        self._vtables: dict[bytes, int] = {}
        self._plans: dict[tuple[str, int, tuple[int, ...]], _Plan] = {}
        self._fields: dict[str, list[tuple[Any, Callable[[Any], int] | None]]] = {}

    def finish(self, table: Table, row: Sequence[Any]) -> bytearray:
        """The file whose root is this table."""
        root = self._table(table, row)
        self._pad(8, self._alignment)
        size = self._size + 8
        self._add(pack("<I4s", size - root, IDENTIFIER))
        if size > MOST_BYTES:
            raise ValueError("it takes more than 2 GiB beside its weights")
        return bytearray().join(reversed(self._parts))

    def _add(self, part: bytes) -> int:
        """Puts a part before all others; returns its place."""
        self._parts.append(part)
        self._size += len(part)
        return self._size

    def _pad(self, size: int, alignment: int) -> None:
        """Aligns the place that there will be when `size` further bytes are."""
        self._alignment = max(self._alignment, alignment)
        if padding := -(self._size + size) % alignment:
            self._add(bytes(padding))

    def _table(self, table: Table, row: Sequence[Any]) -> int:
        fields = self._fields.get(table.name)
        if fields is None:
            fields = self._fields[table.name] = [(field.default, self._writer(field)) for field in table.fields]
        slots, values = [], []
        for slot, (value, (default, write)) in enumerate(zip(row, fields, strict=True)):
            if value != default:
                slots.append(slot)
                values.append(value if write is None else write(value))
        key = table.name, self._size % 8, tuple(slots)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self._plan(table, slots)
        for index, place in plan.references:
            values[index] = self._size + place - values[index]
        place = self._size + plan.size
        known = self._vtables.get(plan.vtable)
        self._add(plan.pack(len(plan.vtable) if known is None else known - place, *reversed(values)))
        if known is None:
            self._vtables[plan.vtable] = self._add(plan.vtable)
        return place

    def _plan(self, table: Table, slots: Sequence[int]) -> _Plan:
        form, start = "", self._size % 8
        places, references, place = {}, [], start
        for index, slot in enumerate(slots):
            reference = not _is_scalar(table.fields[slot])
            code = "I" if reference else table.fields[slot].form
            width = calcsize(f"<{code}")
            self._alignment = max(self._alignment, width)
            padding = -place % width
            place += padding + width
            form = f"{code}{padding}x{form}"
            places[slot] = place
            if reference:
                references.append((index, place - start))
        padding = -place % 4
        place += padding + 4
        count = slots[-1] + 1 if slots else 0
        offsets = [place - places[slot] if slot in places else 0 for slot in range(count)]
        vtable = pack(f"<{count + 2}H", 2 * count + 4, place - start, *offsets)
        return _Plan(place - start, Struct(f"<i{padding}x{form}").pack, tuple(references), vtable)

    def _writer(self, field: Field) -> Callable[[Any], int] | None:
        """What writes the value of a field and returns its place; None for a scalar, which stands in the table itself."""
        form = field.form
        if _is_scalar(field):
            return None
        if isinstance(form, Table):
            return lambda row: self._table(form, row)
        if form == "string":
            return self._string
        if isinstance(form.element, Table):
            return lambda rows: self._offsets([self._table(form.element, row) for row in rows])
        if form.element == "string":
            return lambda texts: self._offsets([self._string(text) for text in texts])
        width = calcsize(f"<{form.element}")
        return lambda numbers: self._vector(form.element, width, numbers)

    def _string(self, text: str) -> int:
        place = self._strings.get(text)
        if place is None:
            data = str.encode(text)
            self._pad(len(data) + 1, 4)
            place = self._strings[text] = self._add(b"%b%b\0" % (pack("<I", len(data)), data))
        return place

    def _vector(self, code: str, width: int, numbers: Sequence[Any]) -> int:
        count = len(numbers)
        self._pad(count * width, max(width, 4))
        return self._add(pack(f"<I{count}{code}", count, *numbers))

    def _offsets(self, places: Sequence[int]) -> int:
        self._pad(4 * len(places), 4)
        end = self._size + 4 * len(places)
        return self._vector("I", 4, [end - 4 * index - place for index, place in enumerate(places)])


def _is_scalar(field: Field) -> bool:
    return isinstance(field.form, str) and len(field.form) == 1
