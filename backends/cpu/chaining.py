"""Chains: neighbouring units of a command list that run in one pass over memory.

A unit that computes n elements one by one leaves each of them in the cache. Where the next one reads them there, both can go over the n
elements tile by tile, and what lies between them needs no way to memory and back; nor do threads wait for each other between the two.
Kernels that share out their elements by `share(n, part, parts, GRAIN)` have the same tiles, whatever they compute, so one native loop
that calls them in turn (kernels/chain.py) serves all, and every unit can still run alone.

Tiles run at the same time on several threads: a tile of one unit may touch nothing that another tile of another unit writes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from mnnx.backends.cpu.arguments import address_of
from mnnx.backends.cpu.kernel import Kernel, kernel
from mnnx.backends.cpu.target import Target
from mnnx.backends.cpu.team import chunks_of
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.records import Row

_LONGEST = 32  # units: each is compared with all before it
_LEAST_TILE = 1 << 10  # elements: with fewer, the calls would show


class Operand(Row):
    """The bytes first … last-1 that a unit reads or writes. `element`: the bytes of an element, where they are as many as the unit
    computes and lie in their order, and the unit touches element i of them for its own element i only; 0: it may touch any for any."""

    first: int
    last: int
    element: int

    @classmethod
    def of(cls, memory: DeviceTensor | np.ndarray, shape: tuple[int, ...], count: int) -> Operand:
        """The `shape` elements at the start of `memory`, which broadcast to the unit's `count`; of a table that is no such tensor, 0."""
        first, size, element = address_of(memory), math.prod(shape), memory.dtype.itemsize
        return cls(first, first + size * element, element if size == count else 0)

    def apart(self, other: Operand) -> bool:
        """Whether no tile of a unit that touches this meets another tile of a unit, of as many elements, that touches `other`."""
        if self.last <= other.first or other.last <= self.first:
            return True
        return self.element == other.element != 0 and self.first == other.first


class Elements(Row):
    """A unit that computes `count` elements one by one, and whose kernel shares them out by `share(count, part, parts, GRAIN)`.

    `work`: what it takes, as in `chunks_of`.
    """

    count: int
    result: Operand
    inputs: tuple[Operand, ...]
    work: float

    def follows(self, earlier: Elements) -> bool:
        """Whether this unit can do its part of a tile while other tiles of the earlier one are not begun, or under way."""
        if self.count != earlier.count or not all(self.result.apart(operand) for operand in (earlier.result, *earlier.inputs)):
            return False
        return all(operand.apart(earlier.result) for operand in self.inputs)


class Unit(Row):
    """A kernel with its argument block, in `chunks` parts. `elements`: where it may be part of a chain. `made_of`: the units whose argument
    blocks this one's refers to."""

    kernel: Kernel
    args: np.ndarray
    chunks: int
    elements: Elements | None = None
    made_of: Sequence[Unit] = ()


def chained(units: Iterable[Unit], threads: int) -> Iterator[Unit]:
    """The same work with chains in place of their units."""
    chain: list[Unit] = []
    for unit in units:
        if chain and not _joins(unit, chain):
            yield _joined(chain, threads)
            chain = []
        chain.append(unit)
    if chain:
        yield _joined(chain, threads)


def _joins(unit: Unit, chain: Sequence[Unit]) -> bool:
    if unit.elements is None or len(chain) == _LONGEST:
        return False
    return all(other.elements is not None and unit.elements.follows(other.elements) for other in chain)


def _joined(chain: Sequence[Unit], threads: int) -> Unit:
    """One unit for all, whose tiles' operands take half of the L1 cache."""
    if len(chain) == 1:
        return chain[0]
    count = chain[0].elements.count
    operands = {operand for unit in chain for operand in (unit.elements.result, *unit.elements.inputs)}
    nbytes = count * sum(operand.element for operand in operands)
    tiles = min(-(-nbytes // (Target.host().caches[0] // 2)), -(-count // _LEAST_TILE))
    chunks = chunks_of(sum(unit.elements.work for unit in chain), threads)
    tiles = -(-tiles // chunks) * chunks
    block = [len(chain), tiles]
    for unit in chain:
        block += unit.kernel.address, address_of(unit.args)
    return Unit(kernel("chain"), np.array(block, np.int64), chunks)
