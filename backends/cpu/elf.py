"""Reads the symbols that an ELF object file refers to."""

from __future__ import annotations

import struct

_SYMBOL_TABLE = 2


def undefined_symbols(data: bytes) -> set[str] | None:
    """The names that a 64-bit little-endian ELF object leaves undefined; None where `data` is in another format."""
    if data[:6] != b"\x7fELF\x02\x01":
        return None
    (sections_at,) = struct.unpack_from("<Q", data, 40)
    entry_size, count = struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, sections_at + i * entry_size) for i in range(count)]
    names = set()
    for _, kind, _, _, offset, size, link, _, _, symbol_size in sections:
        if kind != _SYMBOL_TABLE:
            continue
        strings = sections[link][4]
        for position in range(offset + symbol_size, offset + size, symbol_size):
            name, _, _, section = struct.unpack_from("<IBBH", data, position)
            if section == 0:
                start = strings + name
                names.add(data[start : data.index(b"\0", start)].decode())
    return names
