"""Tells files that are no .mnnx models by what they are."""

from __future__ import annotations


def looks_like_onnx(view: memoryview) -> bool:
    """Whether the bytes start as an ONNX ModelProto does: known fields of the right wire types, up to the graph."""
    wire_types = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 8: 2, 14: 2, 20: 2, 25: 2}
    position = 0
    while position + 2 <= len(view):
        field, wire_type = view[position] >> 3, view[position] & 7
        if field == 7:
            return wire_type == 2
        if wire_types.get(field) != wire_type or field > 15:
            return False
        number, position = _varint(view, position + 1)
        position += number if wire_type == 2 else 0
    return False


def _varint(view: memoryview, position: int) -> tuple[int, int]:
    """A protobuf varint, and the position behind it."""
    number = 0
    for shift, byte in enumerate(view[position : position + 10]):
        number |= (byte & 127) << (7 * shift)
        if byte < 128:
            return number, position + shift + 1
    return number, len(view)
