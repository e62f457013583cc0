"""The CPU's command list: native units that a team walks without the GIL, and host functions between them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from mnnx.backends.backend import CommandList, Repetition
from mnnx.backends.cpu.arguments import address_of, aligned
from mnnx.backends.cpu.chaining import Elements, Unit, chained
from mnnx.backends.cpu.kernel import Kernel
from mnnx.backends.cpu.stretch import Stretch
from mnnx.backends.cpu.team import MAX_CHUNKS, Team
from mnnx.errors import InputError


class CpuCommandList(CommandList):
    """Units in the order in which they were recorded. Each is a kernel with its argument block, or a host function."""

    def __init__(self, team: Team):
        self.team = team
        self._units: list[Unit | Callable[[], None]] = []
        self._kept: list[Any] = []
        self._faults: list[tuple[str, int]] = []  # the message, and the command that reports it
        self._status = aligned(16).view(np.int64)
        self._abreast: dict[int, Sequence[tuple[int, int]]] = {}  # by the first command
        self._steps: dict[tuple[int, int], list[Stretch | Callable[[], None]]] = {}

    def __len__(self) -> int:
        return len(self._units)

    def record(self, kernel: Kernel, args: np.ndarray, chunks: int = 1, keep: Any = None, elements: Elements | None = None) -> None:
        """Adds a kernel with its int64 argument block, in `chunks` parts that run on any threads in any order.

        `keep` is whatever memory the block refers to and nobody else holds. The block may be changed between runs. With `elements` the
        unit may run in a chain with its neighbours, in other parts (`chaining.py`).
        """
        if not 1 <= chunks <= MAX_CHUNKS or args.dtype != np.int64 or not args.flags.c_contiguous:
            raise ValueError(f"a unit has 1 … {MAX_CHUNKS} chunks and a contiguous int64 block, not {chunks} and {args.dtype}")
        if not kernel.address:
            raise ValueError(f"{kernel} has no address")
        self._units.append(Unit(kernel, args, chunks, elements))
        self._kept.append(keep)
        self._forget_steps()

    def record_host(self, function: Callable[[], None]) -> None:
        """Adds a Python function, called by the thread that submits."""
        self._units.append(function)
        self._forget_steps()

    def set_abreast(self, lanes: Sequence[tuple[int, int]]) -> None:
        if all(isinstance(unit, Unit) for unit in self._units[lanes[0][0] : lanes[-1][1]]):  # Python functions run one by one
            self._abreast[lanes[0][0]] = lanes
            self._forget_steps()

    def fault(self, message: str) -> tuple[int, int]:
        """Two numbers for an argument block: where a kernel reports that a value is illegal, and what it writes there.

        The kernel, which is the next one to be recorded, does so with `report(address, code, value)`; the run ends with
        InputError(message.format(value)).
        """
        self._faults.append((message, len(self._units)))
        return address_of(self._status), len(self._faults)

    def submit(self, first: int, last: int) -> None:
        for step in self._steps_of(first, last):
            if step.__class__ is Stretch:
                step.run(self.team)
                if self._status[0]:
                    self._raise_fault()
            else:
                try:
                    step()
                except BaseException:
                    self.failed = self._units.index(step)
                    raise

    def repeat(self, loop: Repetition, first: int, last: int) -> tuple[int, bool]:
        steps = self._steps_of(0, len(self))
        if len(steps) != 1 or steps[0].__class__ is not Stretch:
            return super().repeat(loop, first, last)
        steps[0].use_all()
        before = [(address_of(target), 0, address_of(rows), rows.strides[0], target.spec.nbytes) for rows, target in loop.slices]
        after = [(address_of(rows), rows.strides[0], address_of(source), 0, source.spec.nbytes) for source, rows in loop.stacks]
        after += [(address_of(target), 0, address_of(source), 0, source.spec.nbytes) for source, target in loop.states]
        places = [0 if tensor is None else address_of(tensor) for tensor in (loop.index, loop.condition)]
        head = (steps[0].address, address_of(self._status), first, last, *places, len(before), len(after))
        block = np.array([*head, *itertools.chain(*before, *after)], np.int64)
        self.team.repeat(address_of(block))
        if self._status[0]:
            self._raise_fault()
        return int(block[2]), bool(block[3])

    def release(self) -> None:
        """Forgets all units, when no thread looks at them any more."""
        self._forget_steps()
        self._units.clear()
        self._abreast.clear()
        self._kept.clear()

    def __del__(self) -> None:
        self._forget_steps()

    def _raise_fault(self) -> None:
        code, value = self._status.tolist()
        self._status[:] = 0
        message, self.failed = self._faults[code - 1]
        raise InputError(message.format(value))

    def _forget_steps(self) -> None:
        if self._steps:
            self.team.quiesce()
            self._steps.clear()

    def _steps_of(self, first: int, last: int) -> list[Stretch | Callable[[], None]]:
        steps = self._steps.get((first, last))
        if steps is None:
            steps = self._steps[first, last] = list(self._split(first, last))
        return steps

    def _split(self, first: int, last: int) -> Iterator[Stretch | Callable[[], None]]:
        """Maximal native stretches and the host functions between them."""
        if not 0 <= first <= last <= len(self._units):
            raise ValueError(f"units {first} … {last} of {len(self._units)}")
        for native, units in itertools.groupby(self._joined(first, last), lambda unit: isinstance(unit, Unit)):
            if native:
                yield Stretch(list(units), self.team.threads)
            else:
                yield from units

    def _joined(self, first: int, last: int) -> Iterator[Unit | Callable[[], None]]:
        """The commands, with chains and what runs abreast as one unit each."""
        threads, begin = self.team.threads, first
        if self._abreast:
            from mnnx.backends.cpu.abreast import abreast
        for start, lanes in sorted(self._abreast.items()):
            if begin <= start and lanes[-1][1] <= last:
                yield from self._chained(begin, start)
                yield from abreast([list(chained(self._units[i:j], threads)) for i, j in lanes])
                begin = lanes[-1][1]
        yield from self._chained(begin, last)

    def _chained(self, first: int, last: int) -> Iterator[Unit | Callable[[], None]]:
        for native, units in itertools.groupby(self._units[first:last], lambda unit: isinstance(unit, Unit)):
            if native:
                yield from chained(units, self.team.threads)
            else:
                yield from units
