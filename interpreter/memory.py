"""The memory planner: lifetimes → offsets in one arena, or in several where a device's allocations have a largest size.

Offsets are assigned greedily, largest buffer first, each at the lowest offset where it meets no buffer that lives at the same time
("greedy by size", Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net Inference, 2020).
"""

from __future__ import annotations

from mnnx.schema.records import Record, Row


class Buffer(Record):
    """A piece of an arena of `nbytes`, in use from step `first` to step `last` (both included)."""

    nbytes: int
    first: int
    last: int
    offset: int = 0
    arena: int = 0


class MemoryPlan(Row):
    """arena_bytes is what the plan takes, in all its `arenas`; lower_bound_bytes, the largest sum of buffers alive at one step, is what any
    plan must take."""

    arenas: tuple[int, ...]
    lower_bound_bytes: int

    @property
    def arena_bytes(self) -> int:
        return sum(self.arenas)


def plan_memory(buffers: list[Buffer], alignment: int, largest: int | None = None) -> MemoryPlan:
    """Sets every buffer's arena and its offset there, a multiple of `alignment`.

    No arena is larger than `largest` (None: there is only one), unless a single buffer is that has one by itself.
    """
    arenas: list[list[Buffer]] = []
    sizes: list[int] = []
    for buffer in sorted(buffers, key=lambda b: -b.nbytes):
        size = aligned(buffer.nbytes, alignment)
        places = ((number, _lowest(placed, buffer, size, alignment)) for number, placed in enumerate(arenas))
        fitting = (place for place in places if largest is None or place[1] + buffer.nbytes <= largest)
        number, offset = next(fitting, (len(arenas), 0))
        if number == len(arenas):
            arenas.append([])
            sizes.append(0)
        buffer.arena, buffer.offset = number, offset
        end = offset + size if largest is None else min(offset + size, max(largest, offset + buffer.nbytes))  # only then rounded up
        sizes[number] = max(sizes[number], end)
        _insert(arenas[number], buffer)
    return MemoryPlan(tuple(sizes), lower_bound(buffers, alignment))


def _lowest(placed: list[Buffer], buffer: Buffer, size: int, alignment: int) -> int:
    """The lowest offset at which it meets none of those placed, which are in order of offset, that live when it does."""
    offset = 0
    for other in placed:
        if other.first <= buffer.last and buffer.first <= other.last:
            if other.offset - offset >= size:
                break
            offset = max(offset, other.offset + aligned(other.nbytes, alignment))
    return offset


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
