"""The memory planner: lifetimes → offsets in one arena.

Offsets are assigned greedily, largest buffer first, each at the lowest offset where it meets no buffer that lives at the same time
("greedy by size", Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net Inference, 2020).
"""

from __future__ import annotations

from mnnx.schema.records import Record, Row


class Buffer(Record):
    """A piece of the arena of `nbytes`, in use from step `first` to step `last` (both included)."""

    nbytes: int
    first: int
    last: int
    offset: int = 0


class MemoryPlan(Row):
    """arena_bytes is what the plan takes; lower_bound_bytes, the largest sum of buffers alive at one step, is what any plan must take."""

    arena_bytes: int
    lower_bound_bytes: int


def plan_memory(buffers: list[Buffer], alignment: int) -> MemoryPlan:
    """Sets every buffer's offset, a multiple of `alignment`."""
    placed: list[Buffer] = []
    arena = 0
    for buffer in sorted(buffers, key=lambda b: -b.nbytes):
        offset = 0
        size = aligned(buffer.nbytes, alignment)
        for other in placed:  # kept in order of offset
            if other.first <= buffer.last and buffer.first <= other.last:
                if other.offset - offset >= size:
                    break
                offset = max(offset, other.offset + aligned(other.nbytes, alignment))
        buffer.offset = offset
        arena = max(arena, offset + size)
        _insert(placed, buffer)
    return MemoryPlan(arena, lower_bound(buffers, alignment))


def _insert(placed: list[Buffer], buffer: Buffer) -> None:
    position = next((i for i, other in enumerate(placed) if other.offset > buffer.offset), len(placed))
    placed.insert(position, buffer)


def lower_bound(buffers: list[Buffer], alignment: int) -> int:
    """The largest sum of buffers alive at one step."""
    changes: dict[int, int] = {}
    for buffer in buffers:
        size = aligned(buffer.nbytes, alignment)
        changes[buffer.first] = changes.get(buffer.first, 0) + size
        changes[buffer.last + 1] = changes.get(buffer.last + 1, 0) - size
    alive = highest = 0
    for step in sorted(changes):
        alive += changes[step]
        highest = max(highest, alive)
    return highest


def aligned(nbytes: int, alignment: int) -> int:
    return -(-nbytes // alignment) * alignment
