"""GPU kernels by name and parameters.

    kernel("softmax.rows", storage="float")

A kernel's factory stands in `kernels/<first part of the name>.py`; `Kernel.source` imports it.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable
from typing import Any

from mnnx.backends.gpu.source import Source

_FACTORIES: dict[str, Callable[..., Source]] = {}
_VARIANTS: dict[str, Callable[[], Iterable[dict[str, Any]]]] = {}


class Kernel:
    """Interned: equal kernels are one object."""

    __slots__ = ("_source", "name", "parameters")

    def __init__(self, name: str, parameters: tuple[tuple[str, Any], ...]):
        self.name = name
        self.parameters = parameters
        self._source: Source | None = None

    @property
    def source(self) -> Source:
        if self._source is None:
            self._source = _factory(self.name)(**dict(self.parameters))
        return self._source

    @property
    def key(self) -> str:
        """What it is called on disk: its name with its parameters, as readable text."""
        return f"{self.name}({', '.join(f'{k}={v!r}' for k, v in self.parameters)})"

    def __repr__(self) -> str:
        return f"kernel {self.key}"


def kernel(name: str, **parameters: Any) -> Kernel:
    """The kernel that the factory `name` makes with these parameters (ints, bools, floats, strings, tuples of them)."""
    return _interned(name, tuple(sorted(parameters.items())))


@functools.cache
def _interned(name: str, parameters: tuple[tuple[str, Any], ...]) -> Kernel:
    return Kernel(name, parameters)


def kernel_factory(name: str, variants: Callable[[], Iterable[dict[str, Any]]]):
    """Registers the factory of the kernel `name`, which is its module's name, or begins with it and a dot.

    `variants` gives the parameters of all kernels that are to be compiled ahead of time, for Vulkan: there, no others exist.
    """

    def register(make: Callable[..., Source]):
        if name in _FACTORIES:
            raise ValueError(f"two kernels are named {name}")
        _FACTORIES[name] = make
        _VARIANTS[name] = variants
        return make

    return register


def _factory(name: str) -> Callable[..., Source]:
    if name not in _FACTORIES:
        importlib.import_module(f"{__package__}.kernels.{name.partition('.')[0]}")
    return _FACTORIES[name]


def all_variants() -> list[Kernel]:
    """Every kernel that is compiled ahead of time, each once, in order of names."""
    package = importlib.import_module(f"{__package__}.kernels")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    found = {kernel(name, **parameters): None for name in sorted(_VARIANTS) for parameters in _VARIANTS[name]()}
    return list(found)
