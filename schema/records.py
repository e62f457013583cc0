"""Classes of plain fields that cost next to nothing to define.

A process that starts defines dozens of them; `@dataclass` compiles methods for each, which takes half a millisecond.
"""

from __future__ import annotations

from typing import Any, ClassVar


class Record:
    """Fields by annotation, with defaults where the class body gives any (a class: a fresh instance of it); equal to itself only.

    class Node(Record):
        name: str
        inputs: tuple[int, ...] = ()
    """

    _fields: ClassVar[tuple[str, ...]] = ()
    _defaults: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        own = vars(cls)
        cls._fields = (*cls._fields, *cls.__annotations__)
        cls._defaults = cls._defaults | {name: own[name] for name in cls.__annotations__ if name in own}

    def __init__(self, *values: Any, **named: Any):
        """Raises TypeError for a field that is missing, unknown or given twice."""
        fields, given = self._fields, self.__dict__
        for name, default in self._defaults.items():
            given[name] = default() if isinstance(default, type) else default
        given.update(zip(fields, values, strict=False))
        twice = len(values) > len(fields) or not named.keys().isdisjoint(fields[: len(values)])
        given.update(named)
        if twice or given.keys() != set(fields):
            raise TypeError(f"{type(self).__name__} takes the fields {', '.join(fields)}, each once")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self._fields)})"
