"""Reads FlatBuffers tables from bytes that nobody vouches for, and checks every number on the way.

What a table holds comes from schema/layout.py. Tables of one kind mostly share a vtable: each vtable is checked once, and turned into
one `struct` call that reads all the fields of a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from operator import add, itemgetter
from struct import Struct, calcsize, unpack_from
from struct import error as struct_error
from typing import Any

from mnnx.schema.layout import Table, Vector
from mnnx.schema.records import Row

_U32 = Struct("<I").unpack_from
_I32 = Struct("<i").unpack_from
_VTABLE = Struct("<HH").unpack_from
_SLOT = Struct("<H").unpack_from


class Damage(Exception):
    """Something in the bytes can't be so. `where` is the path to it, innermost first."""

    def __init__(self, what: str):
        super().__init__(what)
        self.where: list[str] = []

    def __str__(self) -> str:
        return ": ".join([*reversed(self.where), self.args[0]])


def _outside() -> Damage:
    return Damage("an offset points outside the file")


class _Plan(Row):
    """How to read the tables that share a vtable."""

    size: int  # bytes of a table
    shift: int  # (position + shift) & mask is 0 for an aligned table
    mask: int
    unpack: Callable[[Any, int], tuple]  # the fields that are there, in the order of their places
    pick: Callable[[tuple], tuple]  # all fields in the order of their slots, out of those followed by `defaults`
    defaults: tuple
    references: tuple[tuple[int, int, Callable[[int], Any]], ...]  # slot, place, and how to read what it points to


class Walk:
    """One pass over the FlatBuffers part of a file.

    Tables and vectors take their bytes from a budget, which is the size of the file: a small file can't make much of itself by
    pointing at the same thing again and again. (A shared string is read, and paid for, once.)
    """

    def __init__(self, data: bytes | memoryview):
        self._data = data
        self._end = len(data)
        self._left = len(data)
        self._plans: dict[Table, dict[int, _Plan]] = {}
        self._strings: dict[int, str] = {}

    def root(self, layout: Table) -> list:
        """The root table: a list of its fields, in which strings are str, vectors tuples (of tables: lists), tables lists like this.

        Raises Damage.
        """
        return self._tables_at(layout, (self._root(),))[0]

    def root_scalars(self, layout: Table) -> list:
        """The root table, of which only the scalar fields are read. Raises Damage."""
        position = self._root()
        try:
            plan = self._plan(layout, position - _I32(self._data, position)[0])
            return list(plan.pick(plan.unpack(self._data, position) + plan.defaults))
        except struct_error:
            raise _outside() from None

    def _root(self) -> int:
        if self._end < 8:
            raise Damage("the file is too short")
        return _U32(self._data, 0)[0]

    def _tables_at(self, layout: Table, positions: Iterable[int]) -> list[list]:
        data = self._data
        end = self._end
        plans = self._plans.setdefault(layout, {})
        rows: list[list] = []
        try:
            for position in positions:
                start = position - _I32(data, position)[0]
                plan = plans.get(start)
                if plan is None:
                    plan = plans[start] = self._plan(layout, start)
                size, shift, mask, unpack, pick, defaults, references = plan
                if (position + shift) & mask or position + size > end:
                    raise Damage(f"the table at byte {position} has an illegal place")
                self._left -= size
                row = list(pick(unpack(data, position) + defaults))
                for slot, place, read in references:
                    if not row[slot]:
                        raise Damage(f"the field {layout.fields[slot].name} points at itself")
                    row[slot] = read(position + place + row[slot])
                rows.append(row)
        except struct_error:
            damage = _outside()
            damage.where.append(f"{layout.name} {len(rows)}")
            raise damage from None
        except Damage as damage:
            damage.where.append(f"{layout.name} {len(rows)}")
            raise
        return rows

    def _plan(self, layout: Table, start: int) -> _Plan:
        """Checks the vtable at `start`."""
        if start < 0 or start & 1:
            raise Damage(f"a vtable can't be at byte {start}")
        length, size = _VTABLE(self._data, start)
        if length < 4 or length & 1 or size < 4 or start + length > self._end:
            raise Damage(f"the vtable at byte {start} is damaged")
        count = min(len(layout.fields), (length - 4) // 2)
        places = sorted((_SLOT(self._data, start + 4 + 2 * slot)[0], slot) for slot in range(count))
        places = [(place, slot) for place, slot in places if place]
        form, end, alignments, references = "<4x", 4, {(0, 3)}, []
        for place, slot in places:
            field = layout.fields[slot]
            scalar = isinstance(field.form, str) and len(field.form) == 1
            code = field.form if scalar else "I"
            width = calcsize(f"<{code}")
            if place < end or place + width > size or place % min(width, 4):
                raise Damage(f"the field {field.name} has an illegal place")
            if width == 8:
                alignments.add((place % 8, 7))
            if not scalar:
                references.append((slot, place, self._reader(field.form)))
            form += f"{place - end}x{code}"
            end = place + width
        if len(alignments) > 2:
            raise Damage(f"the vtable at byte {start} has fields that can't all be aligned")
        shift, mask = max(alignments, key=itemgetter(1))
        stored = {slot: index for index, (_, slot) in enumerate(places)}
        missing = [slot for slot in range(len(layout.fields)) if slot not in stored]
        order = stored | {slot: len(places) + index for index, slot in enumerate(missing)}
        pick = itemgetter(*(order[slot] for slot in range(len(order))))
        defaults = tuple(layout.fields[slot].default for slot in missing)
        return _Plan(size, shift, mask, Struct(form).unpack_from, pick, defaults, tuple(references))

    def _reader(self, form: str | Vector | Table) -> Callable[[int], Any]:
        if isinstance(form, Table):
            return lambda position: self._tables_at(form, (position,))[0]
        if form == "string":
            return self._string
        if isinstance(form.element, Table):
            return lambda position: self._tables_at(form.element, self._offsets(position))
        if form.element == "string":
            return lambda position: tuple(map(self._string, self._offsets(position)))
        return partial(self._scalars, form.element, calcsize(f"<{form.element}"))

    def _scalars(self, code: str, width: int, position: int) -> tuple:
        (count,) = _U32(self._data, position)
        if not count:
            return ()
        if position & 3 or (width == 8 and not position & 4):
            raise Damage(f"the vector at byte {position} is not aligned")
        size = count * width
        if position + 4 + size > self._end:
            raise Damage(f"the vector at byte {position} has {count} elements, more than the file can hold")
        self._spend(size)
        return unpack_from(f"<{count}{code}", self._data, position + 4)

    def _offsets(self, position: int) -> list[int]:
        """The positions that a vector of offsets points to."""
        offsets = self._scalars("I", 4, position)
        if 0 in offsets:
            raise Damage(f"the vector at byte {position} points at itself")
        return list(map(add, offsets, range(position + 4, self._end, 4)))

    def _string(self, position: int) -> str:
        text = self._strings.get(position)
        if text is None:
            (length,) = _U32(self._data, position)
            end = position + 4 + length
            if position & 3 or end >= self._end or self._data[end]:
                raise Damage(f"the string at byte {position} is longer than the file, or has no end")
            self._spend(length)
            try:
                text = self._strings[position] = str(self._data[position + 4 : end], "utf-8")
            except UnicodeDecodeError:
                raise Damage(f"the string at byte {position} is not UTF-8") from None
        return text

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise Damage("the same bytes are used again and again")
