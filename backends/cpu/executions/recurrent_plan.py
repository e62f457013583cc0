"""How the gates of a recurrent layer lie in memory, and into which units its steps go."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from mnnx.backends.cpu.arguments import aligned_copy
from mnnx.schema.records import Row

#: A layer's units at most: beyond, what is left of a sequence is one unit.
_MOST = 4096
#: Vector instructions of a chunk of several steps, about: a thread that loses its core with a chunk in hand delays the others by that.
_CHUNK = 5e4
#: Vector instructions of a chunk of a stage at least.
_SHARE = 2e3


class GateLayout(Row):
    """Hidden units in blocks of `lanes`, all gates of a block side by side. `phases`: how many gates meet the states at once."""

    directions: int
    hidden: int
    lanes: int
    phases: tuple[int, ...]

    @property
    def gates(self) -> int:
        return sum(self.phases)

    @property
    def blocks(self) -> int:
        return -(-self.hidden // self.lanes)

    @property
    def columns(self) -> int:
        """All gates of all directions, up to whole blocks."""
        return self.directions * self.blocks * self.gates * self.lanes

    def spread(self, w: np.ndarray) -> np.ndarray:
        """[D, gates * H, …] → [D, blocks, gates, lanes, …], missing units 0."""
        rest = w.shape[2:]
        wide = np.zeros((self.directions, self.gates, self.blocks * self.lanes, *rest), w.dtype)
        wide[:, :, : self.hidden] = w.reshape(self.directions, self.gates, self.hidden, *rest)
        return wide.reshape(self.directions, self.gates, self.blocks, self.lanes, *rest).swapaxes(1, 2)

    def panels(self, r: np.ndarray) -> np.ndarray:
        """[D, gates * H, K] → [D, …]: phase after phase, for each block a panel [K, gates of the phase, lanes]."""
        spread, first, parts = self.spread(r), 0, []
        for gates in self.phases:
            panel = np.moveaxis(spread[:, :, first : first + gates], -1, 2)
            parts.append(panel.reshape(self.directions, -1))
            first += gates
        return aligned_copy(np.concatenate(parts, 1))

    def second_phase(self, depth: int) -> int:
        """Where among `panels` of so many rows the second phase begins."""
        return self.phases[0] * self.blocks * self.lanes * depth if len(self.phases) > 1 else 0


class Unit(Row):
    """Stages (steps, or phases of steps) first … last-1. Chunks: directions × row_parts × column_parts."""

    first: int
    last: int
    row_parts: int = 1
    column_parts: int = 1


def units(backend, gates: GateLayout, stages: int, work: float, batch: int, rows: int) -> Iterator[Unit]:
    """`work`: of one direction's stage, in vector instructions; `rows`: how many of the `batch` sequences make a tile.

    Directions and sequences don't wait for one another, so where they are enough for all threads, chunks are of several stages. Else
    each stage is a unit of its own, whose hidden units are shared out, if that is worth a hand-over.
    """
    threads, directions, tiles = backend.threads, gates.directions, -(-batch // rows)
    if threads == 1:
        return iter([Unit(0, stages)])
    row_parts = threads // math.gcd(threads, directions)
    if row_parts > 1 and -(-tiles // row_parts) * rows * row_parts > 1.2 * batch:  # sequences alone would leave threads idle
        column_parts = min(gates.blocks, min(backend.chunks(directions * work, _SHARE), 2 * threads) // directions)
        if column_parts > 1:
            return _shared(stages, column_parts)
        row_parts = min(tiles, row_parts)
    if directions * row_parts == 1:
        return iter([Unit(0, stages)])
    count = max(math.ceil(_CHUNK * row_parts / work), -(-stages // _MOST))
    return (Unit(first, min(first + count, stages), row_parts) for first in range(0, stages, count))


def _shared(stages: int, column_parts: int) -> Iterator[Unit]:
    for stage in range(min(stages, _MOST)):
        yield Unit(stage, stage + 1, 1, column_parts)
    if stages > _MOST:
        yield Unit(_MOST, stages)
