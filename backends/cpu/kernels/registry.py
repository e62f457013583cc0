"""Kernel factories by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Factory:
    """`make(**parameters)` gives the kernel as a function (args, part, parts) of int64s.

    `unroll`: whether LLVM may unroll loops. It does so before it vectorises, and a short loop that is unrolled stays scalar.
    """

    make: Callable[..., Callable[[int, int, int], None]]
    fastmath: tuple[str, ...]
    unroll: bool


_FACTORIES: dict[str, Factory] = {}


def kernel_factory(name: str, fastmath: Iterable[str] = ("contract",), unroll: bool = True):
    """Registers the factory of the kernel `name`, which is its module's name, or begins with it and a dot. See Factory."""

    def register(make: Callable[..., Callable[[int, int, int], None]]):
        if name in _FACTORIES:
            raise ValueError(f"two kernels are named {name}")
        _FACTORIES[name] = Factory(make, tuple(sorted(fastmath)), unroll)
        return make

    return register


def find(name: str) -> Factory:
    """The factory of a kernel. Raises KeyError where its module doesn't register it."""
    if name not in _FACTORIES:
        importlib.import_module(f"{__package__}.{name.partition('.')[0]}")
    return _FACTORIES[name]
