"""What a package has for ops, by their classes: each module of it registers that for the ops that the file of its name defines."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable
from typing import Generic, TypeVar

from mnnx.schema.ops.base import Op, is_redefinition

T = TypeVar("T")


class Families(Generic[T]):
    """The modules of `package` are imported when an op of their family is first asked for. `what`: what they register, in the plural."""

    def __init__(self, package: str, what: str):
        self._package = package
        self._what = what
        self._found: dict[type[Op], T] = {}
        self._imported: set[str] = set()

    def register(self, op_classes: Iterable[type[Op]], thing: T) -> None:
        """Raises TypeError for what is no op class, ValueError for one that has one."""
        for op_class in op_classes:
            if not (isinstance(op_class, type) and issubclass(op_class, Op)):
                raise TypeError(f"{self._what} are for classes of ops, not for {op_class!r}")
            if op_class in self._found and not is_redefinition(self._found[op_class], thing):
                raise ValueError(f"two {self._what} for {op_class.name}")
            self._found[op_class] = thing

    def find(self, op_class: type[Op]) -> T | None:
        """What there is for an op class, or None."""
        family = op_class.__module__.rpartition(".")[2]
        if family not in self._imported:
            module = f"{self._package}.{family}"
            if importlib.util.find_spec(module):
                importlib.import_module(module)
            self._imported.add(family)  # last: whoever asks meanwhile waits for the import as well
        return self._found.get(op_class)
