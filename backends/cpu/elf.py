"""Reads ELF files: the symbols that an object refers to, and sections by name."""

from __future__ import annotations

import struct

_SYMBOL_TABLES, _NO_BITS = (2, 11), 8
#: name, type, flags, address, offset, size, link, info, alignment, entry size
_Header = tuple[int, int, int, int, int, int, int, int, int, int]


def undefined_symbols(data: bytes) -> set[str] | None:
    """The names that a 64-bit little-endian ELF object or library leaves undefined; None where `data` is in another format."""
    sections = _sections(data)
    if sections is None:
        return None
    names = set()
    for _, kind, _, _, offset, size, link, _, _, symbol_size in sections:
        if kind not in _SYMBOL_TABLES:
            continue
        strings = sections[link][4]
        for position in range(offset + symbol_size, offset + size, symbol_size):
            name, _, _, section = struct.unpack_from("<IBBH", data, position)
            if section == 0:
                names.add(_text(data, strings + name))
    return names


def section(data: bytes, name: str) -> bytes | None:
    """The contents of a section of a 64-bit little-endian ELF file that may be damaged; None where there is none."""
    try:
        sections = _sections(data)
        if sections is None:
            return None
        (index,) = struct.unpack_from("<H", data, 62)
        strings = sections[index][4]
        for found, kind, _, _, offset, size, *_ in sections:
            if kind != _NO_BITS and _text(data, strings + found) == name:
                return data[offset : offset + size]
    except (struct.error, IndexError, ValueError):
        pass  # cut short, or its tables point anywhere
    return None


def _sections(data: bytes) -> list[_Header] | None:
    if data[:6] != b"\x7fELF\x02\x01":
        return None
    (sections_at,) = struct.unpack_from("<Q", data, 40)
    entry_size, count = struct.unpack_from("<HH", data, 58)
    return [struct.unpack_from("<IIQQQQIIQQ", data, sections_at + i * entry_size) for i in range(count)]


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode(errors="replace")
