"""How a tensor is seen by kernels over rows (kernels/rows.py)."""

from __future__ import annotations

import math

from mnnx.backends.gpu.constants import TEAM, TERMS
from mnnx.backends.gpu.steps import nested
from mnnx.schema.records import Row

#: From so many rows on, each work item of a GPU has its own.
_MANY_ROWS = 8192
#: Shorter rows aren't shared.
_SHORT = 16
#: Of longer ways through a row no work item of a GPU makes all, however many rows there are: in vectors, times how often it goes.
_LONGEST_WAY = 3 << 14


class Rows(Row):
    """A tensor as [outer, count, inner] vectors of `width`; along: the lanes are neighbours in a row."""

    outer: int
    count: int
    inner: int
    width: int
    along: bool

    @classmethod
    def of(cls, block: int, outer: int, n: int, inner: int) -> Rows:
        """Those of [outer, n, inner] elements, in vectors of `block` where that fits."""
        if inner > 1 and inner % block == 0:
            return cls(outer, n, inner // block, block, False)
        if inner == 1 and n and n % block == 0:
            return cls(outer, n // block, 1, block, True)
        return cls(outer, n, inner, 1, False)

    @property
    def rows(self) -> int:
        return self.outer * self.inner

    @property
    def params(self) -> list[int]:
        return [self.rows, self.count, self.inner]

    @property
    def form(self) -> dict[str, int | bool]:
        """Its part of a kernel's parameters."""
        return {"width": self.width, "along": self.along}

    def team(self, backend, walks: int = 3) -> int:
        """Work items for each row, which is gone through so many times."""
        many = self.rows >= _MANY_ROWS and self.count * walks <= _LONGEST_WAY
        return 1 if backend.device.profile.is_cpu or many or self.count < _SHORT else TEAM

    def steps(self, backend, sums: int, walks: int) -> int:
        """Of a work item that makes so many sums (`total` in kernels/rows.py), and walks so many times over its share (`each`)."""
        share = -(-self.count // self.team(backend))
        return sums * steps_of_sum(share) + walks * nested(share)


def steps_of_sum(terms: int) -> int:
    """Of one that is made of partial sums."""
    return terms + nested(-(-terms // TERMS), 0)


def around(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    """[outer, n, inner] around one axis; of a scalar: one row of one element."""
    if not shape:
        return 1, 1, 1
    axis %= len(shape)
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def items(rows: int, team: int, backend) -> tuple[tuple[int, ...], tuple[int, int, int]]:
    """The work items of a kernel over rows, and those of a group."""
    return (rows * team,), (team if team > 1 else 1 if backend.device.profile.is_cpu else TEAM, 1, 1)
