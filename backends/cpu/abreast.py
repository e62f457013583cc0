"""Units that run abreast: independent ones as one unit, which has the chunks of all.

Threads take the chunks as they do those of any unit: they are dealt out in order, so that each thread gets whole units where there are as
many of these as threads, and who is done helps the others. So units too small to be cut run at the same time, and threads wait for
each other once for all of them. Results don't depend on it: every unit is cut as it is without.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

import numpy as np

from mnnx.backends.cpu.arguments import address_of
from mnnx.backends.cpu.chaining import Unit
from mnnx.backends.cpu.kernel import kernel
from mnnx.backends.cpu.team import MAX_CHUNKS


def abreast(lanes: Sequence[Sequence[Unit]]) -> Iterator[Unit]:
    """The units of several lanes, of which each needs those before it in its own lane only: the first ones together, then the second …"""
    for row in zip_longest(*lanes):
        units = [unit for unit in row if unit is not None]
        if len(units) == 1 or sum(unit.chunks for unit in units) > MAX_CHUNKS:
            yield from units
        else:
            yield _together(units)


def _together(units: Sequence[Unit]) -> Unit:
    block = []
    for unit in units:
        block += unit.kernel.address, address_of(unit.args), unit.chunks
    return Unit(kernel("abreast"), np.array(block, np.int64), sum(unit.chunks for unit in units), made_of=units)
